"""An archive job that is killed, with its JVM, at a chosen moment: python -m tests.integration.spark.dying_archive."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, Row

from spark.archive import folders
from spark.archive.writer import EventFile, Written
from spark.jobs import archive
from spark.jobs.archive import Archive
from spark.session import spark_session
from spark.sources import event_log
from spark.sources.event_log import Range
from spark.sources.store import Place, Store

move, write = folders.move, Archive.write


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def half_writer(place: Place, folder: str) -> Callable[[Iterable[Row]], Iterator[Written]]:
    """What a task does in place of writing: it begins, and does not come to the end."""

    def write_half(rows: Iterable[Row]) -> Iterator[Written]:
        with Store(place) as store:
            ranges = [Range(**row.asDict(), counted=True) for row in rows]
            EventFile(Path(folder, "half.parquet")).add(next(event_log.read(store, ranges)))
            time.sleep(60)
        yield from ()

    return write_half


def die_while_writing(there: Archive, ranges: DataFrame, batch: int) -> None:
    archive.writer = half_writer
    threading.Thread(target=die_when_there_is, args=(there.folder / "_writing", "*/half.parquet")).start()
    write(there, ranges, batch)


def die_when_there_is(folder: Path, pattern: str) -> None:
    while not list(folder.glob(pattern)):
        time.sleep(0.01)
    die()


def write_then_die(there: Archive, ranges: DataFrame, batch: int) -> None:
    write(there, ranges, batch)
    die()


def move_then_die(source: Path, target: Path) -> None:
    move(source, target)
    die()


POINTS: dict[str, Callable[[], None]] = {
    "while writing": lambda: setattr(Archive, "write", die_while_writing),
    "between two days": lambda: setattr(folders, "move", move_then_die),
    "before the commit": lambda: setattr(Archive, "write", write_then_die),
}

if __name__ == "__main__":
    options, folder, point = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    POINTS[point]()
    archive.run(spark_session("dying"), options, folder, once=True)
