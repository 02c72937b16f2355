"""The archive job: exactly once through kills, readers never see half of anything, and the relay is told."""

import json
import logging
import signal
import subprocess
import sys
import threading
from glob import glob
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark.__main__ import clear_cause, is_no_interrupt
from spark.__main__ import main as run_job
from spark.archive import folders
from spark.errors import BadInput
from spark.jobs import archive, audit
from spark.jobs.archive import Archive
from spark.schemas import EVENTS
from spark.sources.event_ranges import RANGES
from tests.integration.spark.logs import DAY_MS, NOON_MS, SHARDS, EventLog, an_event

ROOT = Path(__file__).parents[3]


def run(spark: SparkSession, event_log: EventLog, folder: Path, max_rows: int = 1_000_000) -> Archive:
    options = event_log.options | {"max_rows_per_batch": str(max_rows)}
    return archive.run(spark, options, folder, once=True)


def counted(spark: SparkSession, event_log: EventLog, *shards: int) -> DataFrame:
    """What a batch would read: all that these logs have, or all logs if none is named."""
    rows = [(shard, "-", "+", event_log.length(shard), "") for shard in shards or range(SHARDS)]
    return spark.createDataFrame(rows, RANGES)


def files(folder: Path) -> list[str]:
    """What another engine would read."""
    return glob(f"{folder}/events/*/*/*.parquet")


def places(folder: Path) -> list[tuple[int, ...]]:
    """Where each archived row stood in the logs."""
    wanted = "shard, stream_ms, stream_n, place"
    return duckdb.sql(f"select {wanted} from read_parquet('{folder}/events/*/*/*.parquet')").fetchall()


def days(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "events").iterdir())


def test_every_event_is_archived_under_its_day(spark: SparkSession, event_log: EventLog, tmp_path: Path) -> None:
    count = event_log.fill(entries=200, events_per_entry=3, days=2)

    archived = run(spark, event_log, tmp_path)

    assert archived.events == count == len(places(tmp_path)) == len(set(places(tmp_path)))
    assert days(tmp_path) == ["dt=2027-01-15", "dt=2027-01-16", "dt=2027-01-17"]
    misplaced = "make_timestamp(stream_ms * 1000)::date != dt"
    assert duckdb.sql(f"from read_parquet('{tmp_path}/events/*/*/*.parquet') where {misplaced}").fetchall() == []


def test_every_file_says_the_version_of_its_events(spark: SparkSession, event_log: EventLog, tmp_path: Path) -> None:
    event_log.add(0, an_event())

    run(spark, event_log, tmp_path)

    (file,) = files(tmp_path)
    assert pq.read_schema(file).metadata == {b"relay_events": b"e1"}
    assert pq.read_schema(file).names == EVENTS.names


def test_a_second_run_adds_only_what_is_new(spark: SparkSession, event_log: EventLog, tmp_path: Path) -> None:
    event_log.add(0, an_event())
    run(spark, event_log, tmp_path)
    event_log.add(0, an_event(), an_event())

    again = run(spark, event_log, tmp_path)

    assert again.events == 2
    assert len(places(tmp_path)) == len(set(places(tmp_path))) == 3


def test_the_relay_is_told_how_far_the_archive_is(spark: SparkSession, event_log: EventLog, tmp_path: Path) -> None:
    event_log.add(0, an_event())
    last = [event_log.add(0, an_event()), "0-0", event_log.add(2, an_event()), "0-0"]
    before = event_log.archived()

    run(spark, event_log, tmp_path, max_rows=1)

    assert before == [None] * 4
    assert event_log.archived() == last


def test_what_was_trimmed_before_it_was_archived_is_in_the_archive_as_lost(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.add(0, an_event())
    run(spark, event_log, tmp_path)
    for _ in range(5):
        event_log.add(0, an_event())
    event_log.trim_to(0, 2)

    archived = run(spark, event_log, tmp_path)

    assert archived.lost == 3
    found = duckdb.sql(f"select kind, reason from read_parquet('{tmp_path}/events/*/*/*.parquet') order by kind desc")
    assert found.fetchall() == [("lost", "3"), *[("accepted", None)] * 3]


def test_an_audit_does_not_balance_over_what_the_archive_could_not_read(
    spark: SparkSession, event_log: EventLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event_log.add(0, an_event("accepted", entry="1-0"), an_event("acked", entry="1-0"))
    run(spark, event_log, tmp_path)
    for n in range(5):  # in a shard that was empty until now
        event_log.add(1, an_event("accepted", to="eve", id=f"m-{n}", entry=f"{n + 2}-0"))
    event_log.trim_to(1, 2)
    run(spark, event_log, tmp_path)

    code = audit.main(["--archive", str(tmp_path), "--offline", "--json"])

    (gap,) = json.loads(capsys.readouterr().out)["exceptions"]
    assert code == 1
    assert (gap["kind"], gap["evidence"]) == (
        "not_archived",
        f"shard 1: 3 entries before {NOON_MS}-3 were trimmed unread",
    )


def test_an_archive_without_its_checkpoint_is_not_continued(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.add(0, an_event())
    run(spark, event_log, tmp_path)
    (tmp_path / "_checkpoint").rename(tmp_path / "_elsewhere")

    with pytest.raises(BadInput, match="has events but no checkpoint"):
        run(spark, event_log, tmp_path)


def test_a_folder_that_cannot_be_written_is_named_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    for job in ("archive", "dump"):
        assert run_job([job, "--out", str(tmp_path / "file" / "out")]) == 2
        assert capsys.readouterr().err == f"Error: --out {tmp_path}/file/out: Not a directory\n"


def test_an_interrupted_job_shows_no_traceback_of_the_gateway() -> None:
    interrupted, failed = (
        logging.makeLogRecord({"exc_info": (type(error), error, None)}) for error in (KeyboardInterrupt(), OSError())
    )

    assert not is_no_interrupt(interrupted)
    assert is_no_interrupt(failed)


def test_what_a_task_cannot_do_has_a_clear_cause(spark: SparkSession, event_log: EventLog, tmp_path: Path) -> None:
    event_log.redis.xadd(event_log.key(0), {"e3": an_event()})

    with pytest.raises(StreamingQueryException) as failed:
        run(spark, event_log, tmp_path)

    assert clear_cause(failed.value) == "shard 0 has events of version 'e3'; this pipeline reads 'e1'"


def run_until_killed(event_log: EventLog, folder: Path, point: str) -> int:
    program = [sys.executable, "-m", "tests.integration.spark.dying_archive"]
    arguments = [json.dumps(event_log.options), str(folder), point]
    child = subprocess.Popen([*program, *arguments], cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)
    return child.wait(timeout=120)


def test_killed_at_every_point_nothing_is_lost_doubled_or_cut(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    count = event_log.fill(entries=400, events_per_entry=10, days=2)
    ends, seen = [], []

    for point in ("while writing", "between two days", "before the commit"):
        ends.append(run_until_killed(event_log, tmp_path, point))
        seen.append(sum(pq.read_metadata(file).num_rows for file in files(tmp_path)))
    finished = run(spark, event_log, tmp_path)

    assert ends == [-signal.SIGKILL] * 3
    assert 0 == seen[0] < seen[1] < seen[2] == count
    assert finished.events == count == len(places(tmp_path)) == len(set(places(tmp_path)))
    assert not list(tmp_path.glob("_writing/*"))


def test_a_batch_that_is_run_again_does_not_replace_good_rows_with_fewer(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.fill(entries=20)
    there = Archive(event_log.place, tmp_path)
    there.write(counted(spark, event_log), 0)

    event_log.trim_to(0, 1)
    there.write(counted(spark, event_log), 0)

    assert len(places(tmp_path)) == 60
    assert there.lost == 0


def test_a_reader_sees_every_row_once_while_days_are_compacted(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    count = event_log.fill(entries=400, days=2)
    there = Archive(event_log.place, tmp_path)
    for batch in range(SHARDS):
        there.write(counted(spark, event_log, batch), batch)
    before, sums, stop = files(tmp_path), set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            listed = files(tmp_path)
            try:
                sums.add(sum(pq.read_metadata(file).num_rows for file in listed))
            except FileNotFoundError:
                continue  # listed before, opened after: it is told, and lists again

    reader = threading.Thread(target=read)
    reader.start()
    there.compact()
    stop.set()
    reader.join()

    assert sums == {count}
    assert (len(before), len(files(tmp_path))) == (12, 6)
    assert len(set(places(tmp_path))) == count
    assert pq.read_schema(files(tmp_path)[0]).metadata == {b"relay_events": b"e1"}


def test_a_day_with_a_batch_that_is_not_committed_is_not_compacted(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.add(0, an_event())
    event_log.add(0, an_event(), at_ms=NOON_MS + DAY_MS)
    there = Archive(event_log.place, tmp_path)
    for batch in range(3):
        there.write(counted(spark, event_log, 0), batch)

    there.compact(below=2)
    left_alone = len(files(tmp_path))
    there.compact(below=3)

    assert left_alone == 6
    assert len(files(tmp_path)) == 4
    assert folders.names(tmp_path / "events" / "dt=2027-01-15") == ["batch=2"]


def test_a_running_archive_compacts_when_a_new_day_has_begun(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    for shard, day in enumerate((0, 0, 1, 1)):
        event_log.add(shard, an_event(), at_ms=NOON_MS + day * DAY_MS)
    there = Archive(event_log.place, tmp_path)

    for batch in range(SHARDS):
        there.compact_and_write(counted(spark, event_log, batch), batch)

    assert folders.names(tmp_path / "events" / "dt=2027-01-15") == ["batch=1"]
    assert folders.names(tmp_path / "events" / "dt=2027-01-16") == ["batch=2", "batch=3"]
    assert len(places(tmp_path)) == 4
