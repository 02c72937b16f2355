"""The data source `relay_event_ranges`: a stream of ranges to read in the event logs, not of events."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark.sources import event_log, history
from spark.sources.archived import ArchivedLog
from spark.sources.event_log import Extent, Mark
from spark.sources.events import EventsStreamReader, Lot, RelayEvents, another_store
from spark.sources.store import Place, Store

# A row is a part of one shard's log; a partition holds what one task is to read.
RANGES = StructType(
    [
        StructField("shard", IntegerType(), False),
        StructField("start", StringType(), False),
        StructField("end", StringType(), False),
        StructField("entries", LongType(), False),
        StructField("undone_to", StringType(), False),
    ]
)
_RANGES = to_arrow_schema(RANGES)


class RelayEventRanges(RelayEvents):
    """Options and offsets are those of `relay_events`, and `archive`: the folder that has what was read."""

    @classmethod
    def name(cls) -> str:
        return "relay_event_ranges"

    def schema(self) -> StructType:
        return RANGES

    def streamReader(self, schema: StructType) -> "RangesStreamReader":  # noqa: ARG002, N802
        return RangesStreamReader(*self.stream_options(), Path(self.options["archive"]))


class RangesStreamReader(EventsStreamReader):
    """Plans as the stream of events does, and goes on when the store has gone back in time: from the last entry that a
    log shares with the archive. What the archive has behind it is undone."""

    def __init__(self, place: Place, tasks: int, max_rows: int, archive: Path) -> None:
        super().__init__(place, tasks, max_rows)
        self._archive = archive

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises StoreError if this is not the store that was read before."""
        marks = self._marks(start)
        with Store(self._place) as store:
            epoch = store.epoch()
            forks = self._forks(store, marks)
            if epoch != start["epoch"] and not self._is_known(store, marks | forks):
                raise another_store(start["epoch"], epoch)
            logs = self._ends(event_log.extents(store), forks)
        gone_back = {shard: replace(logs[shard].last, fork=fork) for shard, fork in forks.items()}
        ends = self._advanced(marks | forks, logs, limit) | gone_back
        return self._offset(ends, epoch) if ends != marks else start

    def _forks(self, store: Store, marks: dict[int, Mark]) -> dict[int, Mark]:
        """Of each shard that has gone back in time, the last entry that was kept."""
        gone_back = [shard for shard, mark in marks.items() if not history.still_has(store, shard, mark)]
        return {shard: history.fork(store, shard, marks[shard], self._archived(shard)) for shard in gone_back}

    def _ends(self, logs: dict[int, Extent], forks: dict[int, Mark]) -> dict[int, Extent]:
        """A run up to a certain moment goes further where that moment is undone."""
        if self._target is None:
            return logs
        self._target |= {shard: logs[shard] for shard in forks}
        return self._target

    def _is_known(self, store: Store, marks: dict[int, Mark]) -> bool:
        """Whether the store has anything of what was read, or of what it was told of that. Wiped or gone back in time,
        it has a new epoch either way."""
        return any(
            history.has(store, shard, mark) or self._archived(shard).has(store.archived(shard))
            for shard, mark in marks.items()
        )

    def _archived(self, shard: int) -> ArchivedLog:
        return ArchivedLog(self._archive, shard)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Lot]:
        """What of it is not there any more is found out after it."""
        return self._lots(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Lot)
        rows = [{name: getattr(part, name) for name in RANGES.names} for part in partition.ranges]
        yield pa.RecordBatch.from_pylist(rows, schema=_RANGES)
