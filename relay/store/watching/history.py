"""History: bounded reads of the event logs that return only one tenant's events."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relay.protocol.columns import escape
from relay.store.keys import Keys
from relay.store.record.events import Event, columns_of, parse
from relay.store.redis.encoder import keyed_packet
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

PAGE_BYTES = 65_536  # of a log read in one call: less than a millisecond of Redis
OWN_BYTES = 24_576  # and of that, the tenant's own: it is what an instance has to parse
FOLLOWED_BYTES = 786_432  # the same of all logs for one who catches up, and is given all of it
MOST_PAGES = 128  # that one question may read
SHARDS_AT_ONCE = 4  # logs that one question reads side by side
CLOCKS_DIFFER_MS = 5_000  # the log is ordered by the store's clock, events tell an instance's

LogCursor = tuple[int, int, int, int]  # millisecond and number of a log's entry, shard, which event of the entry
Placed = tuple[LogCursor, Event]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events somebody asks for."""

    tenant: str
    agent: str | None = None  # its bare name
    message: str | None = None
    kinds: frozenset[str] = frozenset()  # none: all of them
    session: str | None = None  # or whoever else did it
    since_ms: int = 0
    until_ms: int | None = None  # the first millisecond that is not asked for
    sees_blocks: bool = True  # as an admin does, who may also read the lists of the blocked

    def words(self) -> list[str]:
        """The filters that history.lua applies; fits() applies the rest."""
        # A first delivery is told by what ends it, and the arrival of a blocked message by another kind.
        told_otherwise = {"taken"} if self.sees_blocks else {"taken", "accepted"}
        kinds = set() if self.kinds & told_otherwise else self.kinds
        return [
            "".join(f"{kind}\t" for kind in sorted(kinds)),
            escape(self.session or ""),
            *(word for word in (self.tenant, self.agent, self.message) if word),
        ]

    def seen(self, event: Event) -> Event | None:
        """The event as the caller may see it, if it matches."""
        shown = event if self.sees_blocks else event.as_if_not_blocked()
        return shown if self._fits(shown) else None

    def _fits(self, event: Event) -> bool:
        fields = event.fields
        return (
            fields["tenant"] == self.tenant
            and fields["at_ms"] >= self.since_ms
            and (self.until_ms is None or fields["at_ms"] < self.until_ms)
            and self.message in (None, fields["id"])
            and self.session in (None, fields["who"])
            and (not self.kinds or fields["kind"] in self.kinds)
            and (self.agent is None or self.agent in (fields["to"], fields["from"]))
        )


@dataclass(frozen=True, slots=True)
class Page:
    """A page of events, newest first. `back_to` is where the search ended, if the logs go on."""

    events: list[Event]
    back_to: LogCursor | None


class History:
    def __init__(self, pipeline: CommandPipeline, keys: Keys) -> None:
        self._pipeline = pipeline
        self._keys = keys

    async def latest(self, wanted: Wanted, before: LogCursor | None, limit: int) -> Page:
        """The newest events, or the newest before that place. The look ends when there are enough of them, or when it
        has taken MOST_PAGES."""
        look = _LookBack(wanted, before, limit, self._keys.shards)
        while unread := look.unread():
            for start in range(0, len(unread), SHARDS_AT_ONCE):
                shards = unread[start : start + SHARDS_AT_ONCE]
                pages = await asyncio.gather(*(self._earlier(shard, look) for shard in shards))
                for shard, (at_ms, rows) in zip(shards, pages, strict=True):
                    look.has_read(shard, at_ms, rows)
        return look.page()

    async def _earlier(self, shard: int, look: "_LookBack") -> tuple[int | None, list[Any]]:
        oldest = str(max(0, look.wanted.since_ms - CLOCKS_DIFFER_MS))
        return await self._read(shard, "XREVRANGE", look.first(shard), oldest, OWN_BYTES, look.wanted)

    async def since(
        self, from_ms: int, wanted: Wanted, most_bytes: int = FOLLOWED_BYTES, before_ms: int | None = None
    ) -> tuple[int, bool, list[Event]]:
        """The events of all logs between two milliseconds, in a stable order, with the cursor to continue and whether
        there is more. Returns about `most_bytes` of events, and at least a page of a log.

        Only milliseconds that are over are read, so no event can appear before the cursor.
        """
        seconds, microseconds = await self._pipeline.command("TIME")
        now_ms = int(seconds) * 1_000 + int(microseconds) // 1_000 - 1
        if before_ms is not None:
            now_ms = min(now_ms, before_ms - 1)
        until_ms, own_bytes = now_ms, max(1, most_bytes // self._keys.shards)
        if until_ms < from_ms:
            return from_ms, False, []
        events: list[Placed] = []
        for start in range(0, self._keys.shards, SHARDS_AT_ONCE):
            shards = range(start, min(start + SHARDS_AT_ONCE, self._keys.shards))
            pages = await asyncio.gather(
                *(self._read(shard, "XRANGE", str(from_ms), str(until_ms), own_bytes, wanted) for shard in shards)
            )
            for shard, (at_ms, rows) in zip(shards, pages, strict=True):
                until_ms = until_ms if at_ms is None else min(until_ms, at_ms)
                all_placed = (placed for row in rows for placed in _events(row, shard))
                events += [(place, shown) for place, event in all_placed if (shown := wanted.seen(event))]
        known = sorted((placed for placed in events if placed[0][0] <= until_ms), key=lambda placed: placed[0])
        return until_ms + 1, until_ms < now_ms, [event for _, event in known]

    async def _read(
        self, shard: int, command: str, first: str, last: str, own_bytes: int, wanted: Wanted
    ) -> tuple[int | None, list[Any]]:
        """Where the page ends, None at the end of the look, and its rows."""
        key = self._keys.events(shard)
        at_ms, rows = await self._pipeline.reply(
            keyed_packet(script("history"), key, command, first, last, PAGE_BYTES, own_bytes, *wanted.words())
        )
        return int(at_ms) if at_ms else None, rows


class _LookBack:
    """One search of all logs, from the newest event back. It keeps only as many events as requested."""

    def __init__(self, wanted: Wanted, before: LogCursor | None, limit: int, shards: int) -> None:
        self.wanted = wanted
        self._before = before
        self._limit = limit
        self._read_to: dict[int, int | None] = dict.fromkeys(range(shards))  # by shard that is not read to its end
        self._pages = 0
        self._found: list[Placed] = []  # newest first, one more than asked for

    def first(self, shard: int) -> str:
        """Where to go on."""
        read_to = self._read_to[shard]
        if read_to is not None:
            return f"({read_to}-0"
        if self._before is not None:
            return str(self._before[0])
        until_ms = self.wanted.until_ms
        return "+" if until_ms is None else str(until_ms + CLOCKS_DIFFER_MS)

    def unread(self) -> list[int]:
        """The logs to go on with; none when the look is over."""
        is_over = self._pages >= MOST_PAGES or len(self._known()) > self._limit
        return [] if is_over else list(self._read_to)

    def has_read(self, shard: int, at_ms: int | None, rows: list[Any]) -> None:
        self._pages += 1
        if at_ms is None:
            del self._read_to[shard]
        else:
            self._read_to[shard] = at_ms
        self._found += list(self._newest_of(rows, shard))
        self._found.sort(key=lambda placed: placed[0], reverse=True)
        del self._found[self._limit + 1 :]

    def _newest_of(self, rows: list[Any], shard: int) -> Iterator[Placed]:
        """The entries that may be among the newest of all; the rest is not parsed."""
        given = 0
        for row in rows:
            if len(self._found) > self._limit and _id_of(row) < self._found[-1][0][:2]:
                return
            for place, event in reversed(_events(row, shard)):
                if (self._before is None or place < self._before) and (shown := self.wanted.seen(event)):
                    yield place, shown
                    given += 1
            if given > self._limit:
                return

    def _back_to_ms(self) -> int:
        """From this millisecond on every log is read."""
        return max((at_ms or 0 for at_ms in self._read_to.values()), default=0)

    def _known(self) -> list[Placed]:
        back_to_ms = self._back_to_ms()
        return [placed for placed in self._found if placed[0][0] >= back_to_ms]

    def page(self) -> Page:
        known = self._known()
        events = [event for _, event in known[: self._limit]]
        if len(known) > self._limit:
            return Page(events, known[self._limit - 1][0])
        return Page(events, (self._back_to_ms(), 0, 0, 0) if self._read_to else None)


def _id_of(row: list[bytes]) -> tuple[int, int]:
    ms, _, number = row[0].partition(b"-")
    return int(ms), int(number)


def _events(row: list[bytes], shard: int) -> list[Placed]:
    """The events of one entry of a log, and the first deliveries that they end, each before its end."""
    position = row[0].decode()
    logged = [event for columns in columns_of(row[1:]) if (event := _parsed(position, shard, columns))]
    events = [event for entry in logged for event in (entry.first_delivery(), entry) if event is not None]
    ms, number = _id_of(row)
    return [((ms, number, shard, n), event) for n, event in enumerate(events)]


def _parsed(position: str, shard: int, columns: list[str]) -> Event | None:
    """None for what cannot be read: it must not hide the rest."""
    try:
        return parse(position, shard, columns)
    except ValueError:
        log.warning("event_unreadable", extra={"shard": shard, "position": position})
        return None
