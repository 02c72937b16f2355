"""The event log of the store: its extent, its trimmed entries, and its entries in pages."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from redis.exceptions import ResponseError

from spark.sources import parsing
from spark.sources.store import Client, Store, StoreError

FIRST_PAGE_ENTRIES = 10
PAGE_EVENTS = 4_000  # what one XRANGE asks for, about: two or three milliseconds of the server
MOST_PAGE_ENTRIES = 2_000
BATCH_EVENTS = 20_000  # events that become columns at once


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a shard's log: an entry, and how many entries were added up to it."""

    id: str
    nth: int

    @property
    def order(self) -> tuple[int, int]:
        ms, _, n = self.id.partition("-")
        return int(ms), int(n)


@dataclass(frozen=True, slots=True)
class Extent:
    """What a shard's log has at one moment. Entries only ever leave at its beginning."""

    first: Mark | None  # None of an empty log
    last: Mark
    removed: int
    events_per_entry: float  # judged by the first and the last

    def check(self, shard: int, read: Mark) -> None:
        """Raises StoreError unless this log can be the one that was read up to there."""
        begins_anew = self.first is not None and self.first.order > read.order and self.removed < read.nth
        if self.last.nth < read.nth or self.last.order < read.order or begins_anew:
            raise StoreError(
                f"shard {shard} was read up to {read.id} (entry {read.nth}) and now ends with {self.last.id} "
                f"(entry {self.last.nth}): the store was wiped or is another one; what follows needs a new checkpoint"
            )


@dataclass(frozen=True, slots=True)
class Range:
    """Entries of a shard's log to be read: `start` and `end` as XRANGE takes them."""

    shard: int
    start: str
    end: str
    entries: int
    counted: bool = False  # whether `entries` is exact, so that what is missing can be told


def extents(store: Store) -> dict[int, Extent]:
    """How far every shard's log goes now."""
    return {shard: _extent(store.server_of(shard), store.key(shard, "events")) for shard in range(store.place.shards)}


def _extent(server: Client, key: str) -> Extent:
    try:
        flat = server.execute_command("XINFO STREAM", key)
    except ResponseError as error:
        if "no such key" not in str(error):
            raise
        return Extent(None, Mark("0-0", 0), 0, 1)
    info: dict[bytes, Any] = dict(zip(flat[::2], flat[1::2], strict=True))
    added = info[b"entries-added"]
    removed = added - info[b"length"]
    ends = [entry for entry in (info[b"first-entry"], info[b"last-entry"]) if entry]
    return Extent(
        Mark(ends[0][0].decode(), removed + 1) if ends else None,
        Mark(info[b"last-generated-id"].decode(), added),
        removed,
        sum(parsing.count(entry[1]) for entry in ends) / max(1, len(ends)),
    )


def read(store: Store, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
    """The events of these ranges. Where counted entries were trimmed meanwhile, a row of kind `lost` says how many."""
    for wanted in ranges:
        yield from _read_range(store, wanted)


def _read_range(store: Store, wanted: Range) -> Iterator[pa.RecordBatch]:
    first, count = "", 0
    for entries in _gathered(_pages(store.server_of(wanted.shard), store.key(wanted.shard, "events"), wanted)):
        first, count = first or entries[0][0].decode(), count + len(entries)
        yield parsing.parse(wanted.shard, entries)
    if wanted.counted and count != wanted.entries:
        if count > wanted.entries:
            raise StoreError(
                f"shard {wanted.shard} has {count} entries up to {wanted.end} and had {wanted.entries}: wiped"
            )
        yield parsing.lost(wanted.shard, first or wanted.end, wanted.entries - count)


def _pages(server: Client, key: str, wanted: Range) -> Iterator[list[Any]]:
    """Pages small enough that the server serves others in between, whatever the size of the entries."""
    start, count = wanted.start, FIRST_PAGE_ENTRIES
    while page := server.execute_command("XRANGE", key, start, wanted.end, "COUNT", count):
        yield page
        if len(page) < count:
            return
        start = f"({page[-1][0].decode()}"
        events = sum(parsing.count(fields) for _, fields in page)
        count = max(1, min(MOST_PAGE_ENTRIES, PAGE_EVENTS * len(page) // max(1, events)))


def _gathered(pages: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Pages joined until they are worth a batch."""
    entries: list[Any] = []
    events = 0
    for page in pages:
        entries += page
        events += sum(parsing.count(fields) for _, fields in page)
        if events >= BATCH_EVENTS:
            yield entries
            entries, events = [], 0
    if entries:
        yield entries
