"""Events, mailboxes and archives as the tests of the pipeline need them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.schemas import EVENTS, MAILBOXES

NOON_MS = 1_760_011_200_000  # 2025-10-09 12:00 UTC
HOUR_S, DAY_S = 3_600, 86_400
Row = dict[str, Any]

_NOTHING = dict.fromkeys(EVENTS.names)
_HEAD = {
    "tenant": "acme",
    "to": "bob",
    "from": "alice",
    "id": "m-1",
    "type": "job",
    "thread": "",
    "priority": 0,
    "bytes": 10,
}


def an_event(kind: str, at_s: float = 0, **fields: Any) -> Row:
    """A transition so many seconds after noon; its place in the log follows from its time."""
    at_ms = NOON_MS + round(at_s * 1_000)
    place = {"shard": 0, "stream_ms": at_ms, "stream_n": 0, "place": 1}
    step = {"kind": kind, "at_ms": at_ms, "seq": 1, "attempt": 1, "who": "", "instance": "a1", "reason": ""}
    return _NOTHING | place | _HEAD | step | fields


def a_life(*steps: tuple[str, float], **fields: Any) -> list[Row]:
    """What happens to one entry, each (kind, seconds after noon); it was accepted, or revived, at the first of them."""
    accepted_at = NOON_MS + round(steps[0][1] * 1_000)
    constant = {"entry": f"{accepted_at}-0"} | fields
    rows, taken_at = [], None
    for kind, at_s in steps:
        who = "a1.1" if kind in ("taken", "acked", "nacked", "overdue", "released") else ""
        taken_at = NOON_MS + round(at_s * 1_000) if kind == "taken" else taken_at
        rows.append(an_event(kind, at_s, **({"who": who, "taken_at": taken_at} | constant)))
    return rows


def lean(rows: list[Row]) -> list[Row]:
    """The same as the relay writes it: nothing that an earlier event of the life has, and no first deliveries."""
    told_once = dict.fromkeys(("seq", "type", "thread", "priority", "bytes"))
    return [
        row if row["kind"] in ("accepted", "revived", "duplicate", "refused") else row | told_once
        for row in rows
        if (row["kind"], row["attempt"]) != ("taken", 1)
    ]


def delivered(at_s: float = 0, wait_s: float = 1, handle_s: float = 2, **fields: Any) -> list[Row]:
    return a_life(("accepted", at_s), ("taken", at_s + wait_s), ("acked", at_s + wait_s + handle_s), **fields)


def in_mailbox(at_s: float = 0, ttl_s: float = 3_650 * DAY_S, **fields: Any) -> Row:
    """A message that waits, accepted so many seconds after noon."""
    accepted_at = NOON_MS + round(at_s * 1_000)
    told = {"accepted_at": accepted_at, "expires_at": accepted_at + round(ttl_s * 1_000), "entry": f"{accepted_at}-0"}
    state = {"box": "mailbox", "state": "waiting", "attempt": 0, "seq": 1, "shard": 0, "body": ""}
    numbers = dict.fromkeys(("not_before", "max_attempts", "ack_timeout_ms", "receipt", "request"), 0)
    return dict.fromkeys(MAILBOXES.names) | _HEAD | state | numbers | told | fields


def events_frame(spark: SparkSession, *rows: list[Row] | Row) -> DataFrame:
    return spark.createDataFrame(_table(EVENTS, _flat(rows)), EVENTS)


def mailboxes_frame(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(_table(MAILBOXES, list(rows)), MAILBOXES)


def write_archive(folder: Path, *rows: list[Row] | Row, dt: str = "2025-10-09", batch: int = 0) -> Path:
    """Adds a batch to an archive, in which what is empty is null."""
    archived = [{name: None if value == "" else value for name, value in row.items()} for row in lean(_flat(rows))]
    return _write(folder, f"events/dt={dt}/batch={batch}", _table(EVENTS, archived))


def write_dump(folder: Path, *rows: Row) -> Path:
    """A dump of mailboxes, written now."""
    return _write(folder, "mailboxes", _table(MAILBOXES, list(rows)))


def _write(folder: Path, place: str, table: pa.Table) -> Path:
    (folder / place).mkdir(parents=True)
    pq.write_table(table, folder / place / "part-00000.parquet")
    return folder


def _flat(rows: tuple[list[Row] | Row, ...]) -> list[Row]:
    return [row for some in rows for row in (some if isinstance(some, list) else [some])]


def _table(schema: StructType, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, to_arrow_schema(schema))
