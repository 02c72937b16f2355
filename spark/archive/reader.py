"""Reads the archive: events by day, and dumps of mailboxes."""

from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark.errors import BadInput
from spark.period import Period
from spark.schemas import EVENTS, MAILBOXES

_PARTITIONS = [StructField("dt", StringType()), StructField("batch", LongType())]


def read_events(spark: SparkSession, archive: Path, period: Period, to_the_end: bool = False) -> DataFrame:
    """The days of an archive that can have events of the period; with `to_the_end` also all days after it.

    The list of files is fixed now: what is archived later is not seen, however often the result is used. Texts that an
    event does not have are empty, so that they compare and join.
    Raises BadInput if there is no archive.
    """
    folder = archive / "events"
    try:
        events = spark.read.schema(StructType(EVENTS.fields + _PARTITIONS)).parquet(str(folder))
    except AnalysisException:
        raise BadInput(f"--archive {archive}: there is no folder {folder}; run the archive job first") from None
    of_these_days = F.col("dt") >= period.first_dt
    if not to_the_end:
        of_these_days &= F.col("dt") <= period.last_dt
    return events.where(of_these_days).drop("dt", "batch").fillna("")


def read_dump(spark: SparkSession, dump: Path) -> tuple[DataFrame, int, int]:
    """A dump of mailboxes, and when its first and its last file were written (ms). Raises BadInput if there is none."""
    folder = dump / "mailboxes"
    try:
        mailboxes = spark.read.schema(MAILBOXES).parquet(str(folder))
        files = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet").load(str(folder))
    except AnalysisException:
        raise BadInput(f"--mailboxes {dump}: there is no folder {folder}; dump the mailboxes first") from None
    written = F.unix_millis("modificationTime")
    times = files.agg(F.min(written).alias("first"), F.max(written).alias("last")).first()
    if times is None or times["first"] is None:
        raise BadInput(f"--mailboxes {dump}: there are no Parquet files in {folder}")
    return mailboxes, times["first"], times["last"]
