"""Marks archived events that the store does not have any more, because it has gone back in time."""

import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark.archive.writer import EventFile
from spark.schemas import UNDONE
from spark.sources.archived import day_of, files, is_undone
from spark.sources.event_log import order
from spark.sources.parsing import SCHEMA

PREFIX = f"{UNDONE}_"  # what the kind of such an event begins with


def undo(archive: Path, below: int, kept: Mapping[int, str], beside: Path) -> int:
    """Marks what the batches below one have of these shards behind the last entry that was kept. Returns how many
    events that are.

    A file changes atomically, and an event only once: what dies in between can be done again.
    """
    gone = _behind(kept)
    first_day = day_of(min(order(id)[0] for id in kept.values()))
    there = (ds.field("dt") >= first_day) & (ds.field("batch") < below)
    events = 0
    for file in files(archive).get_fragments(filter=there):
        if found := file.count_rows(filter=gone):
            _mark(file, gone, beside / "undone.parquet")
            events += found
    return events


def _behind(kept: Mapping[int, str]) -> ds.Expression:
    """Whether an event is of what these shards have lost, and not yet marked."""
    return reduce(ds.Expression.__or__, (_behind_entry(*one) for one in kept.items())) & ~is_undone(ds.field("kind"))


def _behind_entry(shard: int, id: str) -> ds.Expression:
    ms, n = order(id)
    later = (ds.field("stream_ms") == ms) & (ds.field("stream_n") > n)
    return (ds.field("shard") == shard) & ((ds.field("stream_ms") > ms) | later)


def _mark(file: ds.FileFragment, gone: ds.Expression, beside: Path) -> None:
    """Writes a file anew, in the order that it has."""
    kind = ds.field("kind")
    marked = pc.replace_substring_regex(kind, pattern="^", replacement=PREFIX)
    columns = {name: ds.field(name) for name in SCHEMA.names} | {"kind": pc.if_else(gone, marked, kind)}
    new = EventFile(beside)
    for rows in file.scanner(SCHEMA, columns=columns).to_batches():
        if len(rows):
            new.add(pa.RecordBatch.from_arrays(rows.columns, schema=SCHEMA))
    new.close()
    os.replace(beside, file.path)
