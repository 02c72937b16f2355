"""Compaction: merges the batches of a finished day into one, atomically for readers."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq

from spark.archive import folders
from spark.archive.writer import EventFile

READ_ROWS = 50_000


def compact(archive: Path, day: str, below: int | None) -> bool:
    """Joins the batches of a day, if there are several, all of them numbered below, and folders can be exchanged here.

    The joined day is written beside and changes places with the old one: a reader lists the one or the other. One that
    listed before and opens after is told that a file is gone, and must list again.
    """
    folder, beside = archive / "events" / day, archive / "_compacting" / day
    batches = sorted(int(name.removeprefix("batch=")) for name in folders.names(folder))
    if len(batches) < 2 or (below is not None and batches[-1] >= below) or not folders.can_exchange():
        return False
    joined = beside / f"batch={batches[-1]}"
    joined.mkdir(parents=True)
    file = EventFile(joined / "part-00000.parquet")
    for batch in batches:
        for part in sorted((folder / f"batch={batch}").glob("*.parquet")):
            for rows in pq.ParquetFile(part).iter_batches(READ_ROWS):
                file.add(rows)
    file.close()
    folders.exchange(beside, folder)
    shutil.rmtree(beside)
    return True
