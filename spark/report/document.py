"""The page: a summary, charts over time, and their tables, in one self-contained file."""

from collections.abc import Callable
from html import escape
from importlib.resources import files

from spark.report import words
from spark.report.charts import HOUR_MS, Axis, Line, Point, chart, linear, logarithmic, spans_of_time
from spark.report.findings import Best, Findings, Row
from spark.report.listings import Column, listing, text

KIND_WORDS = {
    "backlog_growing": "backlog grows, no acks",
    "dying": "messages die",
    "expiring": "messages expire",
    "redelivery_storm": "redelivery storm",
    "too_old": "old messages wait",
    "unusual_accepted": "unusual traffic",
    "unusual_delivered": "unusual deliveries",
}


def document(findings: Findings) -> str:
    """The report as HTML."""
    style = (files("spark.report") / "style.css").read_text(encoding="utf-8")
    period = f"{words.moment(findings.first_ms)} – {words.moment(findings.last_ms)} UTC"
    sections = [
        _summary(findings),
        _section("Traffic", _traffic(findings), _failures(findings)),
        _section("Latency", _latency(findings)),
        _section("Waiting", _depth(findings), _oldest(findings)),
        _section("What to look at", _episodes(findings.episodes)),
        _section("Tenants", _tenants(findings)),
        _section("Busiest agents", _agents(findings.agents)),
        _section("Busiest pairs", _pairs(findings.pairs)),
        _section("Sessions", _sessions(findings.sessions)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>Relay report, {period}</title><style>{style}</style></head><body><main>"
        f"<header><h1>Relay report</h1><p>{period}</p></header>{''.join(sections)}"
        "<footer>All times are UTC. Every table is also there as Parquet, beside this page.</footer>"
        "</main></body></html>\n"
    )


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def _summary(findings: Findings) -> str:
    totals = findings.totals

    tiles = {
        "accepted": words.count(totals["accepted"]),
        "delivered": words.count(totals["delivered"]),
        "expired": words.count(totals["expired"]),
        "dead": words.count(totals["dead"]),
        "redelivered": words.count(totals["redelivered"]),
        "still waiting": words.count(findings.waiting),
        "to ack, median": words.span(findings.latency["whole_p50_ms"]),
        "to ack, 99 %": words.span(findings.latency["whole_p99_ms"]),
    }
    shown = "".join(f'<div class="tile"><span>{name}</span><b>{value}</b></div>' for name, value in tiles.items())
    return f'{_verdict(findings.episodes)}<div class="tiles">{shown}</div>'


def _verdict(episodes: Best) -> str:
    if not episodes.total:
        return '<div class="verdict">Nothing unusual in this period.</div>'
    worst = episodes.rows[0]
    told = f"{KIND_WORDS[worst['kind']]} at {worst['tenant']}/{worst['agent']}, {_when(worst)}: {worst['worst']}"
    things = "1 thing" if episodes.total == 1 else f"{episodes.total:,} things"
    return f'<div class="verdict odd"><b>{things} to look at.</b> First: {escape(told)}.</div>'


def _traffic(findings: Findings) -> str:
    lines = [
        Line("accepted", _every_hour(findings, findings.hours, "accepted"), is_filled=True),
        Line("delivered", _every_hour(findings, findings.hours, "delivered")),
    ]
    return chart("Messages an hour", lines, _up_to(lines, linear), words.count)


def _failures(findings: Findings) -> str:
    names = ("redelivered", "expired", "refused", "dead")
    lines = [Line(name, _every_hour(findings, findings.hours, name)) for name in names]
    return chart("What went wrong, messages an hour", lines, _up_to(lines, linear), words.count)


def _latency(findings: Findings) -> str:
    lines = [
        Line(name, _every_hour(findings, findings.latencies, column, None))
        for name, column in (
            ("median", "whole_p50_ms"),
            ("90 %", "whole_p90_ms"),
            ("99 %", "whole_p99_ms"),
        )
    ]
    values = [value for line in lines for _, value in line.points if value is not None] or [1]
    return chart("From accept to ack, by the hour of the ack", lines, logarithmic(min(values), max(values)), words.span)


def _depth(findings: Findings) -> str:
    lines = [Line("all agents", _every_hour(findings, findings.depths, "depth"), is_filled=True)]
    lines += [Line(name, _every_hour(findings, rows, "depth")) for name, rows in findings.deepest.items()]
    return chart("Messages waiting at the end of the hour", lines, _up_to(lines, linear), words.count)


def _oldest(findings: Findings) -> str:
    lines = [Line("oldest message", _every_hour(findings, findings.depths, "oldest_ms"), is_filled=True)]
    return chart("How long the oldest had waited", lines, _up_to(lines, spans_of_time), words.span)


def _episodes(best: Best) -> str:
    columns = [
        text("what", lambda row: KIND_WORDS[row["kind"]]),
        text("agent", _address),
        text("when", _when),
        Column("hours", lambda row: words.count(row["hours"])),
        text("worst hour", lambda row: row["worst"]),
    ]
    return listing(columns, best, "Nothing unusual in this period.")


def _tenants(findings: Findings) -> str:
    return listing([text("tenant", lambda row: row["tenant"]), *_outcomes()], findings.tenants, "No tenants.")


def _agents(best: Best) -> str:
    columns = [
        text("agent", _address),
        *_outcomes(),
        Column("most waiting", lambda row: words.count(row["most"] or 0)),
        Column("waited, median", lambda row: words.span(row["waited_p50_ms"])),
        Column("handled, median", lambda row: words.span(row["handled_p50_ms"])),
        Column("whole, 99 %", lambda row: words.span(row["whole_p99_ms"])),
    ]
    return listing(columns, best, "No agents.")


def _pairs(best: Best) -> str:
    columns = [
        text("from", lambda row: f"{row['tenant']}/{row['from']}"),
        text("to", lambda row: f"{row['tenant']}/{row['to']}"),
        Column("accepted", lambda row: words.count(row["accepted"])),
        Column("payload", lambda row: words.size(row["bytes"])),
        Column("delivered", lambda row: words.count(row["delivered"])),
        _failure("expired"),
        _failure("dead"),
    ]
    return listing(columns, best, "No messages.")


def _sessions(best: Best) -> str:
    columns = [
        text("agent", _address),
        text("session", lambda row: row["session"]),
        text("first seen", lambda row: words.moment(row["first_seen_ms"])),
        Column("for", lambda row: words.span(row["last_seen_ms"] - row["first_seen_ms"])),
        Column("taken", lambda row: words.count(row["taken"])),
        Column("acked", lambda row: words.count(row["acked"])),
        _failure("nacked"),
        Column("released", lambda row: words.count(row["released"])),
        _failure("overdue"),
        Column("handled, median", lambda row: words.span(row["handled_p50_ms"])),
        Column("handled, 99 %", lambda row: words.span(row["handled_p99_ms"])),
    ]
    return listing(columns, best, "No sessions.")


def _outcomes() -> list[Column]:
    return [
        Column("accepted", lambda row: words.count(row["accepted"])),
        Column("delivered", lambda row: words.count(row["delivered"])),
        _failure("expired"),
        _failure("dead"),
        _failure("redelivered", "warn"),
    ]


def _failure(name: str, look: str = "bad") -> Column:
    return Column(name, lambda row: words.count(row[name]), look=lambda row: look if row[name] else "")


def _address(row: Row) -> str:
    return f"{row['tenant']}/{row['agent']}"


def _when(row: Row) -> str:
    return f"{words.moment(row['first_hour_ms'])}–{words.clock(row['last_hour_ms'] + HOUR_MS)}"


def _every_hour(findings: Findings, rows: list[Row], column: str, otherwise: float | None = 0) -> list[Point]:
    """A point for each hour of the period, also for those that have no row."""
    known = {row["hour_ms"]: row[column] for row in rows}
    first = findings.first_ms // HOUR_MS * HOUR_MS
    return [(at_ms, known.get(at_ms, otherwise)) for at_ms in range(first, findings.last_ms + 1, HOUR_MS)]


def _up_to(lines: list[Line], axis: Callable[[float], Axis]) -> Axis:
    return axis(max(value or 0 for line in lines for _, value in line.points))
