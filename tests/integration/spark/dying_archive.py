"""An archive job that is killed, with its JVM, at a chosen moment: python -m tests.integration.spark.dying_archive."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from glob import glob
from itertools import chain

from pyspark.sql import DataFrame, Row

from spark.folders import Folders
from spark.jobs.archive import Archive, run
from spark.session import spark_session


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def move_once_then_die(folders: Folders, source: str, target: str) -> None:
    move(folders, source, target)
    die()


def write_then_die(archive: Archive, events: DataFrame, batch: int) -> None:
    write(archive, events, batch)
    die()


def die_while_writing(archive: Archive, events: DataFrame, batch: int) -> None:
    """Spark has written some rows of the batch, and waits for more."""
    stuck = events.repartition(1).rdd.mapPartitions(lambda rows: chain(rows, wait_for_more()))
    threading.Thread(target=die_when_there_is, args=(f"{archive.folder}/_writing/**/part-*",)).start()
    write(archive, events.sparkSession.createDataFrame(stuck, events.schema), batch)


def wait_for_more() -> Iterator[Row]:
    time.sleep(60)
    yield from ()


def die_when_there_is(pattern: str) -> None:
    while not glob(pattern, recursive=True):
        time.sleep(0.01)
    die()


move, write = Folders.move, Archive.write
POINTS: dict[str, Callable[[], None]] = {
    "while writing": lambda: setattr(Archive, "write", die_while_writing),
    "between two days": lambda: setattr(Folders, "move", move_once_then_die),
    "before the commit": lambda: setattr(Archive, "write", write_then_die),
}

if __name__ == "__main__":
    options, folder, point = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    POINTS[point]()
    run(spark_session("dying"), options, folder, once=True)
