"""The audit: one planted error of each kind is found among many good messages, and nothing else."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import redis
from pyspark.sql import DataFrame, SparkSession

from bench.pipeline_archive import make_archive
from spark.__main__ import main as run_job
from spark.jobs.audit import main
from spark.transforms import exceptions
from spark.transforms.books import edges
from spark.transforms.lives import lives
from spark.transforms.sequences import blocked, holes, numbered
from tests.integration.spark.builders import (
    DAY_S,
    HOUR_S,
    NOON_MS,
    a_life,
    an_event,
    delivered,
    events_frame,
    in_mailbox,
    mailboxes_frame,
    write_archive,
    write_dump,
)
from tests.integration.spark.logs import LINE, lines_of
from tests.servers import RealServer

pytestmark = pytest.mark.usefixtures("spark")

GOOD = 100_000
TTL_MS = 7 * DAY_S * 1_000
SWEPT = lines_of(NOON_MS, "swept" + "\t" * 7 + "acme")


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """A store of its own: the audit knows only the relay's real names."""
    with RealServer() as server:
        with server.client() as client:
            client.hset("relay:meta", "shards", "64")
        yield server


@pytest.fixture
def client(server: RealServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    monkeypatch.setenv("RELAY_REDIS_URL", server.url)
    with server.client() as client:
        yield client
        client.delete(*client.keys("relay:{*"), "nothing")


class Audit:
    """Runs the job as a user does, and reads what it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *argv: str | Path) -> tuple[int, dict[str, Any]]:
        code = main([*map(str, argv), "--json"])
        return code, json.loads(self._capsys.readouterr().out)


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str]) -> Audit:
    return Audit(capsys)


def kinds(books: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((one["kind"], one["id"]) for one in books["exceptions"])


def with_edges(events: DataFrame) -> DataFrame:
    return events.transform(lives).join(events.transform(edges), on="shard", how="left")


def ids(found: DataFrame) -> set[tuple[str, str]]:
    return {(row["kind"], row["id"]) for row in found.collect()}


# -- the whole job


def waiting_at_the_end(archive: Path) -> list[dict[str, Any]]:
    """What the mailboxes would hold, asked of another engine."""
    events = f"read_parquet('{archive}/events/*/*/*.parquet')"
    ended = f"select tenant, \"to\", entry from {events} where kind in ('acked', 'expired', 'dead', 'cancelled')"
    open_rows = duckdb.sql(
        f"""select tenant, "to", "from", id, entry, shard, at_ms as accepted_at from {events}
            where kind = 'accepted' and (tenant, "to", entry) not in ({ended})"""
    )
    return [in_mailbox(**dict(zip(open_rows.columns, row, strict=True))) for row in open_rows.fetchall()]


def test_one_error_of_each_kind_is_found_among_many_good_messages_and_nothing_else(
    audit: Audit, client: redis.Redis, tmp_path: Path
) -> None:
    make_archive(tmp_path, GOOD, days=3, until_ms=NOON_MS + 12 * HOUR_S * 1_000)
    waiting = waiting_at_the_end(tmp_path)
    write_archive(
        tmp_path,
        a_life(("accepted", 1), id="lost", to="p1"),
        a_life(("accepted", 2), ("acked", 3), ("acked", 4), id="acked-twice", to="p2"),
        a_life(("accepted", 3), ("expired", 4), ("dead", 5), id="ended-twice", to="p3"),
        a_life(("accepted", 4), ("accepted", 4.5), ("acked", 5), id="begun-twice", to="p4"),
        a_life(("taken", 5), ("acked", 6), id="no-accept", to="p5"),
        delivered(6, id="doubled", to="p6", handle_s=9),
        delivered(7, id="doubled", to="p6", seq=2),
        delivered(7, id="before", to="p7"),
        delivered(8, id="hole", to="p7", seq=3),
        a_life(("accepted", 9), id="stuck", to="p8"),
        a_life(("accepted", 10), id="ended-since", to="p9"),
        a_life(("accepted", 11), ("dead", 12), id="revived", to="p10"),
        a_life(("revived", 13), ("acked", 14), id="revived", to="p10"),
        delivered(15, id="again", to="p11"),
        delivered(15 + 2 * HOUR_S, id="again", to="p11", seq=2),
        batch=99,
    )
    write_dump(
        tmp_path,
        *waiting,
        in_mailbox(9, ttl_s=60, id="stuck", to="p8"),
        in_mailbox(10, id="unknown", to="p12"),
        in_mailbox(13 * HOUR_S, id="accepted-since", to="p13"),
    )
    logs_as_archived(client, tmp_path)
    log_of(client, 0, an_event("acked", 20, entry=f"{NOON_MS + 10_000}-0", id="ended-since", to="p9"))
    leave_receipt(client, 3, f"{NOON_MS}\nreceipt\tbob\t12")

    code, books = audit("--archive", tmp_path, "--mailboxes", tmp_path)

    assert kinds(books) == [
        ("acked_twice", "acked-twice"),
        ("begun_twice", "begun-twice"),
        ("doubled", "doubled"),
        ("ended_twice", "ended-twice"),
        ("hole", "hole"),
        ("lost", "lost"),
        ("missing_receipt", "receipt"),
        ("no_accept", "no-accept"),
        ("stuck", "stuck"),
        ("unknown", "unknown"),
    ]
    assert code == 1
    assert books["accepted"] == GOOD + 13
    assert books["revived"] == 1
    ended = books["acked"] + books["expired"] + books["dead"] + books["cancelled"]
    assert books["accepted"] + books["revived"] == ended + books["waiting"] + len(["lost"])
    assert books["waiting"] == len(waiting) + len(["stuck", "ended-since"])


def logs_as_archived(client: redis.Redis, archive: Path) -> None:
    """The last entry that the archive has is the last of each shard's log."""
    events = f"read_parquet('{archive}/events/*/*/*.parquet')"
    last = duckdb.sql(f"select shard, max((stream_ms, stream_n)) from {events} group by shard").fetchall()
    for shard, (ms, n) in last:
        client.xadd(f"relay:{{s{shard:02d}}}:events", {"e1": SWEPT}, id=f"{ms}-{n}")


def log_of(client: redis.Redis, shard: int, *events: dict[str, Any]) -> None:
    """Writes what the relay would to the end of a shard's log."""
    key = f"relay:{{s{shard:02d}}}:events"
    for event in events:
        line = "\t".join("" if event.get(name) is None else str(event[name]) for name in LINE)
        client.xadd(key, {"e1": lines_of(event["at_ms"], line)}, id=f"{event['at_ms'] + DAY_S * 1_000}-0")


def leave_receipt(client: redis.Redis, shard: int, receipt: str) -> None:
    client.xadd(f"relay:{{s{shard:02d}}}:outbox", {"receipts": f"acme/alice\t1\t{receipt}"}, id=f"{NOON_MS}-0")


def test_good_books_balance(audit: Audit, tmp_path: Path) -> None:
    write_archive(tmp_path, delivered(id="m-1"), a_life(("accepted", 5), id="m-2", seq=2))

    code, books = audit("--archive", tmp_path, "--offline")

    assert code == 0
    assert books == {
        "accepted": 2,
        "revived": 0,
        "acked": 1,
        "expired": 0,
        "dead": 0,
        "cancelled": 0,
        "waiting": 1,
        "undone": 0,
        "kinds": {},
        "exceptions": [],
    }


def test_books_are_also_printed_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_archive(tmp_path, a_life(("accepted", 0), ("acked", 1), ("acked", 2)))

    assert main(["--archive", str(tmp_path), "--offline"]) == 1

    totals, kind, exception = capsys.readouterr().out.splitlines()
    assert totals == ("accepted 1 + revived 0 = acked 1 + expired 0 + dead 0 + cancelled 0 + waiting 0: 1 exceptions")
    assert kind == "acked_twice      1"
    assert exception.startswith("acked_twice      acme: alice → bob  m-1  (2 acks; entry 1760011200000-0 of shard 0")


def test_of_many_exceptions_people_see_how_many_of_each_kind_and_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    twice = [a_life(("accepted", n), ("acked", n), ("acked", n), id=f"m-{n:03d}", seq=n) for n in range(1, 105)]
    write_archive(tmp_path, *twice, an_event("lost", 200, reason="7"))

    assert main(["--archive", str(tmp_path), "--offline"]) == 1

    totals, twice_line, lost_line, *listed, more = capsys.readouterr().out.splitlines()
    assert totals.endswith("waiting 0: 105 exceptions")
    assert (twice_line, lost_line) == ("acked_twice      104", "not_archived     1")
    assert [line.split()[5] for line in listed] == [f"m-{n:03d}" for n in range(1, 101)]
    assert more == "… and 5 more; --json lists all"


def test_a_period_has_the_messages_that_were_accepted_in_it_and_ends_that_came_later(
    audit: Audit, tmp_path: Path
) -> None:
    write_archive(
        tmp_path, a_life(("accepted", -1), id="before"), a_life(("accepted", 0), ("acked", DAY_S), id="in", seq=2)
    )
    write_archive(tmp_path, a_life(("accepted", HOUR_S), id="after", seq=3), dt="2025-10-10")

    _, books = audit("--archive", tmp_path, "--offline", "--since", "2025-10-09T12:00", "--until", "2025-10-09T13:00")

    assert (books["accepted"], books["acked"], books["waiting"]) == (1, 1, 0)


# -- messages in flight, and what a dump can prove


def test_without_a_store_a_dump_proves_a_loss_only_if_the_log_reaches_past_it(audit: Audit, tmp_path: Path) -> None:
    lost, archive, dump = a_life(("accepted", 0), id="lost"), tmp_path / "archive", tmp_path / "dump"
    write_archive(archive, lost, delivered(HOUR_S, id="later", seq=2))
    written = write_dump(dump) / "mailboxes/part-00000.parquet"

    os.utime(written, (NOON_MS / 1_000 + 1_800,) * 2)
    code_within, within = audit("--archive", archive, "--offline", "--mailboxes", dump)
    os.utime(written, (NOON_MS / 1_000 + DAY_S,) * 2)
    code_after, after = audit("--archive", archive, "--offline", "--mailboxes", dump)

    assert (code_within, kinds(within), within["waiting"]) == (1, [("lost", "lost")], 0)
    assert (code_after, kinds(after), after["waiting"]) == (0, [], 1)


def test_a_trimmed_log_is_said_in_the_evidence(audit: Audit, client: redis.Redis, tmp_path: Path) -> None:
    write_archive(tmp_path, a_life(("accepted", 0)))
    write_dump(tmp_path)
    client.xadd("relay:{s00}:events", {"e1": SWEPT}, id=f"{NOON_MS + DAY_S * 1_000}-0")

    _, books = audit("--archive", tmp_path, "--mailboxes", tmp_path)

    assert "the log was trimmed before it was archived" in books["exceptions"][0]["evidence"]


@pytest.mark.parametrize(
    ("receipt", "told"),
    [
        (f"{NOON_MS}\nm-1\tbob\t12", "delivered at {}, attempt 1"),
        (f'{NOON_MS}\nm-1\tbob\t12\t1\t3\tdead\t"no"', "dead at {}, attempt 3"),
        (f"{NOON_MS}\nm-1\tbob\t12\t\t0\texpired", "expired at {}, attempt 0"),
    ],
)
def test_a_receipt_that_did_not_leave_is_reported_with_what_it_says(
    audit: Audit, client: redis.Redis, tmp_path: Path, receipt: str, told: str
) -> None:
    write_archive(tmp_path, delivered())
    write_dump(tmp_path)
    logs_as_archived(client, tmp_path)
    leave_receipt(client, 7, receipt)

    _, books = audit("--archive", tmp_path, "--mailboxes", tmp_path)

    (late,) = books["exceptions"]
    assert (late["kind"], late["to"], late["from"], late["id"]) == ("missing_receipt", "bob", "alice", "m-1")
    assert f"the receipt ({told.format(NOON_MS)}) has not left" in late["evidence"]


def test_a_reply_that_did_not_leave_is_reported_without_its_payload(
    audit: Audit, client: redis.Redis, tmp_path: Path
) -> None:
    write_archive(tmp_path, delivered())
    write_dump(tmp_path)
    logs_as_archived(client, tmp_path)
    reply = "\t".join(["acme/alice", "acme/bob", "q-1", "0", "end", "1", '{"secret":1}'])
    client.xadd("relay:{s07}:outbox", {"reply": reply}, id="5-0")

    _, books = audit("--archive", tmp_path, "--mailboxes", tmp_path)

    (late,) = books["exceptions"]
    assert (late["kind"], late["to"], late["from"], late["id"]) == ("missing_receipt", "bob", "alice", "q-1")
    assert "secret" not in late["evidence"]


# -- input that it cannot work with


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--offline", "--archive", "nowhere"], "there is no folder nowhere/events"),
        (["--offline", "--archive", "{good}", "--since", "soon"], "'soon' is not a time"),
        (["--offline", "--archive", "{good}", "--since", "2025-10-09", "--until", "2025-10-08"], "is not after"),
        (["--offline", "--archive", "{good}", "--since", "2030-01-01"], "there are no events in this period"),
        (["--offline", "--archive", "{good}", "--mailboxes", "nowhere"], "there is no folder nowhere/mailboxes"),
        (["--offline", "--archive", "{bad}"], "part-0.parquet cannot be read"),
        (["--archive", "{good}"], "RELAY_REDIS_URL is not set"),
    ],
)
def test_what_cannot_be_audited_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.delenv("RELAY_REDIS_URL", raising=False)
    good = write_archive(tmp_path / "good", delivered())
    bad = write_archive(tmp_path / "bad", delivered())
    (bad / "events" / "dt=2025-10-09" / "batch=0" / "part-0.parquet").write_text("no Parquet")

    code = run_job(["audit", *(word.format(good=good, bad=bad) for word in argv)])

    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]


# -- the transforms


def test_an_accept_before_the_archive_is_not_missed(spark: SparkSession) -> None:
    older = a_life(("taken", 1), ("acked", 2), id="older", entry=f"{NOON_MS - 5}-0")
    newer = a_life(("taken", 3), ("acked", 4), id="newer", entry=f"{NOON_MS + 3_000}-0")
    events = events_frame(spark, an_event("swept"), older, newer)

    assert ids(with_edges(events).transform(exceptions.no_accept)) == {("no_accept", "newer")}


def test_a_gap_is_an_exception_wherever_it_is(spark: SparkSession) -> None:
    first_of_its_shard, later = an_event("lost", 0, reason="7"), an_event("lost", 5, reason="3")
    events = events_frame(spark, first_of_its_shard, delivered(0), later, delivered(5, id="m-2"))

    found = events.transform(exceptions.not_archived).orderBy("accepted_at").collect()

    assert [row["evidence"] for row in found] == [
        f"shard 0: 7 entries before {NOON_MS}-0 were trimmed unread",
        f"shard 0: 3 entries before {NOON_MS + 5_000}-0 were trimmed unread",
    ]


def test_what_waits_since_a_gap_at_the_beginning_of_its_shard_is_unknown(spark: SparkSession) -> None:
    gap = an_event("lost", 9, shard=1, reason="7", place=-1)
    events = events_frame(spark, delivered(0), gap, delivered(9, shard=1, id="m-2", to="eve"))
    mailboxes = mailboxes_frame(
        spark,
        in_mailbox(-5, shard=1, id="before the archive", to="eve"),
        in_mailbox(5, shard=1, id="in the gap", to="eve"),
        in_mailbox(-5, shard=0, id="before its shard"),
    )

    known = mailboxes.join(events.transform(edges), on="shard", how="left")

    assert ids(known.transform(exceptions.unknown)) == {("unknown", "in the gap")}


def test_a_message_that_came_again_after_its_end_is_not_doubled(spark: SparkSession) -> None:
    events = events_frame(spark, delivered(0), delivered(10, seq=2), delivered(9, id="m-2"), delivered(10, id="m-2"))

    assert ids(with_edges(events).transform(exceptions.doubled)) == {("doubled", "m-2")}


def test_a_thread_may_start_again_after_the_ttl_and_never_before(spark: SparkSession) -> None:
    week = 7 * DAY_S
    events = events_frame(
        spark,
        delivered(0, id="1", thread="again"),
        delivered(1, id="2", seq=2, thread="again"),
        delivered(week + 2, id="3", seq=1, thread="again"),
        delivered(0, id="4", seq=8, thread="on"),
        delivered(week + 1, id="5", seq=9, thread="on"),
        delivered(0, id="6", seq=8, thread="skips"),
        delivered(week + 1, id="7", seq=11, thread="skips"),
        delivered(0, id="8", seq=8, thread="starts late"),
        delivered(week + 1, id="9", seq=3, thread="starts late"),
    )

    found = with_edges(events).transform(numbered).transform(holes(TTL_MS)).transform(exceptions.hole)

    assert ids(found) == {("hole", "7"), ("hole", "9")}


def test_numbers_of_different_lanes_count_together(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        delivered(0, id="1"),
        delivered(1, id="2", seq=2, priority=9, entry=f"{NOON_MS - 500}-0p9"),
        delivered(2, id="3", seq=3),
    )

    assert with_edges(events).transform(numbered).transform(holes(TTL_MS)).isEmpty()


def test_a_revived_message_keeps_its_number_without_a_hole(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        delivered(0, id="1", seq=7),
        delivered(1, id="2", seq=8),
        a_life(("revived", 5), ("acked", 6), id="0", seq=2),
    )

    assert with_edges(events).transform(numbered).transform(holes(TTL_MS)).isEmpty()


def test_a_message_is_stuck_only_when_a_sweep_should_have_ended_it(spark: SparkSession) -> None:
    mailboxes = mailboxes_frame(spark, in_mailbox(0, ttl_s=60, id="old"), in_mailbox(0, ttl_s=200, id="young"))

    found = mailboxes.transform(exceptions.stuck(NOON_MS + 400_000, sweep_ms=300_000))

    assert ids(found) == {("stuck", "old")}


def test_a_number_that_a_blocked_message_got_leaves_no_hole(spark: SparkSession) -> None:
    entry = f"{NOON_MS + 1_000}-0"
    events = events_frame(
        spark,
        delivered(0, id="1"),
        an_event("refused", 1, id="2", seq=2, reason="blocked", entry=entry),
        delivered(2, id="3", seq=3),
    )

    numbers = with_edges(events).transform(numbered).unionByName(events.transform(blocked))

    assert numbers.transform(holes(TTL_MS)).isEmpty()
