"""`relay doctor` and `relay shard`: directly on the store.

Exit codes of the doctor: 0 no findings · 1 it could not check · 4 warnings · 5 errors.
"""

import dataclasses
from contextlib import suppress
from typing import Any

import click

from relay import settings
from relay.cli.commands import DEFAULT_TENANT, run
from relay.cli.operators.report import Column, Report, field, json_option
from relay.cli.stores import keys_by_settings, store_at_hand, url_of_store
from relay.cli.visible import words
from relay.doctor.examine import MOST_MAILBOXES, Examined, examine
from relay.doctor.finding import Finding, Severity
from relay.errors import RelayError
from relay.protocol.address import address
from relay.settings import Settings
from relay.store.keys import Keys
from relay.store.store import open_store
from workers.main import workers

EXIT_CODES = {Severity.WARNING: 4, Severity.ERROR: 5}


@click.command()
@click.option(
    "--mailboxes", type=click.IntRange(0), default=MOST_MAILBOXES, show_default=True, help="Look into so many at most."
)
@json_option
def doctor(mailboxes: int, as_json: bool | None) -> None:
    """Examine the server and the data: what is wrong, and the command that mends it. It changes nothing.

    Exit code 0: nothing is wrong, 1: it could not look, 4: warnings, 5: errors.
    """
    chosen = settings.load()
    url = url_of_store(chosen)
    report = Report(as_json)
    findings: list[Finding] = []
    examined = Examined()

    async def work() -> None:
        async with open_store(chosen, url) as store:
            every_s = {name: worker.every_s for name, worker in workers(chosen).items()}
            async for finding in examine(store, every_s, examined, mailboxes):
                findings.append(finding)
                show(report, finding)

    run(work())
    summarise(report, findings, examined)
    raise SystemExit(max((EXIT_CODES[finding.severity] for finding in findings), default=0))


def show(report: Report, finding: Finding) -> None:
    severity = finding.severity.value
    style = "bold red" if finding.severity is Severity.ERROR else "yellow"
    text = words((f"{severity:7} ", style), (f"{finding.check}: ", "bold"), finding.what)
    report.say(text, **dataclasses.asdict(finding) | {"severity": severity})
    if report.pretty:
        report.tell(words((f"        {finding.fix}", "cyan")))


def summarise(report: Report, findings: list[Finding], examined: Examined) -> None:
    """For a person only: a program counts lines."""
    if not report.pretty:
        return
    verdict = ("nothing is wrong", "green") if not findings else (f"{len(findings)} found", "bold")
    left_out = ", others were left out (--mailboxes)" if examined.left_out else ""
    hidden = "; the server hides its settings, so they were not looked at" if examined.config_hidden else ""
    looked_at = f"; {examined.mailboxes} mailboxes were looked into"
    report.tell(words(verdict, looked_at, (left_out + hidden, "yellow")))


@click.command()
@click.argument("agent")
@json_option
def shard(agent: str, as_json: bool | None) -> None:
    """Tell which shard AGENT's mailbox is in, and its keys for redis-cli.

    It asks the store how many shards there are. Where that cannot be reached, RELAY_SHARDS tells.
    """
    name = address(agent, DEFAULT_TENANT)

    async def work() -> None:
        show_shard(Report(as_json), name, await _keys(settings.load()))

    run(work())


async def _keys(chosen: Settings) -> Keys:
    with suppress(RelayError):
        async with store_at_hand(chosen) as store:
            if store is not None:
                return store.keys
    return keys_by_settings(chosen)


def show_shard(report: Report, name: str, keys: Keys) -> None:
    number = keys.shard(name)
    held: dict[str, Any] = {
        "mailbox": keys.box(name),
        "dead letters": keys.dead(name),
        "receipts": keys.receipts(name),
        "index": keys.ids(number),
        "holds and delays": keys.due(number),
        "sessions": keys.presence(number),
        "events": keys.events(number),
    }
    if not report.pretty:
        report.json({"agent": name, "shard": number, "of": keys.shards, "keys": held})
        return
    report.tell(words((name, "bold"), f" is in shard {number} of {keys.shards}"))
    rows = [{"what": what, "key": key} for what, key in held.items()]
    report.rows((Column("", field("what")), Column("", field("key"))), rows, "")


COMMANDS = (doctor, shard)
