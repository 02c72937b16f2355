"""The data source `relay_mailboxes`: every waiting or dead message, with its state and content."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from redis.exceptions import ResponseError

from spark.schemas import MAILBOXES
from spark.sources.entries import dead_letter, message
from spark.sources.events import number
from spark.sources.store import Client, Place, Store, locate

log = logging.getLogger(__name__)

GROUP = "agent"
DEAD = "dead:"  # how the names of dead-letter boxes begin
FIRST_PAGE = 10
MOST_PAGE = 500
PAGE_BYTES = 1_000_000  # what one XRANGE asks for, about
BATCH_BYTES = 4_000_000
ADDRESSES_AT_ONCE = 1_000
SCHEMA = to_arrow_schema(MAILBOXES)

Row = dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """A shard to read, and the agents that have messages in it."""

    number: int
    addresses: list[str]


class Shards(InputPartition):
    """What one task reads."""

    def __init__(self, shards: list[Shard]) -> None:
        super().__init__(shards)
        self.shards = shards


class RelayMailboxes(DataSource):
    """Options: `url`; `prefix` (default: relay); `shards` (default: from the store); `tasks` (default: the number of
    cores).

    The boxes are read while the relay works. Each page is consistent. A message that dies or is revived meanwhile may
    be in both boxes, never in none. The messages of one lane come in order.
    """

    @classmethod
    def name(cls) -> str:
        return "relay_mailboxes"

    def schema(self) -> StructType:
        return MAILBOXES

    def reader(self, schema: StructType) -> "MailboxesReader":  # noqa: ARG002
        return MailboxesReader(locate(self.options), number(self.options, "tasks", os.cpu_count() or 1))


class MailboxesReader(DataSourceReader):
    def __init__(self, place: Place, tasks: int) -> None:
        self._place = place
        self._tasks = tasks

    def partitions(self) -> Sequence[Shards]:
        """All boxes of an address are in one partition. There must be at least one, even if it is empty."""
        with Store(self._place) as store:
            shards = [Shard(shard, addresses) for shard, addresses in _addresses(store).items() if addresses]
        return [Shards(shards[n :: self._tasks]) for n in range(max(1, min(self._tasks, len(shards))))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Shards)
        with Store(self._place) as store:
            rows = (row for shard in partition.shards for row in _shard_rows(store, shard))
            yield from _batches(rows)


def _batches(rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    some: list[Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row["body"])
        if size >= BATCH_BYTES or len(some) >= 10 * MOST_PAGE:
            yield _batch(some)
            some, size = [], 0
    if some:
        yield _batch(some)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    """A number that no column can hold is not a message's either."""
    try:
        return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    except (OverflowError, pa.ArrowException):
        return pa.RecordBatch.from_pylist([row for row in rows if _fits(row)], schema=SCHEMA)


def _fits(row: Row) -> bool:
    try:
        pa.RecordBatch.from_pylist([row], schema=SCHEMA)
    except (OverflowError, pa.ArrowException):
        log.warning("left out: entry %s of %s/%s cannot be read", row["entry"], row["tenant"], row["to"])
        return False
    return True


def _addresses(store: Store) -> dict[int, list[str]]:
    """Agents with messages, by shard. Those with mail are read first, so a message that dies later is still found.

    Only SCAN finds all dead-letter boxes: some belong to agents that never registered and have no mail.
    """
    by_shard: dict[int, set[str]] = {}
    for shard in range(store.place.shards):
        members = store.server_of(shard).zscan_iter(store.key(shard, "waiting"), count=ADDRESSES_AT_ONCE)
        by_shard[shard] = {member.decode() for member, _ in members}
    for shard, name in store.keys_like(DEAD):
        by_shard[shard].add(name.removeprefix(DEAD))
    return {shard: sorted(addresses) for shard, addresses in by_shard.items()}


def _shard_rows(store: Store, shard: Shard) -> Iterator[Row]:
    """Dead letters, then the mailbox, then who has died meanwhile: whichever way a message goes, it is met."""
    server = store.server_of(shard.number)
    for address in shard.addresses:
        dead, start = store.key(shard.number, DEAD + address), "-"
        for entry, fields in _pages(server, dead, start):
            start = f"({entry}"
            yield from _unless_unreadable(address, entry, partial(dead_letter, shard.number, fields))
        yield from _mailbox_rows(store, server, shard.number, address)
        for entry, fields in _pages(server, dead, start):
            yield from _unless_unreadable(address, entry, partial(dead_letter, shard.number, fields))


def _unless_unreadable(address: str, entry: str, read: Callable[[], Row]) -> Iterator[Row]:
    """One row. What is no message is named and left out, so that the others are not lost over it."""
    try:
        row = read()
        is_readable = address == f"{row['tenant']}/{row['to']}"
    except (ValueError, KeyError):
        is_readable = False
    if is_readable:
        yield row
    else:
        log.warning("left out: entry %s of %s cannot be read", entry, address)


def _mailbox_rows(store: Store, server: Client, shard: int, address: str) -> Iterator[Row]:
    lanes = server.hget(store.key(shard, "lanes"), address) or b""
    for lane in sorted(lanes.decode() + "0", reverse=True):
        key = store.key(shard, f"box:{address}" + (f":p{lane}" if lane != "0" else ""))
        for entry, fields, pending in _lane(server, key):
            yield from _unless_unreadable(address, entry, partial(message, shard, entry, int(lane), fields, pending))


def _lane(server: Client, key: str) -> Iterator[tuple[str, list[bytes], Any]]:
    """Entries with their rows of the pending list, both of one moment."""
    start, count = "-", FIRST_PAGE
    while True:
        transaction = server.pipeline(transaction=True)
        transaction.execute_command("XRANGE", key, start, "+", "COUNT", count)
        transaction.execute_command("XPENDING", key, GROUP, start, "+", count)
        page, pending = transaction.execute(raise_on_error=False)
        if isinstance(page, Exception):
            raise page
        holders = {row[0]: row for row in _unless_no_group(pending)}
        for entry, fields in page:
            yield entry.decode(), fields, holders.get(entry)
        if len(page) < count:
            return
        start, count = f"({page[-1][0].decode()}", _next_count(page)


def _unless_no_group(pending: Any) -> list[Any]:
    """A mailbox that nobody has taken from yet has no group."""
    if isinstance(pending, ResponseError) and "NOGROUP" in str(pending):
        return []
    if isinstance(pending, Exception):
        raise pending
    return list(pending)


def _pages(server: Client, key: str, start: str) -> Iterator[tuple[str, list[bytes]]]:
    count = FIRST_PAGE
    while page := server.execute_command("XRANGE", key, start, "+", "COUNT", count):
        for entry, fields in page:
            yield entry.decode(), fields
        if len(page) < count:
            return
        start, count = f"({page[-1][0].decode()}", _next_count(page)


def _next_count(page: list[Any]) -> int:
    size = sum(len(value) for _, fields in page for value in fields)
    return max(1, min(MOST_PAGE, PAGE_BYTES * len(page) // size))
