"""The event log: every transition, by shard."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from relay.store.batches import Line
from relay.store.keys import Keys

COLUMNS = (
    *("kind", "at_ms", "entry", "seq", "attempt", "who", "instance", "reason", "accepted_at", "taken_at"),
    *("tenant", "to", "from", "id", "type", "thread", "priority", "bytes"),
)
ESCAPED = frozenset(("reason", "type", "thread"))  # what others may write as they like
NUMBERS = frozenset(("at_ms", "seq", "attempt", "accepted_at", "taken_at", "priority", "bytes"))
MOST_LOOKED_AT = 20_000  # entries of a shard that one question may read
PAGE = 500

_ESCAPED = re.compile(r"\\(.)")
_MEANING = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def unescape(text: str) -> str:
    """The text that protocol.escape() made safe for a column."""
    return _ESCAPED.sub(lambda match: _MEANING.get(match[1], match[1]), text) if "\\" in text else text


@dataclass(frozen=True, slots=True)
class Event:
    """One transition. `position` is where it stands in its shard's log."""

    position: str
    shard: int
    fields: dict[str, Any]

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands among the events of all shards."""
        milliseconds, _, number = self.position.partition("-")
        return int(milliseconds), int(number), self.shard

    def as_fields(self) -> dict[str, Any]:
        """What an operator is shown: no empty columns, whole addresses."""
        shown = {name: value for name, value in self.fields.items() if value not in ("", None)}
        tenant = shown.pop("tenant", "")
        for name in ("to", "from"):
            if name in shown:
                shown[name] = f"{tenant}/{shown[name]}"
        return shown


def parse(position: str, shard: int, value: bytes) -> Event:
    columns = value.decode().split("\t")
    fields: dict[str, Any] = {}
    for name, text in zip(COLUMNS, columns, strict=True):
        fields[name] = int(text) if name in NUMBERS and text else unescape(text) if name in ESCAPED else text
    return Event(position, shard, fields)


class Events:
    def __init__(self, line: Line, keys: Keys) -> None:
        self._line = line
        self._keys = keys

    async def latest(self, shard: int, since_ms: int, until: str, count: int) -> list[tuple[str, list[Event]]]:
        """Entries of a shard's log, newest first, from `until` back to `since_ms`."""
        rows = await self._line.command("XREVRANGE", self._keys.events(shard), until, since_ms, "COUNT", count)
        return [(row[0].decode(), _events(row, shard)) for row in rows]

    async def since(self, from_ms: int, count: int) -> tuple[int, list[Event]]:
        """What all logs have from that millisecond on: where to go on, and the events in one order that never changes.

        Only whole milliseconds that are over are read, so nothing can come to be behind the place where to go on.
        """
        seconds, microseconds = await self._line.command("TIME")
        until_ms = int(seconds) * 1_000 + int(microseconds) // 1_000 - 1
        if until_ms < from_ms:
            return from_ms, []
        replies = await asyncio.gather(
            *(
                self._line.command("XRANGE", self._keys.events(shard), from_ms, until_ms, "COUNT", count)
                for shard in range(self._keys.shards)
            )
        )
        for rows in replies:
            if len(rows) == count:  # there is more: its last millisecond may not be whole
                until_ms = min(until_ms, int(rows[-1][0].partition(b"-")[0]) - 1)
        found = [event for shard, rows in enumerate(replies) for row in rows for event in _events(row, shard)]
        return until_ms + 1, sorted((one for one in found if one.place[0] <= until_ms), key=lambda one: one.place)


def _events(row: Any, shard: int) -> list[Event]:
    entry, fields = row
    position = entry.decode()
    return [parse(position, shard, fields[n + 1]) for n in range(0, len(fields), 2)]
