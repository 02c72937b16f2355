"""The data source `relay_events`: the event logs of all shards, as a table or as a stream."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark.schemas import EVENTS
from spark.sources import event_log, history
from spark.sources.event_log import NOTHING, Extent, Mark, Range
from spark.sources.filters import Pushed
from spark.sources.packing import packed, whole_logs
from spark.sources.store import Place, Store, StoreError, locate

MAX_ROWS_PER_BATCH = 1_000_000


class Lot(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class RelayEvents(DataSource):
    """Options: `url`; `prefix` (default: relay); `shards` (default: from the store); `tasks` (default: the number of
    cores); `max_rows_per_batch` of a stream (approximate)."""

    @classmethod
    def name(cls) -> str:
        return "relay_events"

    def schema(self) -> StructType:
        return EVENTS

    def reader(self, schema: StructType) -> "EventsReader":  # noqa: ARG002
        return EventsReader(locate(self.options), number(self.options, "tasks", os.cpu_count() or 1))

    def streamReader(self, schema: StructType) -> "EventsStreamReader":  # noqa: ARG002, N802
        return EventsStreamReader(*self.stream_options())

    def stream_options(self) -> tuple[Place, int, int]:
        tasks = number(self.options, "tasks", os.cpu_count() or 1)
        return locate(self.options), tasks, number(self.options, "max_rows_per_batch", MAX_ROWS_PER_BATCH)


def number(options: Any, name: str, default: int) -> int:
    """An option that is a whole number from 1 on. Raises StoreError."""
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise StoreError(f"the option `{name}` must be a number from 1 on, not {text!r}")
    return int(text)


class EventsReader(DataSourceReader):
    """The content of the logs at planning time."""

    def __init__(self, place: Place, tasks: int) -> None:
        self._place = place
        self._tasks = tasks
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._pushed, others = Pushed.of(filters)
        return others

    def partitions(self) -> Sequence[Lot]:
        """There must be at least one, even if it is empty."""
        with Store(self._place) as store:
            ranges = whole_logs(event_log.extents(store), self._tasks, self._pushed.since_ms, self._pushed.until_ms)
        return [Lot(ranges) for ranges in packed(ranges, self._tasks) or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Lot)
        with Store(self._place) as store:
            yield from map(self._pushed.kept, event_log.read(store, partition.ranges))


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A batch takes whole logs, from the last position to the end. Only the end of a log shows how many entries came
    before it, and so how many are missing if some were trimmed."""

    def __init__(self, place: Place, tasks: int, max_rows: int) -> None:
        self._place = place
        self._tasks = tasks
        self._max_rows = max_rows
        self._target: dict[int, Extent] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before the first entry that is still there."""
        return self._offset({shard: Mark(NOTHING, log.removed) for shard, log in self._extents().items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._extents()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises StoreError if the store was wiped or has gone back in time."""
        marks = self._marks(start)
        self._check(start["epoch"], marks)
        return self._offset(self._advanced(marks, self._target or self._extents(), limit))

    def _advanced(self, marks: dict[int, Mark], extents: dict[int, Extent], limit: ReadLimit) -> dict[int, Mark]:
        """The logs that are most behind go first, until there are rows enough."""
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else float("inf")
        ends = dict(marks)
        for shard in sorted(marks, key=lambda shard: marks[shard].order):
            rows = (extents[shard].last.nth - marks[shard].nth) * extents[shard].events_per_entry
            if rows and room > 0:
                ends[shard] = extents[shard].last
                room -= rows
        return ends

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset({shard: log.last for shard, log in self._extents().items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Lot]:
        self._check(start["epoch"], self._marks(end))
        return self._lots(start, end)

    def _lots(self, start: dict[str, Any], end: dict[str, Any]) -> list[Lot]:
        begin, until = self._marks(start), self._marks(end)
        ranges = [_range(shard, begin[shard], mark) for shard, mark in until.items() if mark != begin[shard]]
        return [Lot(ranges) for ranges in packed(ranges, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Lot)
        with Store(self._place) as store:
            yield from event_log.read(store, partition.ranges)

    def _extents(self) -> dict[int, Extent]:
        with Store(self._place) as store:
            return event_log.extents(store)

    def _check(self, epoch: str, read: dict[int, Mark]) -> None:
        """Raises StoreError if the store has begun another life, or its logs have not what was read of them."""
        with Store(self._place) as store:
            if (now := store.epoch()) != epoch:
                raise another_store(epoch, now)
            for shard, mark in read.items():
                if not history.still_has(store, shard, mark):
                    raise StoreError(
                        f"shard {shard} was read up to {mark.id} (entry {mark.nth}), which it has not: the store was "
                        "wiped, has gone back in time or is another one; what follows needs a new checkpoint"
                    )

    def _offset(self, marks: dict[int, Mark], epoch: str | None = None) -> dict[str, Any]:
        shards = {str(shard): _as_json(marks[shard]) for shard in sorted(marks)}
        return {"epoch": self._place.epoch if epoch is None else epoch, "shards": shards}

    def _marks(self, offset: dict[str, Any]) -> dict[int, Mark]:
        """Raises StoreError if the offset is of a store with another number of shards."""
        if len(offset["shards"]) != self._place.shards:
            raise StoreError(
                f"the checkpoint is of a store with {len(offset['shards'])} shards, this one has {self._place.shards}: "
                "it is another one; what follows needs a new checkpoint"
            )
        return {int(shard): _mark(told) for shard, told in offset["shards"].items()}


def another_store(read: str, now: str) -> StoreError:
    return StoreError(
        f"the store's epoch is {now!r} and was {read!r}: it was wiped or is another one; "
        "what follows needs a new checkpoint"
    )


def _range(shard: int, begin: Mark, end: Mark) -> Range:
    """What a log has between two marks. If it has gone back in time, what was read of it behind that is undone."""
    start = end.fork or begin
    undone_to = begin.id if end.fork and begin.id != NOTHING else ""
    return Range(shard, f"({start.id}", end.id, end.nth - start.nth, counted=True, undone_to=undone_to)


def _as_json(mark: Mark) -> dict[str, Any]:
    told = {"id": mark.id, "nth": mark.nth, "digest": mark.digest}
    return told | {"fork": _as_json(mark.fork)} if mark.fork else told


def _mark(told: dict[str, Any]) -> Mark:
    """Earlier versions told only the first two."""
    fork = told.get("fork")
    return Mark(told["id"], told["nth"], told.get("digest", ""), _mark(fork) if fork else None)
