"""The events of one message in an archive."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relay.cli.operators.archive import events_in
from relay.errors import ConfigurationError
from spark.sources.parsing import SCHEMA


def archived(folder: Path, day: str, *rows: dict[str, Any]) -> None:
    target = folder / "events" / f"dt={day}" / "batch=0"
    target.mkdir(parents=True)
    known = {"shard": 3, "stream_ms": 1, "stream_n": 0, "place": 0, "tenant": "acme", "to": "bob", "from": "alice"}
    pq.write_table(pa.Table.from_pylist([known | row for row in rows], SCHEMA), target / "part-0.parquet")


def test_the_events_of_a_message_are_found_over_days_in_order(tmp_path: Path) -> None:
    archived(tmp_path, "2027-01-16", {"kind": "acked", "at_ms": 9, "id": "m-1", "entry": "5-0", "who": "i.1"})
    archived(
        tmp_path,
        "2027-01-15",
        {"kind": "accepted", "at_ms": 5, "id": "m-1", "entry": "5-0", "bytes": 3},
        {"kind": "accepted", "at_ms": 5, "id": "m-2", "entry": "5-1"},
        {"kind": "accepted", "at_ms": 5, "id": "m-1", "entry": "5-0", "tenant": "beta"},
    )

    found = events_in(tmp_path, "acme", "m-1")

    addresses = {"to": "acme/bob", "from": "acme/alice", "id": "m-1", "entry": "5-0"}
    assert found == [
        {"kind": "accepted", "at_ms": 5, "bytes": 3, **addresses},
        {"kind": "acked", "at_ms": 9, "who": "i.1", **addresses},
    ]


def test_a_folder_that_is_no_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no events"):
        events_in(tmp_path, "acme", "m-1")
