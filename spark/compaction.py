"""Compaction: the batches of a day that is over become one, in one step that no reader can see half of."""

from pyspark.sql import SparkSession

from spark.folders import Folders, can_exchange, exchange
from spark.schemas import EVENTS
from spark.versions import versioned

FILE_BYTES = 128 * 2**20


def compact(spark: SparkSession, folders: Folders, archive: str, day: str, below: int | None) -> bool:
    """Joins the batches of a day, if there are several, all of them numbered below, and folders can be exchanged here.

    The joined day is written beside and changes places with the old one: a reader lists the one or the other. One that
    listed before and opens after is told that a file is gone, and must list again.
    """
    there = f"{archive}/events/{day}"
    batches = [int(name.removeprefix("batch=")) for name in folders.names(there)]
    if len(batches) < 2 or (below is not None and max(batches) >= below) or not (folders.is_local and can_exchange()):
        return False
    beside = f"{archive}/_compacting/{day}"
    files = folders.size_bytes(there) // FILE_BYTES + 1
    events = spark.read.schema(EVENTS).parquet(there).coalesce(files)
    versioned(events).write.mode("overwrite").parquet(f"{beside}/batch={max(batches)}")
    exchange(local(beside), local(there))
    folders.remove(beside)
    return True


def local(path: str) -> str:
    return path.removeprefix("file://")
