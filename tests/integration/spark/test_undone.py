"""The audit of a store that went back in time: the books balance, and name exactly what is missing."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.errors import BadInput
from spark.jobs import archive, audit
from spark.jobs.archive import Archive
from spark.transforms.sequences import GENERATION, holes, numbered
from spark.transforms.undone import in_force, not_accepted_again
from tests.builders import Desk, HandClock, a_message, open_desk
from tests.integration.spark.builders import HOUR_S, NOON_MS, Row, an_event, delivered, events_frame
from tests.integration.spark.test_audit import TTL_MS, with_edges
from tests.servers import RealServer

NUMBERING = Path(__file__).parents[3] / "relay/store/scripts/lib/numbering.lua"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealServer]:
    with RealServer() as server:
        monkeypatch.setenv("RELAY_REDIS_URL", server.url)
        yield server


@asynccontextmanager
async def an_instance(server: RealServer) -> AsyncIterator[Desk]:
    async with open_desk(server, "relay", HandClock(round(time.time() * 1_000)), shards=4) as desk:
        await desk.store.inspect()
        yield desk


class Pipeline:
    """The jobs, as they are started beside a running relay."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._spark = spark
        self._options = {"url": url}
        self._folder = folder
        self._capsys = capsys

    async def archive(self) -> Archive:
        return await asyncio.to_thread(archive.run, self._spark, self._options, self._folder, True)

    async def audit(self) -> tuple[int, dict[str, Any]]:
        self._capsys.readouterr()
        code = await asyncio.to_thread(audit.main, ["--archive", str(self._folder), "--json"])
        return code, json.loads(self._capsys.readouterr().out)


@pytest.fixture
def pipeline(spark: SparkSession, server: RealServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pipeline:
    return Pipeline(spark, server.url, tmp_path, capsys)


def named(books: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["id"]) for one in books["exceptions"]]


async def send(desk: Desk, *names: str) -> None:
    await desk.send(*(a_message(name, receipt=False) for name in names))


async def ack_all(desk: Desk) -> None:
    bob = await desk.join()
    await desk.ack(bob, rows=await desk.take(bob))
    await desk.leave(bob)


# -- the whole pipeline on a real store


async def test_the_audit_names_what_was_accepted_undone_and_not_sent_again(
    server: RealServer, pipeline: Pipeline
) -> None:
    async with an_instance(server) as desk:
        await send(desk, "acked", "acked-in-vain", "waiting")
        bob = await desk.join()
        await desk.ack(bob, (await desk.take_one(bob)).entry)
        server.back_up()
        await desk.ack(bob, (await desk.take_one(bob)).entry)
        await send(desk, "again", "missing-1", "missing-2")
        await pipeline.archive()

        server.go_back()
        await send(desk, "again", "new")
        await desk.store.meta.check()
        archived = await pipeline.archive()
        code, books = await pipeline.audit()

    assert archived.undone >= 4
    assert code == 0
    assert named(books) == [("missing", "missing-1"), ("missing", "missing-2")]
    assert books["kinds"] == {"missing": 2}
    counts = {name: books[name] for name in ("accepted", "acked", "waiting", "undone")}
    assert counts == {"accepted": 5, "acked": 1, "waiting": 4, "undone": 3}
    assert "went back in time to" in books["exceptions"][0]["evidence"]


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_a_store_may_go_back_again_and_again(server: RealServer, pipeline: Pipeline, is_noticed: bool) -> None:
    """To the same moment; an instance that has seen the lost span notices, a new one does not."""
    async with an_instance(server) as desk:
        await send(desk, "kept")
        server.back_up()
        await send(desk, "lost-1", "lost-2")
        await pipeline.archive()
        if is_noticed:
            server.go_back()
            await send(desk, "lost-2", "lost-3")
            await desk.store.meta.check()
    if not is_noticed:
        server.go_back()
        async with an_instance(server) as desk:
            await send(desk, "lost-2", "lost-3")
    await pipeline.archive()

    server.go_back()
    async with an_instance(server) as desk:
        await send(desk, "lost-3", "new")
        await ack_all(desk)
    await pipeline.archive()
    code, books = await pipeline.audit()

    assert (code, named(books)) == (0, [("missing", "lost-1"), ("missing", "lost-2")])
    counts = {name: books[name] for name in ("accepted", "acked", "waiting", "undone")}
    assert counts == {"accepted": 3, "acked": 3, "waiting": 0, "undone": 4}


async def test_an_audit_of_what_the_store_does_not_have_asks_for_the_archive_job(
    server: RealServer, pipeline: Pipeline
) -> None:
    async with an_instance(server) as desk:
        await send(desk, "kept")
        server.back_up()
        await send(desk, "lost")
    await pipeline.archive()

    server.go_back()

    with pytest.raises(BadInput, match=r"shard \d was archived up to .*; run the archive job first"):
        await pipeline.audit()


# -- the transforms


def undone(*events: Row) -> list[Row]:
    return [event | {"kind": f"undone_{event['kind']}"} for event in events]


def went_back(kept_s: float, from_s: float) -> Row:
    """The row that the archive has for it, in seconds after noon."""
    return an_event("undone", from_s, place=-1, id="", entry=f"{NOON_MS + round(kept_s * 1_000)}-0", reason="")


def missing(events: DataFrame) -> set[str]:
    return {row["id"] for row in events.transform(not_accepted_again).collect()}


def test_a_message_is_missing_if_its_accept_was_undone_and_there_is_none_since(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        delivered(-HOUR_S, id="same id earlier"),
        undone(*delivered(10, id="same id earlier"), *delivered(11, id="missing"), *delivered(12, id="sent again")),
        went_back(kept_s=5, from_s=20),
        delivered(30, id="sent again"),
        delivered(31, id="new"),
    )

    assert missing(events) == {"same id earlier", "missing"}


def test_a_message_is_not_missing_if_a_clock_that_is_behind_accepted_it_before_it_was_undone(
    spark: SparkSession,
) -> None:
    events = events_frame(spark, undone(*delivered(10)), went_back(kept_s=5, from_s=20), delivered(9))

    assert missing(events) == set()


def test_a_message_that_was_undone_twice_is_missing_once_and_only_if_it_did_not_come_again(
    spark: SparkSession,
) -> None:
    twice = [*undone(*delivered(10, id="never")), *undone(*delivered(10, id="at last"))]
    events = events_frame(
        spark,
        twice,
        went_back(kept_s=9, from_s=20),
        undone(*delivered(30, id="never"), *delivered(30, id="at last")),
        went_back(kept_s=5, from_s=40),
        delivered(8, id="at last"),
    )

    assert missing(events) == {"never"}
    assert events.transform(not_accepted_again).count() == 1


def test_what_was_undone_is_in_no_life(spark: SparkSession) -> None:
    events = events_frame(spark, undone(*delivered(10)), went_back(kept_s=5, from_s=20), delivered(30, id="m-2"))

    assert {row["id"] for row in events.transform(in_force).collect()} == {"m-2"}


def test_numbers_that_go_on_behind_the_next_generation_leave_no_hole(spark: SparkSession) -> None:
    week = 7 * 86_400
    events = events_frame(
        spark,
        delivered(0, id="1", seq=5, thread="on"),
        delivered(1, id="2", seq=GENERATION + 1, thread="on"),
        delivered(2, id="3", seq=3 * GENERATION + 1, thread="on"),
        delivered(week + 3, id="4", seq=3 * GENERATION + 1, thread="on"),
        delivered(0, id="5", seq=5, thread="skips"),
        delivered(1, id="6", seq=GENERATION + 2, thread="skips"),
        delivered(0, id="7", seq=GENERATION + 9, thread="begins"),
    )

    found = with_edges(events).transform(numbered).transform(holes(TTL_MS))

    assert {(row["id"], row["before"]) for row in found.collect()} == {("6", GENERATION)}


def test_a_generation_is_as_long_as_the_relay_says() -> None:
    (told,) = re.findall(r"local GENERATION = (\S+)", NUMBERING.read_text())

    assert float(told) == GENERATION
