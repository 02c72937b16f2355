"""`relay top`: current activity, refreshed."""

import asyncio
import time
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from relay.cli.commands import Span, run
from relay.cli.operators.api import Api, api
from relay.cli.operators.report import Column, Report, age, count, field, json_option, span, table
from relay.cli.place import who_and_where
from relay.cli.visible import words

AGENTS = (
    Column("agent", field("agent")),
    Column("accepted/s", lambda row: f"{row['accepted_per_s']:.1f}", right=True),
    Column("acked/s", lambda row: f"{row['acked_per_s']:.1f}", right=True),
    Column("sent/s", lambda row: f"{row['sent_per_s']:.1f}", right=True),
    Column("depth", count("depth"), right=True),
    Column("oldest", lambda row: "" if row["oldest_age_s"] is None else span(row["oldest_age_s"]), right=True),
    Column("dead", count("dead"), right=True),
)
ANOMALIES = (
    Column("severity", field("severity")),
    Column("what", lambda row: row.get("text") or f"{row['kind']}: {row['agent']}"),
    Column("since", lambda row: age(row.get("first_ms")), right=True),
)
MOST_ANOMALIES = 10
FRAME = 7  # lines that are no rows: two of text, two empty ones, the heads of two tables, and the last


@click.command()
@click.option("--every", "every_s", type=Span(), default="2s", show_default=True, help="How often to look.")
@click.option("--count", type=click.IntRange(1), help="End after so many looks.")
@click.option("--tenant", help="Of this tenant; for an operator, `*` is all of them. [your own]")
@click.option("--limit", type=click.IntRange(1, 100), default=15, show_default=True, help="At most so many agents.")
@json_option
@who_and_where
def top(
    every_s: float,
    count: int | None,
    tenant: str | None,
    limit: int,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Show rates, the busiest agents and what looks wrong, until Ctrl-C. In a pipe: a line of JSON for each look."""
    report = Report(as_json)

    async def work() -> None:
        async with api(url, agent, token) as relay:
            if report.pretty:
                with _live(report, count is None) as live:
                    async for look in _looks(relay, tenant, limit, every_s, count):
                        live.update(drawn(look, report.console.height), refresh=True)
            else:
                async for look in _looks(relay, tenant, limit, every_s, count):
                    report.json(look)

    run(work())


def _live(report: Report, screen: bool) -> Live:
    return Live(console=report.console, screen=screen, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


async def _looks(relay: Api, tenant: str | None, limit: int, every_s: float, count: int | None) -> Any:
    looks = 0
    while True:
        yield await look_at(relay, tenant, limit)
        looks += 1
        if looks == count:
            return
        await asyncio.sleep(every_s)


async def look_at(relay: Api, tenant: str | None, limit: int) -> dict[str, Any]:
    """Everything that one refresh shows."""
    stats = await relay.get("/v1/stats", tenant=tenant, history_s=60)
    anomalies = await relay.get("/v1/anomalies", tenant=tenant, active="true")
    return {
        "at_ms": int(time.time() * 1_000),
        **{name: value for name, value in stats.items() if name not in ("history", "busiest")},
        "now": stats["history"][-1] if stats.get("history") else None,
        "busiest": stats["busiest"][:limit],
        "anomalies": anomalies["anomalies"][:MOST_ANOMALIES],
    }


def drawn(look: dict[str, Any], height: int) -> Group:
    """As much of it as a screen of this height shows: what looks wrong goes before who is busy."""
    anomalies = look["anomalies"][: max(1, (height - FRAME) // 2)]
    busiest = look["busiest"][: max(1, height - FRAME - len(anomalies))]
    parts: list[Any] = [_headline(look), _rates(look)]
    for columns, rows in ((AGENTS, busiest), (ANOMALIES, anomalies)):
        if rows:
            parts += [words(), table(columns, rows)]
    return Group(*parts)


def _headline(look: dict[str, Any]) -> Text:
    at = time.strftime("%H:%M:%S", time.localtime(look["at_ms"] / 1_000))
    counts = f"  {look['online']} of {look['agents']} agents online · {look['messages']} messages in mailboxes"
    oldest = f" · oldest {age(look['oldest_ms'])}" if look.get("oldest_ms") is not None else ""
    return words((at, "dim"), "  ", (str(look["tenant"]), "bold"), counts, oldest, f" · {look['dead']} dead")


def _rates(look: dict[str, Any]) -> Text:
    now = look["now"]
    if now is None:
        return words(("no rates: no worker takes snapshots", "dim"))
    parts = [f"accepted {now['accepted_per_s']:.1f}/s · acked {now['acked_per_s']:.1f}/s"]
    for name, until in (("taken_ms", "to taken"), ("acked_ms", "to acked")):
        if now.get(name):
            parts.append(f" · {until} p50 {span_ms(now[name]['p50'])}, p99 {span_ms(now[name]['p99'])}")
    return words(*parts)


def span_ms(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else span(milliseconds / 1_000)
