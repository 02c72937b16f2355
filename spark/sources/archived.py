"""What an archive has of one shard's log."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark.schemas import UNDONE
from spark.sources.event_log import NOTHING, Order, order
from spark.sources.parsing import LOST, SCHEMA

PARTITIONS = ds.partitioning(pa.schema([("dt", pa.string()), ("batch", pa.int64())]), flavor="hive")
_PLACE = ("stream_ms", "stream_n")
_TELLING = ("place", "kind", "at_ms", "instance", "entry", "id")  # by which two entries with one id are told apart

Told = list[tuple[Any, ...]]


def folders(archive: Path) -> list[str]:
    """The days of an archive."""
    names = sorted(path.name for path in (archive / "events").glob("dt=*"))
    return [name.removeprefix("dt=") for name in names]


def files(archive: Path) -> ds.Dataset:
    """The files that an archive has now; `dt` and `batch` are columns."""
    schema = pa.schema([*SCHEMA, ("dt", pa.string()), ("batch", pa.int64())])
    return ds.dataset(archive / "events", schema, format="parquet", partitioning=PARTITIONS)


def is_undone(kind: pa.Array | ds.Expression) -> Any:
    """Whether events are marked as undone, or tell of it."""
    return pc.starts_with(kind, UNDONE)


def day_of(id_ms: int) -> str:
    """The day (UTC) that has the entries of this time."""
    return f"{datetime.fromtimestamp(id_ms // 1_000, UTC):%Y-%m-%d}"


def by_entry(events: pa.Table | pa.RecordBatch) -> dict[Order, Told]:
    """Events under the order of their entry."""
    entries: dict[Order, Told] = {}
    for ms, n, *told in zip(*(events[name].to_pylist() for name in (*_PLACE, *_TELLING)), strict=True):
        entries.setdefault((ms, n), []).append(tuple(told))
    return {place: sorted(told, key=lambda event: event[0]) for place, told in entries.items()}


class ArchivedLog:
    """The events of a shard that were read and are not undone."""

    def __init__(self, archive: Path, shard: int) -> None:
        self._days = folders(archive)
        self._files = files(archive) if self._days else None
        self._of_shard = (ds.field("shard") == shard) & ~is_undone(ds.field("kind"))

    def entries(self, first: Order, last: Order) -> dict[Order, Told]:
        """The entries from one to the other."""
        if self._files is None or first > last:
            return {}
        of_these_days = (ds.field("dt") >= day_of(first[0])) & (ds.field("dt") <= day_of(last[0]))
        at_that_time = (ds.field("stream_ms") >= first[0]) & (ds.field("stream_ms") <= last[0])
        wanted = self._of_shard & of_these_days & at_that_time & (ds.field("place") >= 0)
        return by_entry(self._files.to_table([*_PLACE, *_TELLING], filter=wanted))

    def has(self, id: str) -> bool:
        return bool(id) and order(id) in self.entries(order(id), order(id))

    def before_last(self, count: int) -> str:
        """The id of the newest entry but so many; 0-0 if there are no more."""
        for (ms, n), is_entry, size in self._back():
            if count <= 0 and is_entry:
                return f"{ms}-{n}"
            count -= size
        return NOTHING

    def _back(self) -> Iterator[tuple[Order, bool, int]]:
        """Entries, and gaps with the number of entries that are missing, newest first."""
        for day in reversed(self._days):
            yield from sorted(self._of_day(day), reverse=True)

    def _of_day(self, day: str) -> set[tuple[Order, bool, int]]:
        assert self._files is not None
        rows = self._files.to_table([*_PLACE, "kind", "reason"], filter=self._of_shard & (ds.field("dt") == day))
        told = zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True)
        return {
            ((ms, n), kind != LOST, int(reason) if kind == LOST else 1)  # a gap stands before its entry
            for ms, n, kind, reason in told
        }
