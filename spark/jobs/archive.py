"""Archive: every event into Parquet by day, exactly once, as a running stream or up to now."""

import argparse
import json
import sys
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark.compaction import compact
from spark.folders import Folders
from spark.parsing import LOST
from spark.session import spark_session
from spark.store import Place, Store, StoreError, locate, options_from_environ
from spark.versions import versioned

TRIGGER_EVERY = "10 seconds"
POLL_S = 2


class Archive:
    """A folder of archived events.

    `events/dt=…/batch=…` holds whole batches only: a batch is written beside it and moved there day by day, each day in
    one step. `_checkpoint` is Spark's; `_writing` and `_compacting` hold what is not finished.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder.rstrip("/")
        self.checkpoint = f"{self.folder}/_checkpoint"
        self._spark = spark
        self._folders = Folders(spark, self.folder)
        self._newest_day = ""

    def open(self) -> None:
        """Clears away what an earlier run did not finish. Raises StoreError if it cannot be continued."""
        if self._folders.names(f"{self.folder}/events") and not self._folders.names(f"{self.checkpoint}/offsets"):
            raise StoreError(
                f"{self.folder} has events but no checkpoint: their batches would be replaced; use another"
            )
        for unfinished in ("_writing", "_compacting"):
            self._folders.remove(f"{self.folder}/{unfinished}")

    def write(self, events: DataFrame, batch: int) -> None:
        """Adds a batch. One that is here already, from a run that died before it could say so, is not touched: what is
        read again may be less, if the store was trimmed meanwhile."""
        written = f"{self.folder}/_writing/batch={batch}"
        day = F.timestamp_millis(F.col("stream_ms")).cast("date")
        versioned(events).withColumn("dt", day).write.mode("overwrite").partitionBy("dt").parquet(written)
        for name in self._folders.names(written):
            target = f"{self.folder}/events/{name}/batch={batch}"
            if name.startswith("dt=") and not self._folders.exists(target):
                self._folders.move(f"{written}/{name}", target)
        self._folders.remove(written)

    def compact_and_write(self, events: DataFrame, batch: int) -> None:
        """A batch of a running stream. When a new day has begun, the days before it are compacted first: here every
        earlier batch is committed, and no other is being written."""
        if (newest := max(self.days(), default="")) != self._newest_day:
            self._newest_day = newest
            self.compact(below=batch)
        self.write(events, batch)

    def compact(self, below: int | None = None) -> None:
        """Joins the batches of every day but the newest, of those that are committed."""
        for day in self.days()[:-1]:
            compact(self._spark, self._folders, self.folder, day, below)

    def days(self) -> list[str]:
        return [name for name in self._folders.names(f"{self.folder}/events") if name.startswith("dt=")]


class Positions:
    """Tells the relay, after each commit, up to where events are archived: it keeps those that are not, for a while."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._told = -1
        self.rows = 0
        self.lost = 0

    def tell(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            if progress.batchId > self._told and progress.numInputRows:
                self._count(progress)
                self._write(json.loads(progress.sources[0].endOffset))
                self._told = progress.batchId

    def _count(self, progress: Any) -> None:
        seen = progress.observedMetrics["archived"]
        self.rows += progress.numInputRows
        self.lost += seen.lost or 0
        say(f"batch {progress.batchId}: {progress.numInputRows} events at {progress.processedRowsPerSecond:,.0f}/s")
        if seen.lost:
            say(f"batch {progress.batchId}: {seen.lost} entries were trimmed before they could be archived")

    def _write(self, offset: dict[str, Any]) -> None:
        with Store(self._place) as store:
            for shard, mark in offset["shards"].items():
                store.server_of(int(shard)).set(store.key(int(shard), "archived"), mark["id"])


def say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def observed_events(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """The stream of events, with what is missing from it counted on the way."""
    source = spark.readStream.format("relay_events").option("tasks", spark.sparkContext.defaultParallelism)
    lost = F.when(F.col("kind") == LOST, F.col("reason").cast("bigint"))
    return source.options(**options).load().observe("archived", F.sum(lost).alias("lost"))


def run(spark: SparkSession, options: dict[str, str], folder: str, once: bool) -> Positions:
    """Archives until it is stopped, or once up to what is there now."""
    archive, positions = Archive(spark, folder), Positions(locate(options))
    archive.open()
    stream = observed_events(spark, options).writeStream.option("checkpointLocation", archive.checkpoint)
    if once:
        query = stream.foreachBatch(archive.write).trigger(availableNow=True).start()
    else:
        query = stream.foreachBatch(archive.compact_and_write).trigger(processingTime=TRIGGER_EVERY).start()
    try:
        while not query.awaitTermination(POLL_S):
            positions.tell(query)
    finally:
        query.stop()
        positions.tell(query)
    if once:
        archive.compact()
    return positions


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="relay spark archive", description=__doc__)
    parser.add_argument("--out", required=True, help="the folder of the archive")
    parser.add_argument("--once", action="store_true", help="archive what is there now, and end")
    arguments = parser.parse_args(argv)
    spark = spark_session("archive")
    try:
        positions = run(spark, options_from_environ(), arguments.out, arguments.once)
    finally:
        spark.stop()
    say(f"archived {positions.rows} events in {arguments.out}; {positions.lost} entries are missing")
    return 0
