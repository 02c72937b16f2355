"""The archive goes on when the store goes back in time, and marks exactly what it had read of the lost span."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark.jobs import archive
from spark.jobs.archive import Archive
from spark.sources.event_ranges import RANGES, RangesStreamReader
from tests.integration.spark.logs import DAY_MS, NOON_MS, EventLog, an_event

ALL = ReadAllAvailable()
Run = Callable[[], Archive]


@pytest.fixture
def run(spark: SparkSession, event_log: EventLog, tmp_path: Path) -> Run:
    """Archives what is there now."""
    return lambda: archive.run(spark, event_log.options, tmp_path, once=True)


@pytest.fixture
def ranges(event_log: EventLog, tmp_path: Path) -> RangesStreamReader:
    return RangesStreamReader(event_log.place, 2, 1_000_000, tmp_path)


def add(event_log: EventLog, *names: str, shard: int = 0, at_ms: int = NOON_MS) -> list[str]:
    """An entry for each message, a second apart; returns their ids."""
    return [event_log.add(shard, an_event(id=name), at_ms=at_ms + n * 1_000) for n, name in enumerate(names)]


def regressed(event_log: EventLog, kept: str, known: str) -> None:
    """What the relay writes when an instance notices."""
    event_log.add(0, f"regressed\t{kept}\t\t\t\t{known}\t\t", at_ms=int(known.split("-")[0]) + 1)
    event_log.meta(epoch=f"after {known}")


def events(folder: Path) -> list[tuple[str, str]]:
    """Kind and message of each archived event of a message."""
    return found("kind, id", folder, "id is not null order by id, kind")


def undone(folder: Path) -> list[tuple[str, str]]:
    """From which entry, and to which, the log went back."""
    return found("reason, entry", folder, "kind = 'undone' order by stream_ms, stream_n")


def found(wanted: str, folder: Path, where: str) -> list[Any]:
    return duckdb.sql(f"select {wanted} from read_parquet('{folder}/events/*/*/*.parquet') where {where}").fetchall()


# -- what is marked


def test_what_was_archived_and_is_gone_is_marked_and_the_archive_goes_on(
    event_log: EventLog, run: Run, tmp_path: Path
) -> None:
    (kept,) = add(event_log, "kept")
    before = event_log.back_up()
    lost = add(event_log, "lost-1", "lost-2", at_ms=NOON_MS + 1)
    run()

    event_log.go_back(before)
    add(event_log, "new", at_ms=NOON_MS + 60_000)
    archived = run()

    assert archived.undone == 2
    assert undone(tmp_path) == [(lost[-1], kept)]
    assert events(tmp_path) == [
        ("accepted", "kept"),
        ("undone_accepted", "lost-1"),
        ("undone_accepted", "lost-2"),
        ("accepted", "new"),
    ]


def test_it_is_marked_though_nothing_has_happened_since_and_nobody_has_noticed(
    event_log: EventLog, run: Run, tmp_path: Path
) -> None:
    add(event_log, "kept")
    before = event_log.back_up()
    add(event_log, "lost", at_ms=NOON_MS + 1)
    run()

    event_log.go_back(before)
    archived, again = run(), run()

    assert (archived.undone, again.undone, again.events) == (1, 0, 0)
    assert events(tmp_path) == [("accepted", "kept"), ("undone_accepted", "lost")]


def test_the_archive_may_have_read_further_than_any_instance_knew(
    event_log: EventLog, run: Run, tmp_path: Path
) -> None:
    (kept,) = add(event_log, "kept")
    before = event_log.back_up()
    (known, read) = add(event_log, "lost-known", "lost-unknown", at_ms=NOON_MS + 1)
    run()

    event_log.go_back(before)
    regressed(event_log, kept, known)
    add(event_log, "new", at_ms=NOON_MS + 60_000)
    run()

    assert undone(tmp_path) == [(read, kept)]
    assert [name for kind, name in events(tmp_path) if kind == "undone_accepted"] == ["lost-known", "lost-unknown"]
    assert found("entry, reason", tmp_path, "kind = 'regressed'") == [(kept, known)]


def test_what_was_never_archived_is_not_marked(event_log: EventLog, run: Run, tmp_path: Path) -> None:
    (kept,) = add(event_log, "kept")
    run()
    before = event_log.back_up()
    (lost,) = add(event_log, "lost", at_ms=NOON_MS + 1)

    event_log.go_back(before)
    regressed(event_log, kept, lost)
    add(event_log, "new", at_ms=NOON_MS + 60_000)
    archived = run()

    assert (archived.undone, archived.lost, undone(tmp_path)) == (0, 0, [])
    assert events(tmp_path) == [("accepted", "kept"), ("accepted", "new")]


def test_other_shards_are_left_alone(event_log: EventLog, run: Run, tmp_path: Path) -> None:
    add(event_log, "kept")
    before = event_log.back_up()
    add(event_log, "lost", at_ms=NOON_MS + 1)
    add(event_log, "elsewhere", shard=1, at_ms=NOON_MS + 9)
    elsewhere = event_log.back_up()[event_log.key(1)]
    run()

    event_log.go_back(before | {event_log.key(1): elsewhere})
    run()

    assert events(tmp_path) == [("accepted", "elsewhere"), ("accepted", "kept"), ("undone_accepted", "lost")]


def test_ids_of_a_clock_that_is_behind_lie_between_those_that_are_undone(
    event_log: EventLog, run: Run, tmp_path: Path
) -> None:
    add(event_log, "kept")
    before = event_log.back_up()
    lost = add(event_log, "lost-1", "lost-2", "lost-3", at_ms=NOON_MS + 1)
    run()

    event_log.go_back(before)
    new = add(event_log, "new-1", "new-2", at_ms=NOON_MS + 501)
    same = add(event_log, "new-3", at_ms=NOON_MS + 2_001)
    run()

    assert lost[0] < new[0] < lost[1] < new[1] < lost[2] == same[0]
    assert events(tmp_path) == [
        ("accepted", "kept"),
        *(("undone_accepted", f"lost-{n}") for n in (1, 2, 3)),
        *(("accepted", f"new-{n}") for n in (1, 2, 3)),
    ]


@pytest.mark.parametrize("is_archived_in_between", [True, False])
def test_a_shard_may_go_back_several_times(
    event_log: EventLog, run: Run, tmp_path: Path, is_archived_in_between: bool
) -> None:
    add(event_log, "a")
    first = event_log.back_up()
    add(event_log, "b", at_ms=NOON_MS + 1)
    second = event_log.back_up()
    add(event_log, "c", at_ms=NOON_MS + 2)
    run()

    event_log.go_back(second)
    add(event_log, "d", at_ms=NOON_MS + 10)
    if is_archived_in_between:
        run()
    event_log.go_back(first)
    add(event_log, "e", at_ms=NOON_MS + 20)
    run()

    archived = ["b", "c", "d"] if is_archived_in_between else ["b", "c"]
    assert events(tmp_path) == [
        ("accepted", "a"),
        *(("undone_accepted", name) for name in archived),
        ("accepted", "e"),
    ]


def test_what_was_undone_may_come_back(event_log: EventLog, run: Run, tmp_path: Path) -> None:
    add(event_log, "a")
    early = event_log.back_up()
    add(event_log, "b", at_ms=NOON_MS + 1)
    late = event_log.back_up()
    run()

    event_log.go_back(early)
    add(event_log, "c", at_ms=NOON_MS + 10)
    run()
    event_log.go_back(late)
    run()

    assert events(tmp_path) == [
        ("accepted", "a"),
        ("accepted", "b"),
        ("undone_accepted", "b"),
        ("undone_accepted", "c"),
    ]


def test_of_a_day_that_is_over_and_compacted_only_what_is_gone_is_marked(
    event_log: EventLog, run: Run, tmp_path: Path
) -> None:
    add(event_log, "a")
    run()
    before = event_log.back_up()
    add(event_log, "b", at_ms=NOON_MS + 1)
    add(event_log, "c", at_ms=NOON_MS + DAY_MS)
    run()

    event_log.go_back(before)
    add(event_log, "d", at_ms=NOON_MS + 2 * DAY_MS)
    run()

    assert events(tmp_path) == [
        ("accepted", "a"),
        ("undone_accepted", "b"),
        ("undone_accepted", "c"),
        ("accepted", "d"),
    ]


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_log_that_was_trimmed_before_goes_back_by_the_number_of_its_entries(
    event_log: EventLog, run: Run, tmp_path: Path, is_noticed: bool
) -> None:
    (kept,) = add(event_log, "kept")
    run()
    event_log.trim_to(0, 0)
    before = event_log.back_up()
    (lost,) = add(event_log, "lost", at_ms=NOON_MS + 1)
    run()

    event_log.go_back(before)
    if is_noticed:
        regressed(event_log, "0-0", lost)
    add(event_log, "new", at_ms=NOON_MS + 60_000)
    archived = run()

    assert (archived.undone, archived.lost, undone(tmp_path)) == (1, 0, [(lost, kept)])
    assert events(tmp_path) == [("accepted", "kept"), ("undone_accepted", "lost"), ("accepted", "new")]


def test_all_of_a_shard_may_be_gone(event_log: EventLog, run: Run, tmp_path: Path) -> None:
    add(event_log, "elsewhere", shard=1)
    before = event_log.back_up()
    (lost,) = add(event_log, "lost")
    run()

    event_log.go_back(before)
    run()

    assert undone(tmp_path) == [(lost, "0-0")]
    assert events(tmp_path) == [("accepted", "elsewhere"), ("undone_accepted", "lost")]


# -- once, whatever happens meanwhile


def test_a_batch_that_is_run_again_marks_the_same_and_nothing_of_its_own(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    (kept,) = add(event_log, "kept")
    before = event_log.back_up()
    (lost,) = add(event_log, "lost", at_ms=NOON_MS + 1)
    there = Archive(event_log.place, tmp_path)
    there.write(spark.createDataFrame([(0, "-", "+", 2, "")], RANGES), 0)
    event_log.go_back(before)
    (new,) = add(event_log, "new", at_ms=NOON_MS + 2)
    gone_back = spark.createDataFrame([(0, f"({kept}", new, 1, lost)], RANGES)

    there.write(gone_back, 1)
    there.write(gone_back, 1)

    assert there.undone == 1
    assert events(tmp_path) == [("accepted", "kept"), ("undone_accepted", "lost"), ("accepted", "new")]
    assert len(undone(tmp_path)) == 1


def test_what_goes_while_a_batch_is_read_is_undone_with_the_next(
    spark: SparkSession, event_log: EventLog, ranges: RangesStreamReader, tmp_path: Path
) -> None:
    add(event_log, "kept")
    before = event_log.back_up()
    add(event_log, "lost", at_ms=NOON_MS + 1)
    start = ranges.initialOffset()
    first = ranges.latestOffset(start, ALL)
    there = Archive(event_log.place, tmp_path)

    event_log.go_back(before)
    write(spark, there, ranges, start, first, 0)
    second = ranges.latestOffset(first, ALL)
    write(spark, there, ranges, first, second, 1)

    assert events(tmp_path) == [("accepted", "kept")]
    assert found("kind", tmp_path, "id is null order by kind") == [("undone",), ("undone_lost",)]
    assert ranges.latestOffset(second, ALL) == second


def write(
    spark: SparkSession,
    there: Archive,
    ranges: RangesStreamReader,
    start: dict[str, Any],
    end: dict[str, Any],
    batch: int,
) -> None:
    """As Spark does it between two offsets."""
    lots = [row for lot in ranges.partitions(start, end) for part in ranges.read(lot) for row in part.to_pylist()]
    there.write(spark.createDataFrame([tuple(row.values()) for row in lots], RANGES), batch)


def test_a_run_up_to_now_goes_on_to_what_there_is_when_that_moment_is_undone(
    event_log: EventLog, run: Run, ranges: RangesStreamReader
) -> None:
    add(event_log, "kept")
    before = event_log.back_up()
    add(event_log, "lost", at_ms=NOON_MS + 1)
    run()
    read = ranges.latestOffset(ranges.initialOffset(), ALL)
    ranges.prepareForTriggerAvailableNow()

    event_log.go_back(before)
    (new,) = add(event_log, "new", at_ms=NOON_MS + 2)
    end = ranges.latestOffset(read, ALL)

    assert end["shards"]["0"]["id"] == new
    assert ranges.latestOffset(end, ALL) == end


# -- another store is none that went back


@pytest.mark.parametrize("refilled", [0, 20])
def test_a_wiped_store_is_not_archived_into_the_same_folder(
    event_log: EventLog, run: Run, tmp_path: Path, refilled: int
) -> None:
    add(event_log, "a", "b")
    run()

    event_log.go_back({})
    event_log.meta(epoch="two")
    add(event_log, *(f"n-{n}" for n in range(refilled)), at_ms=NOON_MS + DAY_MS)

    with pytest.raises(StreamingQueryException) as failed:
        run()
    assert "the store's epoch is 'two' and was 'one': it was wiped or is another one" in str(failed.value)
    assert events(tmp_path) == [("accepted", "a"), ("accepted", "b")]
