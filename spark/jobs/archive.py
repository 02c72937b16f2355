"""Archive: every event into Parquet by day, exactly once, as a running stream or up to now."""

import argparse
import json
import shutil
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.archive import folders
from spark.archive.compaction import compact
from spark.archive.undoing import undo
from spark.archive.writer import Written, writer
from spark.errors import BadInput, check_output, local_folder
from spark.session import spark_session
from spark.sources.store import Place, Store, locate, options_from_environ

TRIGGER_EVERY = "10 seconds"
POLL_S = 0.2


class Archive:
    """A folder of archived events.

    `events/dt=…/batch=…` has complete batches only: a batch is written elsewhere and moved there day by day, each day
    atomically. `_checkpoint` is Spark's; `_writing` and `_compacting` have unfinished work.
    """

    def __init__(self, place: Place, folder: Path) -> None:
        self.folder = folder.absolute()
        self.checkpoint = self.folder / "_checkpoint"
        self.events = 0  # written by this process
        self.lost = 0
        self.undone = 0
        self._place = place
        self._newest_day = ""

    def open(self) -> None:
        """Clears away what an earlier run did not finish. Raises BadInput if it cannot be continued."""
        if folders.names(self.folder / "events") and not folders.names(self.checkpoint / "offsets"):
            raise BadInput(f"{self.folder} has events but no checkpoint, so it cannot be continued; use another folder")
        for unfinished in ("_writing", "_compacting"):
            shutil.rmtree(self.folder / unfinished, ignore_errors=True)

    def write(self, ranges: DataFrame, batch: int) -> None:
        """Adds the events of a batch. Only files that a task has reported count: another may be of an attempt that
        failed, or still runs somewhere. What the store has lost since it was archived is marked first."""
        written = self.folder / "_writing" / f"batch={batch}"
        written.mkdir(parents=True)
        self._undo(ranges, batch, written)
        by_day: dict[str, list[Written]] = defaultdict(list)
        for file in ranges.rdd.mapPartitions(writer(self._place, str(written))).collect():
            by_day[file.day].append(file)
        for day, files in sorted(by_day.items()):
            self._add(day, batch, written / day, files)
        shutil.rmtree(written)

    def _undo(self, ranges: DataFrame, batch: int, beside: Path) -> None:
        kept = {row.shard: row.start.removeprefix("(") for row in ranges.collect() if row.undone_to}
        if kept and self.days():
            self.undone += undo(self.folder, batch, kept, beside)

    def _add(self, day: str, batch: int, ready: Path, files: list[Written]) -> None:
        """A day of a batch that is here already, from a run that died before it could commit, is not touched: what is
        read again may be less, if the log was trimmed meanwhile."""
        self.events += sum(file.events for file in files)
        self.lost += sum(file.lost for file in files)
        target = self.folder / "events" / f"dt={day}" / f"batch={batch}"
        if target.exists():
            return
        ready.mkdir()
        for number, file in enumerate(files):
            Path(file.path).rename(ready / f"part-{number:05}.parquet")
        folders.move(ready, target)

    def compact_and_write(self, ranges: DataFrame, batch: int) -> None:
        """A batch of a running stream. When a new day has begun, the days before it are compacted first: here every
        earlier batch is committed, and no other is being written."""
        if (newest := max(self.days(), default="")) != self._newest_day:
            self._newest_day = newest
            self.compact(below=batch)
        self.write(ranges, batch)

    def compact(self, below: int | None = None) -> None:
        """Joins the batches of every day but the newest, of those that are committed."""
        for day in self.days()[:-1]:
            compact(self.folder, day, below)

    def days(self) -> list[str]:
        return [name for name in folders.names(self.folder / "events") if name.startswith("dt=")]


class Positions:
    """Writes the archived position to the store after each commit. The relay keeps later events longer."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._told = -1

    def tell(self, query: StreamingQuery) -> None:
        """Writes the position of the last batch. Spark reports a batch only after its commit."""
        progress = query.lastProgress
        if progress is not None and progress.batchId > self._told and progress.sources[0].endOffset:
            self._write(json.loads(progress.sources[0].endOffset))
            self._told = progress.batchId

    def _write(self, offset: dict[str, Any]) -> None:
        with Store(self._place) as store:
            for shard, mark in offset["shards"].items():
                store.server_of(int(shard)).set(store.key(int(shard), "archived"), mark["id"])


def say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def run(
    spark: SparkSession, options: dict[str, str], folder: Path, once: bool, stopping: threading.Event | None = None
) -> Archive:
    """Archives until it is to stop, or once up to what is there now."""
    place = locate(options)
    archive, positions = Archive(place, folder), Positions(place)
    archive.open()
    stopping = stopping or threading.Event()
    query = _start(spark, options, archive, once)
    try:
        while query.isActive and not stopping.wait(POLL_S):
            positions.tell(query)
    finally:
        query.stop()
    positions.tell(query)
    query.awaitTermination()  # raises what has ended it, if anything has
    if once and not stopping.is_set():
        archive.compact()
    return archive


def _start(spark: SparkSession, options: dict[str, str], archive: Archive, once: bool) -> StreamingQuery:
    source = spark.readStream.format("relay_event_ranges").options(**options, archive=str(archive.folder))
    ranges = source.option("tasks", spark.sparkContext.defaultParallelism).load()
    stream = ranges.writeStream.option("checkpointLocation", str(archive.checkpoint))
    if once:
        return stream.foreachBatch(_telling(archive, archive.write)).trigger(availableNow=True).start()
    write = _telling(archive, archive.compact_and_write)
    return stream.foreachBatch(write).trigger(processingTime=TRIGGER_EVERY).start()


def _telling(archive: Archive, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Reports every batch, and what is missing from it."""

    def write_and_tell(ranges: DataFrame, batch: int) -> None:
        events, lost, undone = archive.events, archive.lost, archive.undone
        write(ranges, batch)
        say(f"batch {batch}: {archive.events - events} events")
        if archive.lost > lost:
            say(f"batch {batch}: {archive.lost - lost} entries were trimmed before they could be archived")
        if archive.undone > undone:
            say(f"batch {batch}: the store went back in time: {archive.undone - undone} archived events are undone")

    return write_and_tell


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(prog="relay spark archive", description=__doc__)
    own.add_argument("--out", required=True, type=local_folder, help="the folder of the archive")
    own.add_argument("--once", action="store_true", help="archive what is there now, and end")
    return own


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    check_output(arguments.out)
    spark = spark_session("archive")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # after Spark has set its own, which would break off a call
        signal.signal(number, lambda *_: stopping.set())
    try:
        archive = run(spark, options_from_environ(), arguments.out, arguments.once, stopping)
    finally:
        spark.stop()
    say(f"archived {archive.events} events in {arguments.out}; {archive.lost} entries are missing")
    return 0
