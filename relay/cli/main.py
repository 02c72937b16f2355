"""The command line: `relay COMMAND --help` describes each command."""

import base64
import dataclasses
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from relay import app, settings
from relay.auth import SCOPES, Tokens
from relay.cli import client, doctor
from relay.cli.commands import DEFAULT_TENANT, Span, run
from relay.cli.operators import operator
from relay.cli.operators.report import span
from relay.cli.operators.top import top
from relay.cli.operators.trace import trace
from relay.cli.pipeline.spark import spark
from relay.cli.up import supervisor
from relay.cli.up.embedded import SECRET_FILE, embedded_server, load_or_create_secret, running_url
from relay.cli.visible import Console, guard, words
from relay.errors import ConfigurationError, Malformed, RelayError, StoreUnavailable
from relay.protocol.address import address
from relay.settings import Settings
from relay.telemetry import logs
from workers import main as all_workers


class Commands(click.Group):
    """Turns our errors into one clear line and exit code 1; 2 for a name that is none, 3 for a timeout."""

    def main(self, *args: Any, **extra: Any) -> Any:
        guard()
        return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Malformed as error:
            raise click.UsageError(error.message) from None
        except StoreUnavailable as error:
            where = f"check {settings.env_name('redis_url')}, and that the server runs"
            is_away = type(error) is StoreUnavailable  # not one that refuses
            raise click.ClickException(f"the store does not answer: {where}" if is_away else error.message) from None
        except RelayError as error:
            kind = client.InVain if isinstance(error, client.NothingCame) else click.ClickException
            raise kind(error.message) from None
        except TimeoutError:
            raise click.ClickException("the relay does not answer") from None
        except KeyboardInterrupt:
            sys.exit(130)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="agent-relay", prog_name="relay")
def main() -> None:
    """A durable store-and-forward relay for agents.

    Every setting is an environment variable RELAY_<NAME>; docs/settings.md lists them.
    """
    # Servers configure their logs. Other commands say in their own words what is wrong.
    logging.getLogger("relay").addHandler(logging.NullHandler())


def with_secret(chosen: Settings) -> Settings:
    """Tokens need a secret or a key: when there is neither, the one kept in the data folder is used."""
    if chosen.token_secret is None and chosen.token_public_key is None:
        return dataclasses.replace(chosen, token_secret=load_or_create_secret(chosen.data_dir))
    return chosen


@contextmanager
def store_url(chosen: Settings, command: str) -> Iterator[str]:
    """The store to use: the one that is set, else the one that runs in the data folder, else a new one there."""
    url = chosen.redis_url or running_url(chosen.data_dir)
    if url is not None:
        yield url
        return
    with embedded_server(chosen.data_dir, command) as server:
        yield server.url


# -- running it


@main.command("up")
@click.option("--instances", type=click.IntRange(1, 64), default=2, show_default=True, help="How many relay processes.")
@click.option("--port", type=click.IntRange(1, 65_000), help="Port of the first instance; the others follow. [8080]")
@click.option("--host", help="Address to listen on. [127.0.0.1]")
@click.option("--data", "data_dir", type=click.Path(path_type=Path, file_okay=False), help="Data folder. [data]")
def up_command(instances: int, port: int | None, host: str | None, data_dir: Path | None) -> None:
    """Start everything on this machine: embedded server, instances, workers."""
    chosen = with_secret(settings.load(port=port, host=host, data_dir=data_dir, open_tenants=tenants_to_open()))
    if chosen.token_secret is None:
        chosen = dataclasses.replace(chosen, token_secret=load_or_create_secret(chosen.data_dir))
    run(supervisor.up(chosen, instances, lambda urls: announce(chosen, urls)))
    click.echo("stopped; everything that was accepted is kept", err=True)


def tenants_to_open() -> tuple[str, ...] | None:
    """The demo tenant is open, unless the setting names the open tenants."""
    return None if os.environ.get(settings.env_name("open_tenants")) else (DEFAULT_TENANT,)


def announce(chosen: Settings, urls: list[str]) -> None:
    """Prints what a person can do now."""
    lasts_s = min(settings.DAY_S, chosen.token_max_age_s)
    token = Tokens(chosen).make(f"{DEFAULT_TENANT}/admin", " ".join(sorted(SCOPES)), lasts_s)
    program = Path(sys.argv[0])
    relay = os.path.relpath(program) if program.name == "relay" else "relay"
    if chosen.data_dir != settings.Settings().data_dir:
        relay = f"{settings.env_name('data_dir')}={shlex.quote(str(chosen.data_dir))} {relay}"
    port = "" if chosen.port == 8080 else f" --url {urls[-1]}"
    lines = [
        words(("The relay is up", "bold"), f": {'  '.join(urls)}"),
        words(f"Data: {chosen.data_dir.resolve()}"),
        words(
            f"Open tenants: {', '.join(chosen.open_tenants) or 'none'} ({settings.env_name('open_tenants')}); "
            "in other tenants an agent registers with a token"
        ),
        words(),
        words("Try it in two other terminals:"),
        words((f"  {relay} listen --as bob{port}", "cyan")),
        words((f"  {relay} send bob 'hello' --url {urls[0]}", "cyan")),
        words(),
        words("Or look inside, with the token below: ", (f"{urls[0]}/", "bold cyan")),
        words(f"Ready? {urls[0]}/readyz   Numbers: {urls[0]}/metrics   Calls: {urls[0]}/docs"),
        words(f"A token for {DEFAULT_TENANT}/admin, valid for {span(lasts_s)}: ", (token, "dim")),
        words("Ctrl-C stops it; messages that wait are kept."),
    ]
    Console(soft_wrap=True).print("", *lines, "", sep="\n")


@main.command()
@click.option("--host", help="Address to listen on. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on. [8080]")
def serve(host: str | None, port: int | None) -> None:
    """Run one instance. The store is RELAY_REDIS_URL, else the embedded one."""
    chosen = with_secret(settings.load(host=host, port=port))
    logs.configure(chosen)
    with store_url(chosen, "relay serve") as url:
        run(app.serve(chosen, url))


@main.command()
@click.option("--only", default="", help=f"Some of them: {','.join(all_workers.workers(Settings()))}")
def workers(only: str) -> None:
    """Run the background workers. Any number of processes may do so at once."""
    chosen = settings.load()
    logs.configure(chosen)
    all_workers.chosen(chosen, only)
    with store_url(chosen, "relay workers") as url:
        run(all_workers.run(chosen, url, only))


# -- tokens and keys


@main.command()
@click.option("--agent", required=True, help="Whose: tenant/agent, or a bare agent in the tenant demo.")
@click.option("--scope", default="send receive", show_default=True, help=f"Some of: {' '.join(sorted(SCOPES))}.")
@click.option("--ttl", type=Span(), default="1h", show_default=True, help="How long it is valid.")
def token(agent: str, scope: str, ttl: float) -> None:
    """Print a token for an agent."""
    unknown = set(scope.split()) - SCOPES
    if not scope.split():
        raise click.BadParameter(f"name some of {' '.join(sorted(SCOPES))}", param_hint="--scope")
    if unknown:
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--scope")
    chosen = settings.load()
    tell_of_new_secret(chosen)
    chosen = with_secret(chosen)
    if ttl > chosen.token_max_age_s:
        raise click.BadParameter(f"at most {chosen.token_max_age_s} s (RELAY_TOKEN_MAX_AGE_S)", param_hint="--ttl")
    click.echo(Tokens(chosen).make(address(agent, DEFAULT_TENANT), scope, ttl))


def tell_of_new_secret(chosen: Settings) -> None:
    """A token made in the wrong folder looks like any other, until a relay refuses it."""
    path = chosen.data_dir / SECRET_FILE
    with suppress(PermissionError):  # with_secret says it
        if chosen.token_secret is None and chosen.token_public_key is None and not path.exists():
            click.echo(f"{path} is new: only a relay that uses this data folder takes the token", err=True)


@main.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the private key here (mode 600).")
def keygen(out: Path | None) -> None:
    """Make an Ed25519 key: prints the public half, and the private one unless it goes to a file."""
    key = Ed25519PrivateKey.generate()
    private = base64.b64encode(key.private_bytes_raw()).decode()
    if out is not None:
        write_private(out, private)
    click.echo(f"public  {base64.b64encode(key.public_key().public_bytes_raw()).decode()}")
    if out is None:
        click.echo(f"private {private}")


def write_private(out: Path, private: str) -> None:
    """Writes a key where only its owner can read it. Raises ConfigurationError, also if there is one already."""
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{out}: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(private + "\n")
    click.echo(f"the private key is in {out}", err=True)


# -- a person's client

for command in client.COMMANDS:
    main.add_command(command)


# -- an operator's

for command in (*operator.COMMANDS, trace, top, *doctor.COMMANDS):
    main.add_command(command)


# -- the data pipeline

main.add_command(spark)


# -- measuring


@main.command()
@click.option("--seconds", type=Span(), default="5s", show_default=True, help="How long each part lasts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--client", "with_client", is_flag=True, help="Measure the Python client, in turn with bare sockets.")
@click.option(
    "--peers", "with_peers", is_flag=True, help="Measure other brokers on this machine, in turn with the relay."
)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Of --peers; medians are shown.")
@click.option("--only", default="", metavar="NAMES", help="Of --peers: such as relay,mosquitto.")
@click.option("--chart", type=click.Path(dir_okay=False, path_type=Path), help="Of --peers: write an SVG there.")
def bench(
    seconds: float,
    as_json: bool,
    with_client: bool,
    with_peers: bool,
    rounds: int,
    only: str,
    chart: Path | None,
) -> None:
    """Measure this machine: throughput, processor time and latency, on a server and instances of its own."""
    from bench import main as benches  # only here: nothing else needs the load program
    from bench.peers.rounds import chosen

    if not with_peers:
        benches.bench(seconds, as_json, with_client)
        return
    try:
        peers = chosen(only)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from None
    if chart and not os.access(chart.parent, os.W_OK):  # known now, not after minutes of measuring
        raise click.BadParameter(f"{chart.parent} is no folder to write into", param_hint="--chart")
    benches.compare(peers, seconds, rounds, as_json, chart)


@main.command()
@click.option("--topology", type=click.Choice(["single", "sentinel", "cluster"]), default="single", show_default=True)
@click.option("--seed", type=int, help="Tells the story of an earlier run again. [a new one]")
@click.option("--minutes", type=click.FloatRange(0.2, 24 * 60), default=2.0, show_default=True)
@click.option(
    "--variant",
    type=click.Choice(["mixed", "regress", "default"]),
    default="mixed",
    show_default=True,
    help="regress: the store goes back in time. default: the timings of the settings, and 64 shards.",
)
def torture(topology: str, seed: int | None, minutes: float, variant: str) -> None:
    """Break servers, instances and connections of its own at random, and check every promise; 1 if one is broken."""
    from bench.torture.main import main as run_torture  # only here: nothing else needs it

    raise SystemExit(run_torture(topology, seed, minutes, variant))


if __name__ == "__main__":
    main()
