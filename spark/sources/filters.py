"""Filters that the event source applies itself: kind, tenant, and the time of the entry."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

END_OF_TIME_MS = 2**53
_BY_VALUE = ("kind", "tenant")


@dataclass(frozen=True)
class Pushed:
    """The filters on the log; by default none."""

    since_ms: int = 0
    until_ms: int = END_OF_TIME_MS
    wanted: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> "tuple[Pushed, list[Filter]]":
        """The filters taken together, and those that it leaves to Spark."""
        pushed, others = cls(), []
        for wanted in filters:
            narrower = pushed._with(wanted)
            if narrower is None:
                others.append(wanted)
            pushed = narrower or pushed
        return pushed, others

    def _with(self, wanted: Filter) -> "Pushed | None":
        match wanted:
            case EqualTo(attribute=(name,), value=str(value)) if name in _BY_VALUE:
                return replace(self, wanted=(*self.wanted, (name, (value,))))
            case In(attribute=(name,), value=values) if name in _BY_VALUE:
                return replace(self, wanted=(*self.wanted, (name, tuple(values))))
            case EqualTo(attribute=("stream_ms",), value=ms):
                return self._between(ms, ms)
            case GreaterThan(attribute=("stream_ms",), value=ms):
                return self._between(ms + 1, END_OF_TIME_MS)
            case GreaterThanOrEqual(attribute=("stream_ms",), value=ms):
                return self._between(ms, END_OF_TIME_MS)
            case LessThan(attribute=("stream_ms",), value=ms):
                return self._between(0, ms - 1)
            case LessThanOrEqual(attribute=("stream_ms",), value=ms):
                return self._between(0, ms)
            case IsNotNull(attribute=("stream_ms" | "kind",)):
                return self
        return None

    def _between(self, since_ms: int, until_ms: int) -> "Pushed":
        return replace(self, since_ms=max(self.since_ms, since_ms), until_ms=min(self.until_ms, until_ms))

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that are wanted."""
        for name, values in self.wanted:
            batch = batch.filter(pc.is_in(batch.column(name), pa.array(values, pa.string())))
        return batch
