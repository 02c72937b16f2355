"""The event log of the store: its extent, its trimmed entries, and its entries in pages."""

import zlib
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
NOTHING = "0-0"  # before the first entry

Order = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a shard's log: an entry, and how many entries were added up to it."""

    id: str
    nth: int
    digest: str = ""  # of the entry, where it is known: another history can have another entry under the same id
    fork: "Mark | None" = None  # the last entry that was kept, if the log had gone back in time when it was read

    @property
    def order(self) -> Order:
        return order(self.id)


def order(id: str) -> Order:
    """What ids sort by."""
    ms, _, n = id.partition("-")
    return int(ms), int(n)


def digest(fields: list[bytes]) -> str:
    """Tells entries with the same id apart."""
    return format(zlib.crc32(b"\0".join(fields)), "08x")


@dataclass(frozen=True, slots=True)
class Extent:
    """What a shard's log has at one moment. Entries only ever leave at its beginning."""

    first: Mark | None  # None of an empty log
    last: Mark
    removed: int
    events_per_entry: float  # judged by the first and the last


@dataclass(frozen=True, slots=True)
class Range:
    """Entries of a shard's log to be read: `start` and `end` as XRANGE takes them."""

    shard: int
    start: str
    end: str
    entries: int
    counted: bool = False  # whether `entries` is exact, so that what is missing can be told
    undone_to: str = ""  # the newest entry that was read before the log went back in time to `start`


def extents(store: Store) -> dict[int, Extent]:
    """How far every shard's log goes now."""
    return {shard: extent(store, shard) for shard in range(store.place.shards)}


def extent(store: Store, shard: int) -> Extent:
    """How far a shard's log goes now."""
    return _extent(store.server_of(shard), store.key(shard, "events"))


def _extent(server: Client, key: str) -> Extent:
    try:
        flat = server.execute_command("XINFO STREAM", key)
    except ResponseError as error:
        if "no such key" not in str(error):
            raise
        return Extent(None, Mark(NOTHING, 0), 0, 1)
    info: dict[bytes, Any] = dict(zip(flat[::2], flat[1::2], strict=True))
    added = info[b"entries-added"]
    removed = added - info[b"length"]
    ends = [entry for entry in (info[b"first-entry"], info[b"last-entry"]) if entry]
    last_id = info[b"last-generated-id"]
    return Extent(
        Mark(ends[0][0].decode(), removed + 1) if ends else None,
        Mark(last_id.decode(), added, digest(ends[-1][1]) if ends and ends[-1][0] == last_id else ""),
        removed,
        sum(parsing.count(entry[1]) for entry in ends) / max(1, len(ends)),
    )


def read(store: Store, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
    """The events of these ranges. Where counted entries are missing, a row of kind `lost` says how many; where a log
    has gone back in time, one of kind `undone` says from where and to where."""
    for wanted in ranges:
        if wanted.undone_to:
            yield parsing.undone(wanted.shard, wanted.start.removeprefix("("), wanted.undone_to)
        yield from _read_range(store, wanted)


def _read_range(store: Store, wanted: Range) -> Iterator[pa.RecordBatch]:
    first, last, count = "", "", 0
    for entries in _gathered(_pages(store.server_of(wanted.shard), store.key(wanted.shard, "events"), wanted)):
        first, last, count = first or entries[0][0].decode(), entries[-1][0].decode(), count + len(entries)
        yield parsing.parse(wanted.shard, entries)
    missing = wanted.entries - count if wanted.counted else 0
    if missing < 0 and last == wanted.end:
        raise StoreError(f"shard {wanted.shard} has {count} entries up to {last} and had {wanted.entries}: wiped")
    if missing > 0:
        # Entries are trimmed from the beginning. If the end is not there, the log has gone back in time meanwhile: what
        # stands at the end is undone with it.
        yield parsing.lost(wanted.shard, first if last == wanted.end else wanted.end, missing)


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
