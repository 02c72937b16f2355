"""`relay spark …`: the data pipeline. docs/pipeline.md describes its jobs."""

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.progress import Progress

from relay import settings
from relay.cli.commands import DEFAULT_TENANT
from relay.cli.pipeline.spark_launcher import install_packages, run_job
from relay.cli.up.embedded import running_url
from relay.cli.visible import Console, visible, words
from relay.core.replay import (
    BEGINNING_MS,
    END_OF_TIME_MS,
    Row,
    Wanted,
    address_of,
    for_replay,
    message_of,
    read_dump,
    replay,
)
from relay.errors import ConfigurationError, RelayError
from relay.protocol.address import address
from relay.settings import Settings
from relay.store.store import open_store

_DAY = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters or more: one is a drive


class Folder(click.Path):
    """A folder of this machine. A url is none: as a path, it would be a folder of that name here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if scheme := _SCHEME.match(str(value)):
            self.fail(f"the scheme {scheme[1]!r} is not supported; name a folder that this machine has", param, ctx)
        return super().convert(value, param, ctx)


_FOLDER = Folder(path_type=Path, file_okay=False)


@click.group()
def spark() -> None:
    """The data pipeline: archive, report, audit, dump and replay. The first use installs PySpark."""


def known_url(chosen: Settings) -> str | None:
    return chosen.redis_url or running_url(chosen.data_dir)


def needed_url(chosen: Settings) -> str:
    url = known_url(chosen)
    if url is None:
        raise ConfigurationError(
            f"no server runs in {chosen.data_dir}: start `relay up` there, or set RELAY_REDIS_URL to the store"
        )
    return url


def as_given(context: click.Context) -> list[str]:
    """The options of a command as the words of its job: only those that were given, so that a job has its defaults."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params[str(option.name)]
        if value is True:
            words.append(option.opts[0])
        elif value not in (None, False):
            words += [option.opts[0], str(value)]
    return words


def _of_period(command: Callable[..., None]) -> Callable[..., None]:
    since = click.option("--since", metavar="TIME", help="From this time on (UTC): 2026-05-01 or 2026-05-01T12:30.")
    until = click.option("--until", metavar="TIME", help="Before this time.")
    return since(until(command))


_archive_option = click.option("--archive", required=True, metavar="DIR", help="What the archive job wrote.")


@spark.command()
@click.option("--out", required=True, metavar="DIR", help="The folder of the archive.")
@click.option("--once", is_flag=True, help="Archive what is there now, and end.")
@click.pass_context
def archive(context: click.Context, /, **_: object) -> None:
    """Copy every event into Parquet files by day, exactly once, until Ctrl-C."""
    run_job(["archive", *as_given(context)], needed_url(settings.load()))


@spark.command()
@click.option("--out", required=True, metavar="DIR", help="The folder of the dump; it must not hold one yet.")
@click.pass_context
def dump(context: click.Context, /, **_: object) -> None:
    """Copy every message that waits or is dead, with its content, into Parquet files."""
    run_job(["dump", *as_given(context)], needed_url(settings.load()))


@spark.command()
@_archive_option
@click.option("--out", required=True, metavar="DIR", help="Where the tables and report.html go.")
@_of_period
@click.pass_context
def report(context: click.Context, /, **_: object) -> None:
    """Write tables and a page of what happened."""
    run_job(["report", *as_given(context)], known_url(settings.load()))


@spark.command()
@_archive_option
@_of_period
@click.option("--json", is_flag=True, help="Print one JSON object with the counts and all exceptions.")
@click.option("--offline", is_flag=True, help="Do not ask the store: what has no end counts as waiting.")
@click.option("--mailboxes", metavar="DIR", help="A dump of the mailboxes, instead of the store's own.")
@click.option("--ttl-s", type=float, help="The relay's RELAY_MESSAGE_TTL_S.")
@click.option("--sweep-every-s", type=float, help="The relay's RELAY_SWEEP_EVERY_S.")
@click.pass_context
def audit(context: click.Context, /, **_: object) -> None:
    """Prove that the books balance, or list what is lost, doubled or stuck. Exit code 1 if they do not."""
    run_job(["audit", *as_given(context)], known_url(settings.load()))


@spark.command("replay")
@click.option("--from", "folder", required=True, type=_FOLDER, help="The folder of a dump.")
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@click.option("--dead", is_flag=True, help="The dead letters of the dump instead of what waited.")
@click.option("--agent", "agents", multiple=True, help="Only to this recipient, tenant/agent; may be repeated.")
@click.option("--type", "types", multiple=True, help="Only of this type; may be repeated.")
@click.option("--since", type=_DAY, help="Only what was accepted from then on (UTC).")
@click.option("--until", type=_DAY, help="Only what was accepted before then (UTC).")
@click.option("--reason", default="", help="With --dead: only what died with this in its reason.")
@click.option("--rate", type=click.FloatRange(min=0.1), default=1_000, show_default=True, help="Messages a second.")
def replay_command(
    folder: Path,
    dry_run: bool,
    dead: bool,
    agents: tuple[str, ...],
    types: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    reason: str,
    rate: float,
) -> None:
    """Put messages of a dump back into their mailboxes. What is there already is not doubled.

    Each message must pass the rules for a message that is sent. Exit code 1 if one is refused."""
    chosen = settings.load()
    if since and until and until <= since:
        raise click.BadParameter(f"{until} is not after --since {since}", param_hint="--until")
    wanted = Wanted(
        "dead" if dead else "mailbox",
        frozenset(address(agent, DEFAULT_TENANT) for agent in agents),
        frozenset(types),
        _ms(since, BEGINNING_MS),
        _ms(until, END_OF_TIME_MS),
        reason,
    )
    install_packages()
    try:
        count = sum(1 for _ in read_dump(folder, wanted))
    except ConfigurationError as error:
        raise click.BadParameter(error.message, param_hint="--from") from None
    if dry_run:
        sys.exit(_rehearse(read_dump(folder, wanted), chosen.max_payload_bytes))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        became = runner.run(_replay(chosen, folder, wanted, count, rate))
    click.echo(", ".join(f"{count} {word}" for word, count in became.most_common()) or "nothing to send", err=True)
    if became.total() > sum(became[word] for word in ("stored", "duplicate", "blocked", "expired")):
        sys.exit(1)


def _rehearse(rows: Iterable[Row], max_payload_bytes: int) -> int:
    """Says what would be sent, and what would be refused whatever the store says. Returns the exit code."""
    per_agent: Counter[str] = Counter()
    refused, now_ms = 0, int(time.time() * 1_000)
    for row in rows:
        try:
            per_agent[address_of(row)] += message_of(row, now_ms, max_payload_bytes) is not None
        except RelayError as error:
            refused += 1
            click.echo(visible(_refusal(row, error)), err=True)
    click.echo(f"would send {per_agent.total()} messages to {len(+per_agent)} mailboxes")
    for recipient, count in per_agent.most_common(20):
        click.echo(f"{count:8} {visible(recipient)}")
    return 1 if refused else 0


def _refusal(row: Row, error: RelayError) -> str:
    where = f"{row['id']!r} to {address_of(row)!r}, entry {row['entry']!r}"
    return f"refused: {where}: {error.code}: {error.message}"


def _ms(time: datetime | None, otherwise: int) -> int:
    return otherwise if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1_000)


async def _replay(chosen: Settings, folder: Path, wanted: Wanted, count: int, rate: float) -> "Counter[str]":
    console = Console(stderr=True, soft_wrap=True)
    with Progress(console=console, redirect_stdout=False, redirect_stderr=False) as progress:
        bar = progress.add_task("replaying", total=count)
        async with open_store(for_replay(chosen), needed_url(chosen)) as store:
            await store.inspect()
            return await replay(
                store,
                read_dump(folder, wanted),
                rate,
                sent=lambda count: progress.advance(bar, count),
                refused=lambda row, error: console.print(words(_refusal(row, error))),
            )
