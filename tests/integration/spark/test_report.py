"""The report: its tables on small frames, and its page."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from bench.pipeline_archive import make_archive
from bench.pipeline_company import TYPES
from spark.__main__ import main as run_job
from spark.jobs.report import main
from spark.report import charts
from spark.transforms import anomalies
from spark.transforms.depth import depth
from spark.transforms.history import every_hour, robust_scores, unusual
from spark.transforms.hours import hourly_counts, summed_by, with_redelivered
from spark.transforms.latency import percentiles_by, spans
from spark.transforms.lives import lives, with_first_deliveries, with_types
from spark.transforms.pairs import pairs
from spark.transforms.sessions import sessions
from tests.integration.spark.builders import (
    DAY_S,
    HOUR_S,
    NOON_MS,
    a_life,
    an_event,
    delivered,
    events_frame,
    lean,
    write_archive,
)

HOUR_MS = HOUR_S * 1_000


def one(table: DataFrame, **columns: Any) -> dict[str, Any]:
    """The only row with these values."""
    found = [row for row in rows(table) if all(row[name] == value for name, value in columns.items())]
    assert len(found) == 1, found
    return found[0]


def rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def hours_of(events: DataFrame) -> DataFrame:
    return events.transform(hourly_counts).transform(with_redelivered(events.transform(lives)))


# -- the tables


def test_a_life_tells_what_happened_to_one_entry(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        a_life(("accepted", 0), ("taken", 1), ("nacked", 2), ("taken", 12), ("acked", 13)),
        an_event("duplicate", 5),
    )

    life = one(events.transform(lives))

    assert (life["accepted"], life["taken"], life["nacked"], life["acked"]) == (1, 2, 1, 1)
    assert life["first_taken_at"] == NOON_MS + 1_000
    assert life["last_taken_at"] == NOON_MS + 12_000
    assert life["ended_at"] == NOON_MS + 13_000


def test_a_revived_message_has_two_lives(spark: SparkSession) -> None:
    events = events_frame(spark, a_life(("accepted", 0), ("dead", 1)), a_life(("revived", 9), ("acked", 10)))

    assert sorted((life["dead"], life["acked"]) for life in rows(events.transform(lives))) == [(0, 1), (1, 0)]


def test_hours_count_each_thing_in_the_hour_in_which_it_happened(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        a_life(("accepted", 0), ("taken", 1), ("released", 2), ("taken", HOUR_S + 1), ("acked", HOUR_S + 2), bytes=100),
        a_life(("accepted", 1), ("expired", 2), id="m-2"),
        an_event("refused", 3, id="m-3"),
    )

    first, second = sorted(rows(hours_of(events)), key=lambda hour: hour["hour"])

    assert (first["accepted"], first["expired"], first["refused"], first["bytes"]) == (2, 1, 1, 110)
    assert (first["taken"], first["redelivered"], first["delivered"]) == (1, 0, 0)
    assert (second["taken"], second["redelivered"], second["delivered"]) == (1, 1, 1)


def test_what_events_do_not_repeat_is_known_all_the_same(spark: SparkSession) -> None:
    lives_told = [
        a_life(("accepted", 0), ("taken", 1), ("released", 2), ("taken", HOUR_S + 1), ("acked", HOUR_S + 2), seq=7),
        a_life(("accepted", 1), ("taken", 2), ("nacked", 3), ("dead", 4), id="m-2", bytes=99),
        a_life(("accepted", 1.5), ("expired", 2), id="m-3", type="note"),
    ]
    whole = events_frame(spark, *lives_told)

    known = events_frame(spark, *map(lean, lives_told)).fillna("").transform(with_first_deliveries)
    typed = known.transform(with_types(known.transform(lives)))

    for found, told in (
        (known.transform(lives), whole.transform(lives)),
        (known.transform(sessions), whole.transform(sessions)),
        (typed.transform(hourly_counts), whole.transform(hourly_counts)),
    ):
        assert sorted(map(str, rows(found))) == sorted(map(str, rows(told)))


def test_latency_has_three_spans(spark: SparkSession) -> None:
    slow = delivered(0, wait_s=10, handle_s=20, id="slow")
    quick = [delivered(n, wait_s=1, handle_s=2, id=f"quick-{n}") for n in range(1, 10)]
    events = events_frame(spark, slow, *quick)

    took = one(events.transform(lives).transform(spans).transform(percentiles_by("agent")))

    assert took["delivered"] == 10
    assert (took["waited_p50_ms"], took["waited_max_ms"]) == (1_000, 10_000)
    assert (took["handled_p50_ms"], took["handled_max_ms"]) == (2_000, 20_000)
    assert (took["whole_p50_ms"], took["whole_max_ms"]) == (3_000, 30_000)


def test_depth_is_what_waits_at_the_end_of_each_hour(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        a_life(("accepted", -60), ("acked", 2 * HOUR_S + 60), id="long"),
        delivered(61, id="short"),
        a_life(("accepted", HOUR_S + 60), id="open"),
    )

    found = events.transform(lives).transform(depth(NOON_MS, NOON_MS + 3 * HOUR_MS - 60_000))

    depths = sorted((row["hour"].hour, row["depth"], row["oldest_ms"]) for row in rows(found))
    assert [(number, oldest) for _, number, oldest in depths] == [
        (1, HOUR_MS + 60_000),
        (2, 2 * HOUR_MS + 60_000),
        (1, 2 * HOUR_MS - 120_000),
    ]


def test_sessions_are_told_apart_also_those_that_only_pull(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        an_event("joined", -1, who="a1.1", id=""),
        delivered(0, handle_s=4),
        an_event("replaced", 9, who="a1.1", id=""),
        delivered(0, id="m-2", who="http.w1"),
    )

    found = events.transform(sessions)

    pushed, pulled = one(found, session="a1.1"), one(found, session="http.w1")
    assert (pushed["taken"], pushed["acked"], pushed["handled_p50_ms"], pushed["was_replaced"]) == (1, 1, 4_000, True)
    assert (pulled["taken"], pulled["joined"], pulled["was_replaced"]) == (1, None, False)


def test_pairs_count_what_became_of_the_messages_between_two_agents(spark: SparkSession) -> None:
    events = events_frame(spark, delivered(), a_life(("accepted", 1), ("dead", 2), id="m-2"), delivered(to="carol"))

    to_bob = one(events.transform(lives).transform(pairs), to="bob")

    assert (to_bob["accepted"], to_bob["delivered"], to_bob["dead"], to_bob["bytes"]) == (2, 1, 1, 20)


# -- the anomalies


def agent_hours(*events: DataFrame) -> DataFrame:
    return hours_of(*events).transform(summed_by("tenant", "agent", "hour"))


def test_each_anomaly_names_the_agent_that_has_it(spark: SparkSession) -> None:
    silent = [a_life(("accepted", n), id=f"s-{n}", to="silent") for n in range(20)]
    dying = [a_life(("accepted", n), ("dead", n + 1), id=f"d-{n}", to="dying") for n in range(5)]
    expiring = [a_life(("accepted", n), ("expired", n + 1), id=f"e-{n}", to="expiring") for n in range(5)]
    stormy = [
        a_life(("accepted", n), ("taken", n), ("released", n + 1), ("taken", n + 2), id=f"r-{n}", to="stormy")
        for n in range(20)
    ]
    well = [delivered(n, id=f"w-{n}", to="well") for n in range(30)]
    events = events_frame(spark, *silent, *dying, *expiring, *stormy, *well)

    hours = agent_hours(events)
    found = anomalies.together(
        hours.transform(anomalies.backlog_growing),
        hours.transform(anomalies.dying),
        hours.transform(anomalies.expiring),
        hours.transform(anomalies.redelivery_storm),
        events.transform(lives).transform(depth(NOON_MS, NOON_MS + 2 * HOUR_MS)).transform(anomalies.too_old),
    )

    assert {(row["kind"], row["agent"]) for row in rows(found)} == {
        ("backlog_growing", "silent"),
        ("backlog_growing", "stormy"),
        ("dying", "dying"),
        ("expiring", "expiring"),
        ("redelivery_storm", "stormy"),
        ("too_old", "silent"),
        ("too_old", "stormy"),
    }


def test_an_hour_unlike_the_same_hour_of_other_days_is_unusual_also_when_nothing_happened(spark: SparkSession) -> None:
    def day(number: int, count: int, to: str) -> list[dict[str, Any]]:
        start = number * DAY_S
        return [row for n in range(count) for row in a_life(("accepted", start + n), id=f"{to}-{number}-{n}", to=to)]

    usual = [day(n, 30 + n, "steady") + day(n, 30, "gone") + day(n, 30, "loud") for n in range(5)]
    events = events_frame(spark, *usual, day(5, 33, "steady"), day(5, 300, "loud"))

    found = agent_hours(events).transform(every_hour).transform(robust_scores).transform(unusual)

    assert {(row["kind"], row["agent"], row["detail"]) for row in rows(found)} == {
        ("unusual_accepted", "gone", "0 accepted, usually 30 at this hour"),
        ("unusual_accepted", "loud", "300 accepted, usually 30 at this hour"),
    }


def test_hours_in_a_row_are_one_episode(spark: SparkSession) -> None:
    silent = [a_life(("accepted", hour * HOUR_S + n), id=f"{hour}-{n}") for hour in (0, 1, 5) for n in range(20 + hour)]

    found = agent_hours(events_frame(spark, *silent)).transform(anomalies.backlog_growing).transform(anomalies.episodes)

    assert sorted((row["hours"], row["worst"]) for row in rows(found)) == [
        (1, "25 accepted, none acked"),
        (2, "21 accepted, none acked"),
    ]


# -- the page


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a week with an incident, and on agents that would break a page that does not escape."""
    assert spark
    folder = tmp_path_factory.mktemp("report")
    make_archive(folder, 3_000, days=5, until_ms=NOON_MS + 12 * HOUR_MS)
    nasty = [delivered(n, id=f"x-{n}", tenant="<script>alert(1)</script>", to="&bob") for n in range(200)]
    undone = an_event("undone_accepted", 9 * DAY_S, id="undone")
    write_archive(folder, *nasty, undone, batch=99)
    assert main(["--archive", str(folder), "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_every_table_is_there_as_parquet(made: Path) -> None:
    sizes = {folder.name: pq.read_table(folder).num_rows for folder in made.iterdir() if folder.is_dir()}

    assert sorted(sizes) == [
        "anomalies",
        "depth",
        "episodes",
        "hours",
        "latency",
        "latency_of_agents",
        "latency_of_all",
        "latency_of_hours",
        "pairs",
        "sessions",
    ]
    assert sum(pq.read_table(made / "hours")["accepted"].to_pylist()) == 3_200
    assert sizes["latency_of_all"] == 1
    assert sizes["latency_of_agents"] == 31


def test_deliveries_are_told_by_the_type_that_only_the_accept_has(made: Path) -> None:
    hours = pq.read_table(made / "hours").to_pylist()

    assert {row["type"] for row in hours if row["delivered"]} == {*TYPES, "job"}


def test_the_page_is_well_formed_bounded_and_needs_nothing_else(made: Path) -> None:
    page = (made / "report.html").read_text()

    ElementTree.fromstring(page.replace("<!doctype html>", ""))
    assert re.findall(r"\b(?:src|href|url|@import)\b", page) == []
    assert "http" not in page
    assert len(page) < 500_000


def test_the_page_escapes_what_agents_call_themselves(made: Path) -> None:
    page = (made / "report.html").read_text()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;/&amp;bob" in page
    assert "<script" not in page


def test_what_was_undone_is_left_out(made: Path) -> None:
    assert "2025-10-18" not in (made / "report.html").read_text()


def test_the_page_says_what_it_left_out(made: Path) -> None:
    assert re.search(r"… and \d+ more", (made / "report.html").read_text())


def test_axes_end_at_round_numbers() -> None:
    assert charts.linear(730).ticks == [0, 200, 400, 600, 800]
    assert charts.linear(0).ticks == [0, 1]
    assert charts.spans_of_time(5 * HOUR_MS).ticks == [0, 2 * HOUR_MS, 4 * HOUR_MS, 6 * HOUR_MS]
    assert charts.logarithmic(40, 30_000).ticks == [10, 100, 1_000, 10_000, 60_000]


def test_a_long_period_is_thinned_to_its_peaks() -> None:
    points: list[charts.Point] = [(n, float(n == 5_000)) for n in range(10_000)]

    thinned = charts.thinned(points)

    assert len(thinned) <= charts.MOST_POINTS
    assert (5_000, 1.0) in thinned


# -- input that it cannot work with


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--archive", "nowhere"], "there is no folder nowhere/events"),
        (["--archive", "{empty}"], "there are no events in this period"),
        (["--archive", "{good}", "--until", "2001-01-01"], "there are no events in this period"),
        (["--archive", "{good}", "--since", "x"], "'x' is not a time"),
    ],
)
def test_what_cannot_be_reported_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], said: str
) -> None:
    places = {"good": write_archive(tmp_path / "good", delivered()), "empty": write_archive(tmp_path / "empty")}

    code = run_job(["report", *(word.format(**places) for word in argv), "--out", str(tmp_path / "out")])

    assert code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
