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
from spark.sources import event_log
from spark.sources.event_log import Extent, Mark, Range
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
        return self._offset({shard: Mark("0-0", log.removed) for shard, log in self._extents().items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._extents()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The logs that are most behind go first, until there are rows enough. Raises StoreError after a wipe."""
        marks = self._marks(start)
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else float("inf")
        extents = self._target or self._extents()
        for shard in sorted(marks, key=lambda shard: marks[shard].order):
            extents[shard].check(shard, marks[shard])
            rows = (extents[shard].last.nth - marks[shard].nth) * extents[shard].events_per_entry
            if rows and room > 0:
                marks[shard] = extents[shard].last
                room -= rows
        return self._offset(marks)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset({shard: log.last for shard, log in self._extents().items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Lot]:
        begin, until, extents = self._marks(start), self._marks(end), self._extents()
        for shard, mark in until.items():
            extents[shard].check(shard, mark)
        ranges = [
            Range(shard, f"({begin[shard].id}", mark.id, mark.nth - begin[shard].nth, counted=True)
            for shard, mark in until.items()
            if mark != begin[shard]
        ]
        return [Lot(ranges) for ranges in packed(ranges, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Lot)
        with Store(self._place) as store:
            yield from event_log.read(store, partition.ranges)

    def _extents(self) -> dict[int, Extent]:
        """Raises StoreError if the store has begun another life meanwhile."""
        with Store(self._place) as store:
            if (epoch := store.epoch()) != self._place.epoch:
                raise StoreError(
                    f"the store's epoch is {epoch!r} and was {self._place.epoch!r}: it was wiped; "
                    "what follows needs a new checkpoint"
                )
            return event_log.extents(store)

    def _offset(self, marks: dict[int, Mark]) -> dict[str, Any]:
        shards = {str(shard): {"id": marks[shard].id, "nth": marks[shard].nth} for shard in sorted(marks)}
        return {"epoch": self._place.epoch, "shards": shards}

    def _marks(self, offset: dict[str, Any]) -> dict[int, Mark]:
        """Raises StoreError if the offset is of another life of the store."""
        if offset["epoch"] != self._place.epoch or len(offset["shards"]) != self._place.shards:
            raise StoreError(
                f"the checkpoint is of epoch {offset['epoch']!r} with {len(offset['shards'])} shards, the store of "
                f"{self._place.epoch!r} with {self._place.shards}: it was wiped or is another one; "
                "what follows needs a new checkpoint"
            )
        return {int(shard): Mark(mark["id"], mark["nth"]) for shard, mark in offset["shards"].items()}
