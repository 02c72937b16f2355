"""Mailboxes and dead letters as a table, into a dump and back."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from relay.core.replay import Wanted, read_dump, replay
from relay.errors import ConfigurationError
from spark.errors import BadInput
from spark.jobs import dump
from spark.sources.mailboxes import MailboxesReader
from spark.sources.store import locate
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk
from tests.records import letters, unreadable
from tests.servers import RealServer

EVERYTHING = 1_000_000.0  # a rate that holds nothing back


class Office:
    """A desk whose store the pipeline can find."""

    def __init__(self, desk: Desk, url: str) -> None:
        self.desk = desk
        self.options = {"url": url, "prefix": desk.keys.prefix}

    def rows(self) -> list[dict[str, Any]]:
        """All messages as the source reads them."""
        reader = MailboxesReader(locate(self.options), tasks=2)
        batches = [batch for lot in reader.partitions() for batch in reader.read(lot)]
        return [row for batch in batches for row in batch.to_pylist()]

    def wipe(self) -> None:
        for key in self.desk.redis.scan_iter(match=f"{self.desk.keys.prefix}:*"):
            self.desk.redis.delete(key)

    async def replay(self, folder: Path, wanted: Wanted = Wanted()) -> dict[str, int]:  # noqa: B008
        await self.desk.store.inspect()
        rows = read_dump(folder, wanted)
        return dict(await replay(self.desk.store, rows, EVERYTHING, lambda _: None, lambda *_: None))


@pytest.fixture
async def office(make_desk: MakeDesk, redis_server: RealServer) -> Office:
    desk = await make_desk(shards=4)
    await desk.store.inspect()
    return Office(desk, redis_server.url)


async def fill(desk: Desk) -> None:
    """Messages that use everything a message can have, to three recipients and in several lanes."""
    headers, signature = {"trace": "a\tb", "é": "ü"}, "c2lnbmVk"
    await desk.send(*(a_message(f"plain-{n}", payload={"n": n}) for n in range(250)))
    await desk.send(a_message("typed", type="job\n1", thread="t\t1", reply_to="q-1", headers=headers), sender=CAROL)
    await desk.send(a_message("urgent", priority=9, signature=signature), a_message("soon", priority=3), sender=CAROL)
    await desk.send(a_message("timed", ttl_s=600, max_attempts=5, ack_timeout_s=7), a_message("late", delay_s=60))
    await desk.send(a_message("receipts", to=CAROL, receipt="all"), a_message("quiet", to=CAROL, receipt=False))
    await desk.send(a_message("asked", to=ALICE, request=True), sender=BOB)


def as_replayed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the handles, which are new."""
    return [{name: value for name, value in row.items() if name != "entry"} for row in rows]


async def test_a_message_comes_with_its_state_and_holder(office: Office) -> None:
    desk = office.desk
    bob = await desk.join()
    await desk.send(*(a_message(id) for id in ("held", "ready", "parked", "waiting")))
    held, ready, parked = await desk.take(bob, room=3)
    await desk.release(bob, ready.entry)
    await desk.nack(bob, parked.entry, delay_s=60)

    rows = office.rows()

    assert [(row["id"], row["state"], row["owner"], row["attempt"]) for row in rows] == [
        ("held", "held", bob.name, 1),
        ("ready", "ready", None, 1),
        ("parked", "parked", None, 2),
        ("waiting", "waiting", None, 1),
    ]
    assert rows[0]["entry"] == held.entry
    assert {row["box"] for row in rows} == {"mailbox"}


async def test_a_dead_letter_comes_with_how_it_died_also_of_an_agent_that_nobody_knows(office: Office) -> None:
    desk = office.desk
    bob = await desk.join()
    await desk.send_one(a_message("m-1", type="job"))
    (taken,) = await desk.take(bob)
    await desk.nack(bob, taken.entry, retry=False, reason="broken")
    for name in ("agents", "seen", "presence"):
        desk.redis.delete(desk.shard_key(name))

    (row,) = office.rows()

    assert (row["box"], row["state"], row["entry"], row["id"]) == ("dead", "dead", taken.entry, "m-1")
    assert (row["reason"], row["died_at"], row["attempt"], row["type"]) == ("broken", NOON_MS, 1, "job")
    assert row["history"] == f"1\t{NOON_MS}\t{bob.name}\tbroken"


async def test_lanes_come_highest_first_and_each_in_its_order(office: Office) -> None:
    await office.desk.send(*(a_message(f"{priority}-{n}", priority=priority) for n in (1, 2) for priority in (0, 5, 9)))

    rows = office.rows()

    assert [row["id"] for row in rows] == ["9-1", "9-2", "5-1", "5-2", "0-1", "0-2"]
    assert rows[0]["entry"].endswith("p9")


async def test_large_messages_come_whole(office: Office) -> None:
    text = "x" * 60_000
    await office.desk.send(*(a_message(f"m-{n}", payload=text) for n in range(40)))

    rows = office.rows()

    assert [row["id"] for row in rows] == [f"m-{n}" for n in range(40)]
    assert {row["bytes"] for row in rows} == {60_002}


# -- dump and replay


async def test_dump_wipe_replay_gives_identical_mailboxes(office: Office, spark: SparkSession, tmp_path: Path) -> None:
    await fill(office.desk)
    before = office.rows()
    assert dump.run(spark, office.options, tmp_path) == len(before) == 258

    office.wipe()
    became = await office.replay(tmp_path)

    assert became == {"stored": 258}
    assert as_replayed(office.rows()) == as_replayed(before)


async def test_replaying_twice_stores_once(office: Office, spark: SparkSession, tmp_path: Path) -> None:
    await fill(office.desk)
    before = office.rows()
    dump.run(spark, office.options, tmp_path)

    became = await office.replay(tmp_path)

    assert became == {"duplicate": len(before)}
    assert office.rows() == before


async def test_a_replayed_message_has_the_rest_of_its_time(office: Office, spark: SparkSession, tmp_path: Path) -> None:
    await office.desk.send(a_message("short", ttl_s=30), a_message("long", ttl_s=90), a_message("later", delay_s=100))
    dump.run(spark, office.options, tmp_path)
    office.wipe()

    office.desk.clock.advance(60)
    became = await office.replay(tmp_path)

    assert became == {"expired": 1, "stored": 2}
    long, later = office.rows()
    assert (long["id"], long["expires_at"]) == ("long", NOON_MS + 90_000)
    assert (later["id"], later["not_before"]) == ("later", NOON_MS + 100_000)


async def test_dead_letters_are_replayed_on_demand_and_by_reason(
    office: Office, spark: SparkSession, tmp_path: Path
) -> None:
    desk = office.desk
    bob = await desk.join()
    await desk.send(*(a_message(f"m-{n}", max_attempts=1) for n in range(3)))
    for taken, reason in zip(await desk.take(bob), ("timeout", "broken", "timeout"), strict=True):
        await desk.nack(bob, taken.entry, reason=reason)
    dump.run(spark, office.options, tmp_path)
    office.wipe()

    assert await office.replay(tmp_path) == {}
    assert await office.replay(tmp_path, Wanted(box="dead", reason="timeout")) == {"stored": 2}

    assert [(row["id"], row["box"], row["attempt"]) for row in office.rows()] == [
        ("m-0", "mailbox", 1),
        ("m-2", "mailbox", 1),
    ]


async def test_a_dump_never_replaces_another(office: Office, spark: SparkSession, tmp_path: Path) -> None:
    assert dump.run(spark, office.options, tmp_path) == 0

    with pytest.raises(BadInput, match="is there already"):
        dump.run(spark, office.options, tmp_path)


def test_a_dump_that_fails_leaves_nothing_in_the_way_of_the_next(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="does not answer"):
        dump.run(spark, {"url": "redis://127.0.0.1:1", "prefix": "relay"}, tmp_path)

    assert list(tmp_path.iterdir()) == []


def a_row(**columns: Any) -> dict[str, Any]:
    return {"box": "mailbox", "tenant": "acme", "to": "bob", "type": None, "accepted_at": 5, "reason": None} | columns


@pytest.mark.parametrize(
    ("wanted", "row", "is_wanted"),
    [
        (Wanted(), a_row(), True),
        (Wanted(), a_row(box="dead"), False),
        (Wanted(agents=frozenset([BOB])), a_row(), True),
        (Wanted(agents=frozenset([CAROL])), a_row(), False),
        (Wanted(types=frozenset(["job"])), a_row(type="job"), True),
        (Wanted(types=frozenset(["job"])), a_row(), False),
        (Wanted(since_ms=5, until_ms=6), a_row(), True),
        (Wanted(since_ms=6), a_row(), False),
        (Wanted(until_ms=5), a_row(), False),
    ],
)
def test_what_is_wanted_of_a_dump(wanted: Wanted, row: dict[str, Any], is_wanted: bool) -> None:
    assert wanted.has(row) is is_wanted


def test_a_dump_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mailboxes").mkdir()
    pq.write_table(pa.table({"id": ["m-1"]}), tmp_path / "mailboxes" / "part-0.parquet")

    with pytest.raises(ConfigurationError, match="no finished dump"):
        list(read_dump(tmp_path, Wanted()))


async def test_what_cannot_be_read_is_left_out_and_the_rest_comes_back(
    office: Office, spark: SparkSession, tmp_path: Path
) -> None:
    desk = office.desk
    await desk.send_one(a_message("before", payload="1"))
    for record in unreadable(BOB).values():
        desk.redis.execute_command("XADD", desk.keys.box(BOB), "*", *record)
    for letter in letters(BOB):
        desk.redis.execute_command("XADD", desk.keys.dead(BOB), "*", *letter)
    await desk.send_one(a_message("behind", payload="2"))

    dump.run(spark, office.options, tmp_path)
    office.wipe()
    await office.replay(tmp_path)

    stored = [row["id"] for row in office.rows()]
    assert stored[0] == "before"
    assert stored[-1] == "behind"
    assert set(stored) <= {"before", "behind", "bad"}, "a body is replayed if it is a message in other ways"
