"""What the audit reads from the live store: ends after the archive's position, and stuck outbox entries."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark.sources import event_log
from spark.sources.event_log import Range
from spark.sources.store import Store
from spark.transforms.lives import ENDS, POSITION_OF_MS

PAGE = 1_000
RECEIPT_LATE_MS = 60_000  # what has been in an outbox for longer than this does not arrive by itself

End = tuple[str, str, str, str]  # tenant, to, from, entry
Told = tuple[str, str, str]  # id, to, what the receipt says
Late = tuple[str, str, str, str, str]  # tenant, to, from, id, evidence


@dataclass(frozen=True, slots=True)
class Tail:
    """A shard's log after a position."""

    ends: list[End]
    is_whole: bool  # nothing between the position and the log's beginning was trimmed


def now_ms(store: Store) -> int:
    """By the server's clock, which the handles of entries follow."""
    seconds, microseconds = store.server_of(0).time()
    return int(seconds) * 1_000 + int(microseconds) // 1_000


def tail(store: Store, shard: int, after: int) -> Tail:
    """The ends in a shard's log behind a position that has been archived."""
    ms, n = divmod(after, POSITION_OF_MS)
    first = next(_entries(store, shard, "events", "-"), None)
    batches = event_log.read(store, [Range(shard, f"({ms}-{n}", "+", 0)])
    ends = [end for batch in batches for end in _ends(batch)]
    return Tail(ends, first is not None and _place(first[0]) <= (ms, n))


def late_receipts(store: Store) -> Iterator[Late]:
    """Overdue outbox entries by message: receipts, and replies without their payload."""
    until_ms = now_ms(store) - RECEIPT_LATE_MS
    for shard in range(store.place.shards):
        for entry, fields in _entries(store, shard, "outbox", "-", str(until_ms)):
            for name, value in zip(fields[::2], fields[1::2], strict=True):
                yield from _late(name.decode(), value.decode(), f"{store.key(shard, 'outbox')} {entry}")


def _entries(store: Store, shard: int, name: str, start: str, end: str = "+") -> Iterator[tuple[str, list[bytes]]]:
    server, key = store.server_of(shard), store.key(shard, name)
    while rows := server.execute_command("XRANGE", key, start, end, "COUNT", PAGE):
        for entry, fields in rows:
            yield entry.decode(), fields
        start = f"({rows[-1][0].decode()}"


def _place(entry: str) -> tuple[int, int]:
    ms, _, n = entry.partition("-")
    return int(ms), int(n)


def _ends(batch: pa.RecordBatch) -> Iterator[End]:
    ended = batch.filter(pc.is_in(batch.column("kind"), pa.array(ENDS)))
    return zip(*(ended.column(name).to_pylist() for name in ("tenant", "to", "from", "entry")), strict=True)


def _late(name: str, value: str, where: str) -> Iterator[Late]:
    if name == "receipts":
        sender, _, receipts = value.split("\t", 2)
        tenant, _, name = sender.partition("/")
        for id, to, told in _told(receipts):
            yield tenant, to, name, id, f"{where}: the receipt ({told}) has not left"
    else:
        requester, address, request_id, *_ = value.split("\t")
        tenant, _, requester_name = requester.partition("/")
        yield tenant, address.partition("/")[2], requester_name, request_id, f"{where}: the {name} has not left"


def _told(receipts: str) -> Iterator[Told]:
    """The time of them all, and a line for each; relay/store/record/receipt_lines.py has the columns."""
    at_ms, *lines = receipts.split("\n")
    for line in lines:
        id, to, _, _, attempt, state, *_ = (line + "\t\t\t\t").split("\t")
        yield id, to, f"{state or 'delivered'} at {at_ms}, attempt {attempt or 1}"
