"""The data source `relay_event_ranges`: a stream of ranges to read in the event logs, not of events."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark.sources.events import EventsStreamReader, Lot, RelayEvents

# A row is a part of one shard's log; a partition holds what one task is to read.
RANGES = StructType(
    [
        StructField("shard", IntegerType(), False),
        StructField("start", StringType(), False),
        StructField("end", StringType(), False),
        StructField("entries", LongType(), False),
    ]
)
_RANGES = to_arrow_schema(RANGES)


class RelayEventRanges(RelayEvents):
    """Options and offsets are those of `relay_events`."""

    @classmethod
    def name(cls) -> str:
        return "relay_event_ranges"

    def schema(self) -> StructType:
        return RANGES

    def streamReader(self, schema: StructType) -> "RangesStreamReader":  # noqa: ARG002, N802
        return RangesStreamReader(*self.stream_options())


class RangesStreamReader(EventsStreamReader):
    """Plans as the stream of events does."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Lot)
        rows = [{name: getattr(part, name) for name in RANGES.names} for part in partition.ranges]
        yield pa.RecordBatch.from_pylist(rows, schema=_RANGES)
