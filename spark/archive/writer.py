"""Writes files of events in the tasks that read them, so that no event passes through the JVM."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Row

from spark.schemas import EVENT_SCHEMA_VERSION
from spark.sources import event_log
from spark.sources.archived import day_of
from spark.sources.event_log import Range
from spark.sources.parsing import LOST, SCHEMA
from spark.sources.store import Place, Store

DAY_MS = 86_400_000
ROW_GROUP_ROWS = 200_000
FILE_SCHEMA = SCHEMA.with_metadata({"relay_events": EVENT_SCHEMA_VERSION})


@dataclass(frozen=True)
class Written:
    """A file that a task has finished."""

    day: str
    path: str
    events: int
    lost: int


class EventFile:
    """A Parquet file of events, in large row groups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = 0
        self.lost = 0
        self._writer = pq.ParquetWriter(path, FILE_SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.events += len(batch)
        self.lost += _lost(batch)
        self._waiting.append(batch)
        self._waiting_rows += len(batch)
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting, FILE_SCHEMA), ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0

    def close(self) -> None:
        if self._waiting:
            self._write()
        self._writer.close()


def writer(place: Place, folder: str) -> Callable[[Iterable[Row]], Iterator[Written]]:
    """The work of a task on its ranges: one file per day, under a name that no other attempt has."""

    def write(rows: Iterable[Row]) -> Iterator[Written]:
        files: dict[int, EventFile] = {}
        with Store(place) as store:
            for batch in event_log.read(store, [Range(**row.asDict(), counted=True) for row in rows]):
                for day, events in _by_day(batch):
                    if day not in files:
                        files[day] = EventFile(Path(folder, f"{uuid.uuid4()}.parquet"))
                    files[day].add(events)
        for day, file in files.items():
            file.close()
            yield Written(day_of(day * DAY_MS), str(file.path), file.events, file.lost)

    return write


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Almost always all of a batch is of one day."""
    times = batch.column("stream_ms")
    bounds = pc.min_max(times).as_py()
    first, last = bounds["min"] // DAY_MS, bounds["max"] // DAY_MS
    if first == last:
        yield first, batch
        return
    days = pc.divide(times, DAY_MS)
    for day in pc.unique(days).to_pylist():
        yield day, batch.filter(pc.equal(days, day))


def _lost(batch: pa.RecordBatch) -> int:
    """How many entries a batch says are missing; such a row is in a batch of its own."""
    if len(batch) > 1 or batch.column("kind")[0].as_py() != LOST:
        return 0
    return int(batch.column("reason")[0].as_py())
