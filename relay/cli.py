"""The command line: `relay COMMAND --help` tells what each does."""

import asyncio
import base64
import dataclasses
import getpass
import os
import re
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import orjson
import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console

from relay import app, logs, settings, terminal, up
from relay.auth import SCOPES, Tokens
from relay.embedded import embedded_server, kept_secret, running_url
from relay.errors import ConfigurationError, RelayError
from relay.protocol import address
from relay.settings import Settings
from relay.spark_cli import spark
from workers import main as all_workers

DEFAULT_TENANT = "demo"
_SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Span(click.ParamType[float]):
    """A length of time: 90, 90s, 15m, 1h, 7d."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a length of time such as 90s, 15m, 1h or 7d", param, ctx)
        return float(match[1]) * _SPANS[match[2] or "s"]


class Commands(click.Group):
    """Turns our errors into one clear line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RelayError as error:
            raise click.ClickException(error.message) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="agent-relay", prog_name="relay")
def main() -> None:
    """A durable store-and-forward relay for agents.

    Every setting is an environment variable RELAY_<NAME>; docs/settings.md lists them.
    """


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def with_secret(chosen: Settings) -> Settings:
    """Tokens need a secret or a key: when there is neither, the one kept in the data folder is used."""
    if chosen.token_secret is None and chosen.token_public_key is None:
        return dataclasses.replace(chosen, token_secret=kept_secret(chosen.data_dir))
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
    chosen = with_secret(settings.load(port=port, host=host, data_dir=data_dir))
    if chosen.token_secret is None:
        chosen = dataclasses.replace(chosen, token_secret=kept_secret(chosen.data_dir))
    run(up.up(chosen, instances, lambda urls: announce(chosen, urls)))
    click.echo("stopped; everything that was accepted is kept", err=True)


def announce(chosen: Settings, urls: list[str]) -> None:
    """What a person can do now."""
    token = Tokens(chosen).make(f"{DEFAULT_TENANT}/admin", " ".join(sorted(SCOPES)), 86_400)
    program = Path(sys.argv[0])
    relay = os.path.relpath(program) if program.name == "relay" else "relay"
    if chosen.data_dir != settings.Settings().data_dir:
        relay = f"{settings.env_name('data_dir')}={shlex.quote(str(chosen.data_dir))} {relay}"
    port = "" if chosen.port == 8080 else f" --url {urls[-1]}"
    lines = [
        f"[bold]The relay is up[/bold]: {'  '.join(urls)}",
        f"Data: {chosen.data_dir.resolve()}",
        "",
        "Try it in two other terminals:",
        f"  [cyan]{relay} listen --as bob{port}[/cyan]",
        f"  [cyan]{relay} send bob 'hello' --url {urls[0]}[/cyan]",
        "",
        f"Ready? {urls[0]}/readyz   Numbers: {urls[0]}/metrics",
        f"A token for {DEFAULT_TENANT}/admin, one day: [dim]{token}[/dim]",
        "Ctrl-C stops it; messages that wait are kept.",
    ]
    Console(stderr=True, soft_wrap=True, highlight=False).print("", *lines, "", sep="\n")


@main.command()
@click.option("--host", help="Address to listen on. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on. [8080]")
@click.option("--with-parent", is_flag=True, hidden=True)
def serve(host: str | None, port: int | None, with_parent: bool) -> None:
    """Run one instance. The store is RELAY_REDIS_URL, else the embedded one."""
    chosen = with_secret(settings.load(host=host, port=port))
    logs.configure(chosen)

    async def work(url: str) -> None:
        async with up.ends_with_parent(with_parent):
            await app.serve(chosen, url)

    with store_url(chosen, "relay serve") as url:
        run(work(url))


@main.command()
@click.option("--only", default="", help="Some of them: sweeper,overdue,receipts,reaper")
@click.option("--with-parent", is_flag=True, hidden=True)
def workers(only: str, with_parent: bool) -> None:
    """Run the background workers. Any number of processes may do so at once."""
    chosen = settings.load()
    logs.configure(chosen)

    async def work(url: str) -> None:
        async with up.ends_with_parent(with_parent):
            await all_workers.run(chosen, url, only)

    all_workers.chosen(chosen, only)
    with store_url(chosen, "relay workers") as url:
        run(work(url))


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
    chosen = with_secret(settings.load())
    if ttl > chosen.token_max_age_s:
        raise click.BadParameter(f"at most {chosen.token_max_age_s} s (RELAY_TOKEN_MAX_AGE_S)", param_hint="--ttl")
    click.echo(Tokens(chosen).make(address(agent, DEFAULT_TENANT), scope, ttl))


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


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    url = click.option("--url", help="The relay. [http://127.0.0.1:8080]")
    who = click.option("--as", "agent", help="Who you are: tenant/agent, or a bare agent in the tenant demo.")
    given = click.option("--token", "given_token", help="A token of yours; else one is made with the local secret.")
    return url(who(given(command)))


def relay_url(chosen: Settings, url: str | None) -> str:
    return url or f"http://{chosen.host}:{chosen.port}"


@main.command()
@click.argument("to")
@click.argument("payload", required=False)
@click.option(
    "--file", type=click.Path(exists=True, path_type=Path, dir_okay=False), help="Take the payload from here."
)
@click.option("--type", "kind", help="The message's type.")
@click.option("--id", "message_id", help="The message's id; made when left out.")
@click.option("--wait", "wait_s", type=Span(), help="Ask, and wait this long for the reply.")
@client_options
def send(
    to: str,
    payload: str | None,
    file: Path | None,
    kind: str | None,
    message_id: str | None,
    wait_s: float | None,
    url: str | None,
    agent: str | None,
    given_token: str | None,
) -> None:
    """Send a message TO an agent. The payload is the argument, a file, or standard input; JSON if it is JSON."""
    chosen = with_secret(settings.load())
    sender = address(agent or (f"cli-{terminal.new_id()}" if wait_s else "cli"), DEFAULT_TENANT)
    scope = "send receive" if wait_s else "send"
    recipient = address(to, sender.partition("/")[0])
    text = payload if payload is not None else payload_text(file.read_bytes() if file else sys.stdin.buffer.read())
    message: dict[str, Any] = {"id": message_id or terminal.new_id(), "to": recipient, "receipt": False}
    message["payload"] = terminal.payload_from(text)
    if kind is not None:
        message["type"] = kind
    its_token = given_token or Tokens(chosen).make(sender, scope, 3_600)
    run(_send(relay_url(chosen, url), its_token, message, wait_s))


def payload_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError("the payload is not text in UTF-8; encode it, for example with base64") from None


async def _send(url: str, token: str, message: dict[str, Any], wait_s: float | None) -> None:
    if wait_s is None:
        answer = await terminal.send(url, token, message)
        duplicate = message["id"] in answer["duplicate_ids"]
        _print_line({"id": message["id"], "durability": answer["durability"], "duplicate": duplicate})
        return
    reply = await terminal.ask(url, token, message, wait_s)
    if reply is None:
        raise ConfigurationError(f"no reply within {wait_s:.0f} s; the request {message['id']} waits on")
    _print_line(reply)


@main.command()
@click.option("--no-ack", is_flag=True, help="Only look: messages stay in the mailbox and come again.")
@client_options
def listen(no_ack: bool, url: str | None, agent: str | None, given_token: str | None) -> None:
    """Receive messages and print each as one line of JSON. Confirms a message once it is printed."""
    chosen = with_secret(settings.load())
    listener = address(agent or getpass.getuser(), DEFAULT_TENANT)

    def fresh_token() -> str:
        return given_token or Tokens(chosen).make(listener, "send receive", min(86_400, chosen.token_max_age_s))

    try:
        run(terminal.listen(relay_url(chosen, url), fresh_token, _print_line, acks=not no_ack))
    except KeyboardInterrupt:
        sys.exit(130)


def _print_line(fields: dict[str, Any]) -> None:
    # Written through at once: a message is confirmed only after it has left this process.
    sys.stdout.buffer.write(orjson.dumps(fields) + b"\n")
    sys.stdout.buffer.flush()


# -- the data pipeline

main.add_command(spark)


# -- measuring


@main.command()
@click.option("--seconds", type=Span(), default="5s", show_default=True, help="How long each part lasts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def bench(seconds: float, as_json: bool) -> None:
    """Measure this machine: throughput, processor time and latency, on a server and instances of its own."""
    from bench.main import bench as measure  # only here: nothing else needs the load program

    measure(seconds, as_json)


if __name__ == "__main__":
    main()
