"""Commands for operators: `relay agents`, `peek`, `why`, `dead`, `pause` and `resume`, over HTTP.

Exit codes are those of the client's commands: 0 success · 1 failure, with one line that says why · 2 wrong usage.
"""

import sys
import time
from contextlib import suppress
from typing import Any

import click

from relay.cli.commands import Span, run
from relay.cli.operators.api import Api, NotThere, api
from relay.cli.operators.report import Column, Report, age, count, field, json_option, span
from relay.cli.place import Failed, who_and_where
from relay.cli.visible import words

AGENTS = (
    Column("agent", field("agent")),
    Column("online", lambda row: "yes" if row.get("online") else ""),
    Column("waiting", count("waiting"), right=True),
    Column("held", count("held"), right=True),
    Column("delayed", count("delayed"), right=True),
    Column("dead", count("dead"), right=True),
    Column("oldest", lambda row: age(row.get("oldest_ms")), right=True),
    Column("why", field("why")),
)
MESSAGE = (Column("id", field("id")), Column("from", field("from")), Column("type", field("type")))
MESSAGES = (
    *MESSAGE,
    Column("state", field("state")),
    Column("attempt", field("attempt"), right=True),
    Column("age", lambda row: age(row["sent_at_ms"]), right=True),
    Column("why", lambda row: _until(row)),
    Column("holder", field("holder")),
)
DEAD = (
    Column("entry", field("entry")),
    *MESSAGE,
    Column("attempts", field("attempts"), right=True),
    Column("since", lambda row: age(row["at_ms"]), right=True),
    Column("reason", field("reason")),
)
REVIVE_AT_ONCE = 100
ACTED = (
    Column("entry", field("entry")),
    *MESSAGE,
    Column("outcome", field("outcome")),
)


def _until(row: dict[str, Any]) -> str:
    until_ms = row.get("until_ms")
    why = str(row.get("why", ""))
    return why if until_ms is None else f"{why}, {span(until_ms / 1_000 - time.time())} more"


# -- looks


@click.command()
@click.option("--search", help="Only agents whose name has this in it.")
@click.option("--sort", type=click.Choice(["name", "depth", "oldest", "dead", "rate"]), help="The first by this.")
@click.option("--tenant", help="Of this tenant; for an operator. [your own]")
@click.option("--limit", type=click.IntRange(1), help="At most so many. [all]")
@json_option
@who_and_where
def agents(
    search: str | None,
    sort: str | None,
    tenant: str | None,
    limit: int | None,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """List the agents of a tenant: who is there, what waits for whom, and why."""

    async def work() -> None:
        async with api(url, agent, token) as relay:
            rows = await relay.pages("/v1/agents", "agents", limit, search=search, sort=sort, tenant=tenant)
        Report(as_json).rows(AGENTS, rows, "no agents")

    run(work())


@click.command()
@click.argument("name", metavar="AGENT")
@click.option("--state", type=click.Choice(["queued", "held", "delayed"]), help="Only messages in this state.")
@click.option("--type", "kind", help="Only messages of this type.")
@click.option("--from", "sender", help="Only messages from this agent.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@json_option
@who_and_where
def peek(
    name: str,
    state: str | None,
    kind: str | None,
    sender: str | None,
    limit: int,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Look into AGENT's mailbox. It takes nothing out and holds nothing."""

    async def work() -> None:
        filters = {"state": state, "type": kind, "from": sender}
        async with api(url, agent, token) as relay:
            rows = await relay.pages(f"{relay.path(name)}/messages", "messages", limit, **filters)
        Report(as_json).rows(MESSAGES, rows, "the mailbox is empty")

    run(work())


@click.command()
@click.argument("name", metavar="AGENT")
@json_option
@who_and_where
def why(name: str, as_json: bool | None, url: str | None, agent: str | None, token: str | None) -> None:
    """Say in one sentence why AGENT's mail is not delivered."""

    async def work() -> None:
        async with api(url, agent, token) as relay:
            found = await relay.get(relay.path(name))
            delayed = await _delayed(relay, name) if found["delayed"] else None
        sentence = why_sentence(found, delayed)
        Report(as_json).say(words(sentence), **found, sentence=sentence)

    run(work())


async def _delayed(relay: Api, name: str) -> dict[str, Any] | None:
    """One of the delayed messages, to tell why; None if there is none by now, or it is not the caller's to see."""
    with suppress(Failed):
        found = await relay.get(f"{relay.path(name)}/messages", state="delayed", limit=1)
        return found["messages"][0] if found["messages"] else None
    return None


def why_sentence(agent: dict[str, Any], delayed_one: dict[str, Any] | None = None) -> str:
    """One sentence of an agent as GET /v1/agents/{agent} describes it, and of one of its delayed messages."""
    name, waiting, held, delayed = agent["agent"], agent["waiting"], agent["held"], agent["delayed"]
    if not waiting + held + delayed:
        return f"{name} has no mail{_and_dead(agent)}."
    parts = []
    if waiting:
        parts.append(f"{_messages(waiting)} for {name}: {_reason(agent)}")
    if held:
        parts.append(f"{_messages(held, '')} held by {_holders(agent)}")
    if delayed:
        example = f" (such as {delayed_one['id']}: {_until(delayed_one)})" if delayed_one else ""
        parts.append(f"{_messages(delayed, '')} delayed{example}")
    if not waiting:
        parts[0] = f"of {name}'s mail, {parts[0]}"
    oldest = f"; the oldest came {age(agent['oldest_ms'])} ago" if agent.get("oldest_ms") is not None else ""
    return f"{', '.join(parts)}{oldest}{_and_dead(agent)}."


def _messages(number: int, verb: str = "wait") -> str:
    if number == 1:
        return "1 message " + (f"{verb}s" if verb else "is")
    return f"{number} messages " + (verb or "are")


def _reason(agent: dict[str, Any]) -> str:
    reason = agent.get("why") or "about to be taken"
    paused = agent.get("paused")
    if paused:
        said = f" ({paused['reason']})" if paused.get("reason") else ""
        return f"paused by {paused['by']} {age(paused['since_ms'])} ago{said}"
    if reason == "nobody connected":
        seen_ms = agent.get("last_seen_ms")
        return f"{reason}, " + (f"last seen {age(seen_ms)} ago" if seen_ms else "and nobody ever was")
    return str(reason)


def _holders(agent: dict[str, Any]) -> str:
    sessions = [one["session"] for one in agent.get("sessions", []) if one.get("holds")]
    return ", ".join(sessions) if sessions else "leases"


def _and_dead(agent: dict[str, Any]) -> str:
    dead = agent.get("dead")
    return f"; {dead} in its dead-letter box" if dead else ""


# -- dead letters


@click.command()
@click.argument("name", metavar="AGENT")
@click.argument("act", type=click.Choice(["list", "revive", "drop"]), default="list")
@click.option("--entry", "entries", multiple=True, help="This one; may be given several times.")
@click.option("--all", "everything", is_flag=True, help="All that fit the filters.")
@click.option("--type", "kind", help="Only those of this type.")
@click.option("--reason", help="Only those with these words in their reason.")
@click.option("--from", "sender", help="Only those from this agent.")
@click.option("--older", "older_than_s", type=Span(), help="Only those that have been there for longer.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="At most so many.")
@json_option
@who_and_where
def dead(
    name: str,
    act: str,
    entries: tuple[str, ...],
    everything: bool,
    kind: str | None,
    reason: str | None,
    sender: str | None,
    older_than_s: float | None,
    dry_run: bool,
    yes: bool,
    limit: int,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Show AGENT's dead-letter box, bring messages back from it, or drop them for good."""
    named = {"type": kind, "reason": reason, "from": sender, "older_than_s": older_than_s, "entries": list(entries)}
    where = {key: value for key, value in named.items() if value}
    if act != "list" and not where and not everything:
        raise click.UsageError("say which: --entry, a filter, or --all")
    report = Report(as_json)
    asks = not yes and not dry_run
    if act != "list" and asks and not (report.pretty and sys.stdin.isatty()):
        raise click.UsageError("nobody can be asked here: give --yes, or --dry-run to see what would be done")

    async def work() -> None:
        async with api(url, agent, token) as relay:
            path = f"{relay.path(name)}/dead"
            letters = [row for row in await relay.pages(path, "messages") if _fits(row, where)][:limit]
            if act == "list" or dry_run:
                report.rows(DEAD, letters, "no dead letter fits" if where else "no dead letters")
                return
            if asks:
                report.rows(DEAD, letters, "no dead letter fits")
                if not letters or not click.confirm(f"{act} these {len(letters)}?", default=False):
                    return
            report.rows(ACTED, await _act(relay, path, act, letters), "no dead letter fits")

    run(work())


def _fits(row: dict[str, Any], where: dict[str, Any]) -> bool:
    return (
        where.get("type") in (None, row.get("type"))
        and where.get("reason", "") in row["reason"]
        and where.get("from", row["from"]) in (row["from"], row["from"].partition("/")[2])
        and row["entry"] in where.get("entries", [row["entry"]])
        and time.time() - row["at_ms"] / 1_000 >= where.get("older_than_s", 0)
    )


async def _act(relay: Api, path: str, act: str, letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Acts on exactly these messages, and returns the outcome of each."""
    outcomes: dict[str, dict[str, Any]] = {}
    if act == "drop":
        for letter in letters:
            outcomes[letter["entry"]] = {"outcome": await _drop(relay, path, letter["entry"])}
    for start in range(0, len(letters) if act == "revive" else 0, REVIVE_AT_ONCE):
        some = [letter["entry"] for letter in letters[start : start + REVIVE_AT_ONCE]]
        answer = await relay.call("POST", f"{path}/revive", {"entries": some})
        for row in answer["revived"]:
            outcomes[row["entry"]] = {"outcome": "revived", "new_entry": row["new_entry"]}
        for row in answer["refused"]:
            outcomes[row["entry"]] = {"outcome": row["code"]}
    return [letter | outcomes.get(letter["entry"], {"outcome": "not_found"}) for letter in letters]


async def _drop(relay: Api, path: str, entry: str) -> str:
    try:
        await relay.call("DELETE", f"{path}/{entry}", None)
    except NotThere:
        return "not_found"
    return "dropped"


# -- pauses


@click.command()
@click.argument("name", metavar="[AGENT]", required=False)
@click.option("--tenant", help="All agents of this tenant.")
@click.option("--reason", help="Shown to everybody who asks why.")
@json_option
@who_and_where
def pause(
    name: str | None,
    tenant: str | None,
    reason: str | None,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Stop the delivery to AGENT, or to a tenant. Senders are still accepted."""
    run(_pause("PUT", name, tenant, {"reason": reason} if reason else {}, as_json, url, agent, token))


@click.command()
@click.argument("name", metavar="[AGENT]", required=False)
@click.option("--tenant", help="All agents of this tenant.")
@json_option
@who_and_where
def resume(
    name: str | None,
    tenant: str | None,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Deliver to AGENT, or to a tenant, again."""
    run(_pause("DELETE", name, tenant, None, as_json, url, agent, token))


async def _pause(
    method: str,
    name: str | None,
    tenant: str | None,
    body: dict[str, str] | None,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    if (name is None) == (tenant is None):
        raise click.UsageError("name either an agent, or a tenant with --tenant")
    async with api(url, agent, token) as relay:
        path = f"/v1/tenants/{tenant}" if name is None else relay.path(name)
        answer = await relay.call(method, f"{path}/pause", body)
    whose = answer.get("agent") or f"the tenant {answer['tenant']}"
    is_paused = answer["paused"] is not None
    Report(as_json).say(words((whose, "bold"), " is paused" if is_paused else " is served again"), **answer)


COMMANDS = (agents, peek, why, dead, pause, resume)
