"""An event: one transition in the log of its shard."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from relay.protocol.columns import unescape

COLUMNS = (
    *("kind", "at_ms", "entry", "seq", "attempt", "who", "instance", "reason", "taken_at"),
    *("tenant", "to", "from", "id", "type", "thread", "priority", "bytes"),
)
ESCAPED = frozenset(("who", "reason", "type", "thread"))  # what others may write as they like
NUMBERS = frozenset(("at_ms", "seq", "attempt", "taken_at", "priority", "bytes"))
LATER_EMPTY = ("seq", "type", "thread", "priority", "bytes")  # what only the first event of a message's life has
FIRST_EVENTS = ("accepted", "revived")
ENDS_OF_DELIVERY = ("acked", "nacked", "released", "overdue", "expired")
_BEHIND_TENANT = [""] * (len(COLUMNS) - COLUMNS.index("tenant") - 1)  # what a line may leave out


class Event(Struct, frozen=True, gc=False):
    """One transition. `position` is its place in the shard's log."""

    position: str
    shard: int
    fields: dict[str, Any]

    @property
    def at_ms(self) -> int:
        """When it was logged, by the store's clock."""
        return int(self.position.partition("-")[0])

    @property
    def life(self) -> tuple[str, str, str]:
        """The mailbox and entry of the event."""
        return self.fields["tenant"], self.fields["to"], self.fields["entry"]

    def as_if_not_blocked(self) -> "Event":
        """The event of a blocked message for viewers that must not know of the block: a waiting message, or a full
        mailbox."""
        match self.fields["kind"], self.fields["reason"]:
            case "refused", "blocked":
                return Event(self.position, self.shard, self.fields | {"kind": "accepted", "reason": ""})
            case "refused", "blocked, queue_full":
                return Event(self.position, self.shard, self.fields | {"reason": "queue_full"})
        return self

    def first_delivery(self) -> "Event | None":
        """The delivery that this event ends, if it was the first: that one has no event of its own."""
        fields = self.fields
        if fields["kind"] not in ENDS_OF_DELIVERY or fields["attempt"] != 1 or not fields["taken_at"]:
            return None
        # No earlier than the message came: a pending entry's age and the instance's clock may differ by a moment.
        at_ms = max(fields["taken_at"], int(fields["entry"].partition("-")[0]))
        return Event(self.position, self.shard, fields | {"kind": "taken", "at_ms": at_ms, "reason": ""})

    def as_fields(self) -> dict[str, Any]:
        """The event for operators: without empty columns, with full addresses."""
        shown = {name: value for name, value in self.fields.items() if value != ""}
        tenant = shown.pop("tenant", "")
        for name in ("to", "from"):
            if name in shown:
                shown[name] = f"{tenant}/{shown[name]}"
        return shown


def doer(who: str, instance: str) -> str:
    """How an event of this instance names who did it; the same is in shard.lua, and explained there."""
    if who.startswith(f"{instance}."):
        return who.removeprefix(instance)
    return f"\\{who}" if who.startswith(".") else who


def columns_of(fields: list[bytes]) -> Iterator[list[str]]:
    """COLUMNS of each event of an entry. What cannot be read does not have as many.

    An entry has one `e1` with a line per event.
    """
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        text = value.decode(errors="replace")
        if name == b"e1":
            yield from _columns_of_lines(*text.split("\n"))
        else:
            yield [text]


def _columns_of_lines(first: str, *lines: str) -> Iterator[list[str]]:
    at_ms, _, instance = first.partition("\t")
    for line in lines:
        try:
            yield _columns_of_line(at_ms, instance, line)
        except ValueError:
            yield [line]


def _columns_of_line(at_ms: str, instance: str, line: str) -> list[str]:
    """Raises ValueError if it is none."""
    kind, entry, seq, attempt, who, reason, held_ms, tenant, *rest = line.split("\t")
    if who.startswith("."):
        who = instance + who
    taken_at = str(int(at_ms) - int(held_ms)) if held_ms else ""
    left_out = _BEHIND_TENANT[len(rest) :]
    return [kind, at_ms, entry, seq, attempt, who, instance, reason, taken_at, tenant, *rest, *left_out]


def parse(position: str, shard: int, columns: list[str]) -> Event:
    """Raises ValueError if they are not those of an event."""
    fields: dict[str, Any] = dict(zip(COLUMNS, columns, strict=True))
    for name in NUMBERS:
        if text := fields[name]:
            fields[name] = int(text)
    for name in ESCAPED:
        fields[name] = unescape(fields[name])
    return Event(position, shard, fields)


def complete(events: list[Event]) -> list[Event]:
    """Adds to each event what the first event of its life tells, where that is among them."""
    first = {event.life: event.fields for event in events if event.fields["kind"] in FIRST_EVENTS}
    return [_completed(event, first.get(event.life)) for event in events]


def _completed(event: Event, first: dict[str, Any] | None) -> Event:
    if first is None or event.fields["kind"] in FIRST_EVENTS:
        return event
    known = {name: first[name] for name in LATER_EMPTY} | {"accepted_at": first["at_ms"]}
    return Event(event.position, event.shard, event.fields | known)
