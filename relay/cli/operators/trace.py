"""`relay trace`: where a message is or how it ended, from all sources."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from relay import settings
from relay.cli.commands import run
from relay.cli.operators.api import Api, NotThere, api
from relay.cli.operators.archive import events_in
from relay.cli.operators.report import STATE_STYLES, Column, Report, clock, field, json_option
from relay.cli.place import who_and_where
from relay.cli.stores import keys_by_settings, redis_cli, store_at_hand
from relay.cli.visible import words
from relay.doctor.data_checks import quoted
from relay.errors import RelayError
from relay.protocol.address import address
from relay.settings import Settings
from relay.store.keys import GROUP
from relay.store.mailbox.lookup import message_key
from relay.store.store import Store

ENDS = ("acked", "replied", "expired", "dead", "cancelled")  # each event of these ends a life in the mailbox
BEGINS = ("accepted", "revived")
UNDONE = "undone_"  # before the kind of an archived event that was undone, because the store went back in time
UNKNOWN = "unknown"
MOST_DEAD = 1_000  # dead letters that are looked through for one

STEPS = (
    Column("when", lambda row: clock(row["at_ms"])),
    Column("what", field("kind")),
    Column("attempt", field("attempt"), right=True),
    Column("who", field("who")),
    Column("reason", field("reason")),
)

Event = dict[str, Any]
Pair = tuple[str, str]  # sender, recipient


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--from", "sender", help="Its sender, if the events no longer tell.")
@click.option("--to", "recipient", help="Its recipient, if the events no longer tell.")
@click.option("--tenant", help="Of this tenant; for an operator. [your own]")
@click.option("--archive", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Look there, too.")
@json_option
@who_and_where
def trace(
    ids: tuple[str, ...],
    sender: str | None,
    recipient: str | None,
    tenant: str | None,
    archive: Path | None,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Tell where a message is, or how it ended: one answer for each sender and recipient that it had.

    It asks the mailbox, the holds, the dead letters, the events and the archive, and the receipts where the store is at
    hand (RELAY_REDIS_URL, or the embedded one). It ends with the redis-cli lines to check it by hand. Exit code 1: of
    one of them nothing is known.
    """
    chosen = settings.load()
    report = Report(as_json)

    async def work() -> bool:
        found_all = True
        async with api(url, agent, token) as relay, store_at_hand(chosen) as store:
            whose = tenant or relay.tenant
            named = _pair(sender, recipient, whose)
            tracer = Tracer(relay, store, chosen, whose, archive)
            for message_id in ids:
                answers = await tracer.answers(message_id, named)
                found_all = found_all and all(answer["state"] != UNKNOWN for answer in answers)
                for answer in answers:
                    show(report, answer)
        return found_all

    results: list[bool] = []

    async def kept() -> None:
        results.append(await work())

    run(kept())
    raise SystemExit(0 if results[0] else 1)


def _pair(sender: str | None, recipient: str | None, tenant: str) -> set[Pair]:
    if (sender is None) != (recipient is None):
        raise click.UsageError("--from and --to go together")
    return {(address(sender, tenant), address(recipient, tenant))} if sender and recipient else set()


class Tracer:
    """Combines what the relay, the store and the archive know about a message."""

    def __init__(self, relay: Api, store: Store | None, chosen: Settings, tenant: str, archive: Path | None) -> None:
        self._relay = relay
        self._store = store
        self._tenant = tenant
        self._archive = archive
        self._keys = store.keys if store else keys_by_settings(chosen)
        self._redis_cli = redis_cli(chosen)

    async def answers(self, message_id: str, named: set[Pair]) -> list[dict[str, Any]]:
        """One for each sender and recipient of a message with this id."""
        logged = await self._relay.pages(
            "/v1/activity", "events", None, message=message_id, tenant=self._other_tenant()
        )
        kept = events_in(self._archive, self._tenant, message_id) if self._archive else []
        events = merged(logged, kept)
        pairs = named or {(event["from"], event["to"]) for event in events if "from" in event and "to" in event}
        if not pairs:
            return [{"id": message_id, "state": UNKNOWN, "why": "neither the events nor the archive tell of it"}]
        return [await self._answer(message_id, *pair, events) for pair in sorted(pairs)]

    def _other_tenant(self) -> str | None:
        return self._tenant if self._tenant != self._relay.tenant else None

    async def _answer(self, message_id: str, sender: str, to: str, events: list[Event]) -> dict[str, Any]:
        own = [event for event in events if (event.get("from"), event.get("to")) == (sender, to)]
        answer: dict[str, Any] = {"id": message_id, "from": sender, "to": to}
        try:
            where = await self._relay.get(self._relay.message_path(to, message_id), **{"from": sender})
            answer |= {**where, "known_by": "mailbox" if is_waiting(where["state"]) else "index"}
        except NotThere:
            answer |= state_by_events(own)
        if answer["state"] == "dead":
            answer["dead_letter"] = await self._dead_letter(to, sender, message_id)
        answer["receipt"] = await self._receipt(sender, to, message_id)
        answer["events"] = own
        answer["check"] = self.by_hand(answer)
        return answer

    async def _dead_letter(self, to: str, sender: str, message_id: str) -> dict[str, Any] | None:
        letters = await self._relay.pages(f"{self._relay.path(to)}/dead", "messages", MOST_DEAD)
        fitting = [letter for letter in letters if (letter["id"], letter["from"]) == (message_id, sender)]
        return {key: fitting[-1][key] for key in ("entry", "reason", "attempts", "history")} if fitting else None

    async def _receipt(self, sender: str, to: str, message_id: str) -> dict[str, Any] | str | None:
        """The receipt that still waits for the sender; None if there is none."""
        if self._store is None:
            return "not looked for: RELAY_REDIS_URL is not set"
        try:
            return await self._store.checkup.receipt(sender, to, message_id)
        except RelayError as error:
            return f"not looked for: {error.message}"

    def by_hand(self, answer: dict[str, Any]) -> list[str]:
        """redis-cli commands that show the same in the store."""
        keys, to, sender = self._keys, answer["to"], answer["from"]
        shard = keys.shard(to)
        key = quoted(message_key(sender, to, answer["id"]))
        lines = [f"HGET '{keys.ids(shard)}' {key}"]
        entry = answer.get("entry")
        if is_waiting(answer["state"]) and entry:
            stream_id, _, priority = entry.partition("p")
            box = keys.box(to, int(priority or 0))
            lines += [f"XRANGE '{box}' {stream_id} {stream_id}", f"XPENDING '{box}' {GROUP} {stream_id} {stream_id} 1"]
        elif "at_ms" in answer:
            lines.append(f"HGET '{keys.ended(shard, answer['at_ms'])[0]}' {key}")
        letter = answer.get("dead_letter")
        if letter:
            lines.append(f"XRANGE '{keys.dead(to)}' {letter['entry']} {letter['entry']}")
        lines.append(f"XRANGE '{keys.receipts(sender)}' - + COUNT 100")
        times = [event["at_ms"] for event in answer["events"]]
        if times:
            lines.append(f"XRANGE '{keys.events(shard)}' {min(times)} {max(times) + 1_000}")
        return [f"{self._redis_cli} {line}" for line in lines]


def is_waiting(state: str) -> bool:
    return state in ("queued", "held", "delayed")


def merged(logged: Sequence[Event], archived: Iterable[Event]) -> list[Event]:
    """Events of both, each once, oldest first; the log tells the newest first."""
    seen: dict[tuple[Any, ...], Event] = {}
    for event in (*archived, *reversed(logged)):
        names = ("kind", "at_ms", "to", "from", "entry", "attempt", "who")
        seen[tuple(event.get(name) for name in names)] = event
    return sorted(seen.values(), key=lambda event: (event["at_ms"], event["kind"] not in BEGINS))


def state_by_events(events: list[Event]) -> dict[str, Any]:
    """Of a message that mailbox and index no longer know: how its last life ended, by what was written down."""
    standing = [event for event in events if not event["kind"].startswith(UNDONE)]
    if events and not standing:
        return {"state": UNKNOWN, "why": "the store went back in time to before it was accepted", "known_by": "events"}
    by_life: dict[str, list[Event]] = {}
    for event in standing:
        if event.get("entry"):
            by_life.setdefault(event["entry"], []).append(event)
    if not by_life:
        refused = [event for event in standing if event["kind"] in ("refused", "duplicate")]
        reason = refused[-1].get("reason", "") if refused else "nothing tells of it any more"
        return {"state": "refused" if refused else UNKNOWN, "why": reason, "known_by": "events"}
    last = max(by_life.values(), key=lambda life: life[-1]["at_ms"])
    ends = [event for event in last if event["kind"] in ENDS]
    if not ends:
        return {"state": UNKNOWN, "why": "its end is in no event that is left", "known_by": "events"}
    end = ends[-1]
    state = "acked" if end["kind"] == "replied" else end["kind"]
    return {"state": state, "entry": end["entry"], "at_ms": end["at_ms"], "known_by": "events"}


def _facts(answer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Facts to show with the state."""
    until_ms, letter, receipt = (answer.get(name) for name in ("until_ms", "dead_letter", "receipt"))
    yield from ((name, answer[name]) for name in ("why", "holder") if answer.get(name))
    if until_ms is not None:
        yield "until", clock(until_ms)
    if letter:
        yield "dead letter", f"{letter['entry']}, after {letter['attempts']} attempts: {letter['reason']}"
    if isinstance(receipt, dict):
        yield "receipt", ", ".join(f"{name} {value}" for name, value in receipt.items())
    elif receipt:
        yield "receipt", receipt


def show(report: Report, answer: dict[str, Any]) -> None:
    if not report.pretty:
        report.json(answer)
        return
    state = answer["state"]
    pair = f"  {answer['from']} → {answer['to']}" if "from" in answer else ""
    report.tell(words((answer["id"], "bold"), "  ", (state, STATE_STYLES.get(state, "bold")), (pair, "dim")))
    for name, value in _facts(answer):
        report.tell(words(f"  {name}: {value}"))
    if answer.get("events"):
        report.rows(STEPS, answer["events"], "")
    for line in answer.get("check", []):
        report.tell(words((line, "cyan")))
