"""Records that something else has written into the store, or that are broken: what can be read is served all the same.

Every kind of key gets some. Then each duty of the workers and each step of an instance has its turn, and the doctor.
"""

import logging
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from relay.core.instance.instance import Instance
from relay.core.instance.topics import Topics
from relay.doctor.examine import Examined, examine
from relay.doctor.finding import Finding
from relay.errors import StoreUnavailable
from relay.store import readable
from relay.store.wakes import Wakes
from relay.telemetry.logs import Seldom
from relay.telemetry.metrics import Metrics
from tests.builders import ALICE, BOB, NOON_MS, Desk, a_message, open_desk
from tests.servers import RealServer
from workers.main import workers

BROKEN = [
    *(b"\xff\xfe", b"", b"\t\t\t\t", b"a\tb\tc\td\te\tf\tg", b"9" * 5_000, b"-1", b"1e999", b"\xff\t\xff\t1-1"),
    *(b"{", b"[]", b'{"at_ms":"x"}', b'"\\ud800"', msgspec.msgpack.encode([1, "x"]), b"hold\tacme/bob\tx", b"1\n\n2\t"),
]
ZOES = [f"acme/zoe-{n}" for n in range(len(BROKEN))]
HASHES = (
    *("ids", "bytes", "lanes", "presence", "windows", "paused", "instances", "blocks", "agents", "caps", "limits"),
    *("calls", "totals", "rates", "failures", "drain", "seen", "sums", "shadowed", "pushes"),
)
SETS = ("waiting", "due", "roster", "threads", "shadows", "owing")
STREAMS = ("events", "outbox", "receipts:acme/zoe-0", "dead:acme/zoe-0")
WHOLE_STORE = ("meta", "workers", "rounds", "anomalies:acme", "anomalies:*", "anomaly_totals")
STRINGS = ("observed", "ranking:acme", "ranking:*", "{s00}:archived")


@pytest.fixture
async def desk(redis_server: RealServer) -> AsyncIterator[Desk]:
    async with open_desk(redis_server) as desk:
        desk.clock.advance(time.time() - NOON_MS / 1_000)  # about what the server's clock says, by which it trims
        desk.is_alive(desk.store.instance)
        await desk.store.check()
        yield desk


def break_hash(desk: Desk, key: str) -> None:
    """Broken fields, and agents and others that are called as they should be and have broken values."""
    for n, broken in enumerate(BROKEN):
        desk.redis.hset(key, broken, b"1")
        desk.redis.hset(key, broken + b"!", broken)
        for name in (f"x-{n}", ZOES[n], f"acme\tzoe\talice\tm-{n}", f"acme\t{n}", f"regressed:{n}"):
            desk.redis.hset(key, name, broken)


def break_set(desk: Desk, key: str) -> None:
    for broken in BROKEN:
        desk.redis.zadd(key, {broken: 0})
        desk.redis.zadd(key, {b"acme/" + broken: "inf"})


def break_stream(desk: Desk, key: str) -> None:
    for broken in BROKEN:
        column = broken.replace(b"\t", b"").replace(b"\n", b"")
        for name in ("e1", "e2", "receipts", "reply", "via", "x"):
            desk.redis.xadd(key, {name: broken})
        desk.redis.xadd(key, {"via": b"i.1", "receipts": broken})
        desk.redis.xadd(key, {"count": broken, "receipts": broken})
        for kind in ("accepted", "acked", "dead"):
            columns = [kind.encode(), b"1-1", column, column, b"s", b"", b"5", b"acme", b"bob", b"alice", column]
            desk.redis.xadd(key, {"e1": b"1\ti\n" + b"\t".join(columns)})
            desk.redis.xadd(key, {"e1": column + b"\ti\n" + b"\t".join(columns)})


async def everybody_goes_round(desk: Desk) -> list[Finding]:
    """Every duty, every step of an instance, and the doctor, whose findings are returned."""
    store = desk.store
    duties = workers(store.settings)
    for duty in duties.values():
        await duty.step(store, 0, desk.clock.now_ms())
    instance = Instance(store, Metrics())
    for step in (instance._look, instance._ghosts.look_at_all, instance.membership.renew_lease, instance.duties.look):
        await step()
    await instance.heartbeat.measure_depth()
    await what_a_recheck_reads(desk)
    return [one async for one in examine(store, {name: duty.every_s for name, duty in duties.items()}, Examined())]


async def what_a_recheck_reads(desk: Desk) -> None:
    """Of agents with sessions: here of those whose records are broken."""
    store = desk.store
    await store.agents.keys_of(0, ZOES)
    await store.presence.registered(0, ZOES)
    await store.presence.seen(ZOES)
    await store.taking.pushed(0, ZOES)
    await store.receipts.waiting(ZOES)
    await store.agents.describe(ZOES, most_sessions=10)


async def are_served(desk: Desk, caplog: pytest.LogCaptureFixture) -> list[Finding]:
    await desk.send(a_message("m-1"), a_message("m-2", ttl_s=60))
    bob = await desk.join(BOB)
    first, second = await desk.take(bob, room=2)
    await desk.nack(bob, second.entry, delay_s=0)
    await desk.ack(bob, first.entry)
    desk.clock.advance(120)
    desk.is_alive(desk.store.instance)
    findings = await everybody_goes_round(desk)

    ended = [await desk.store.lookup.where(ALICE, BOB, name) for name in ("m-1", "m-2")]
    assert [status and status.state for status in ended] == ["acked", "expired"]
    assert [receipt["id"] for receipt in await desk.receipts()] == ["m-1"]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    return findings


@pytest.mark.parametrize("kind", HASHES)
async def test_a_broken_hash(kind: str, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    break_hash(desk, desk.keys.tag(0) + kind)

    await are_served(desk, caplog)


@pytest.mark.parametrize("kind", SETS)
async def test_a_broken_sorted_set(kind: str, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    break_set(desk, desk.keys.tag(0) + kind)

    await are_served(desk, caplog)


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_broken_stream(kind: str, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    break_stream(desk, desk.keys.tag(0) + kind)

    await are_served(desk, caplog)


@pytest.mark.parametrize("kind", WHOLE_STORE)
async def test_a_broken_hash_of_the_whole_store(kind: str, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    break_hash(desk, f"{desk.keys.prefix}:{kind}")

    await are_served(desk, caplog)


@pytest.mark.parametrize("kind", STRINGS)
async def test_a_broken_string(kind: str, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    await are_served(desk, caplog)

    for broken in BROKEN:
        desk.redis.set(f"{desk.keys.prefix}:{kind}", broken)
        await everybody_goes_round(desk)

    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_entries_of_a_mailbox_that_are_no_messages_are_set_aside(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    box, kinds = desk.keys.box(ZOES[0]), ("hold", "park", "ttl", "bury")
    for broken in BROKEN:
        for fields in ({"x": broken}, {"head": broken, "opts": broken, "body": broken}):
            entry = desk.redis.xadd(box, fields)
            desk.redis.zadd(desk.keys.due(0), {f"{kind}\t{ZOES[0]}\t{entry}": 0 for kind in kinds})
    desk.redis.zadd(desk.keys.waiting(0), {ZOES[0]: 0})
    desk.redis.zadd(desk.keys.roster(0), {ZOES[0]: 0})

    findings = await are_served(desk, caplog)

    assert (desk.redis.xlen(box), desk.redis.xlen(desk.keys.dead(ZOES[0]))) == (0, 2 * len(BROKEN))
    assert "records_unreadable" in [finding.check for finding in findings]


async def test_notes_of_what_is_owed_that_are_broken(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.redis.zadd(desk.keys.owing(0), {ZOES[0]: 0})
    desk.redis.rpush(desk.keys.owed(ZOES[0]), *BROKEN)

    await are_served(desk, caplog)

    assert desk.redis.exists(desk.keys.owed(ZOES[0])) == 0


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
async def test_a_broken_publication_is_heard_by_nobody(broken: bytes, desk: Desk) -> None:
    heard: list[Wakes] = []
    subscriber = desk.store.subscriber(heard.append, Topics().published, lambda: None)

    for data in (broken, b"\0" + broken, b"\1" + broken, b"mail\tacme/bob\t\t" + broken, b"left\ti.1\t" + broken):
        subscriber._heard(0, data)
    subscriber._published("acme", broken)
    for wakes in heard:
        Instance(desk.store, Metrics())._wakes.dispatch(wakes)


@pytest.mark.parametrize("broken", [b"\xff", b"{", b"[]"])
async def test_a_registration_that_nobody_can_read_lets_nobody_in_and_stays(broken: bytes, desk: Desk) -> None:
    desk.redis.hset(desk.keys.agents(0), BOB, broken)

    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await desk.store.agents.is_key_of("a key", BOB)

    assert desk.redis.execute_command("HGET", desk.keys.agents(0), BOB, NEVER_DECODE=True) == broken


async def test_what_cannot_be_read_is_counted_and_the_doctor_says_where(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable, "log", Seldom(logging.getLogger("relay.store")))
    desk.redis.zadd(desk.keys.due(0), {b"\xff": 0, b"hold\tacme/bob": 0})
    desk.redis.hset(desk.keys.instances(0), b"\xff", b"1")

    findings = await are_served(desk, caplog)

    told = {finding.what for finding in findings if finding.check == "unreadable"}
    assert told == {
        f"2 records of {desk.keys.due(0)} cannot be read: they are left out of everything",
        f"1 records of {desk.keys.instances(0)} cannot be read: they are left out of everything",
    }
    assert "record_unreadable" in caplog.messages


async def test_many_broken_records_do_not_stand_before_the_others(desk: Desk) -> None:
    desk.redis.zadd(desk.keys.due(0), {b"\xff%d" % n: 0 for n in range(500)})
    desk.redis.zadd(desk.keys.due(0), {b"ttl\tacme/bob\t1-1": 1})

    assert await desk.store.overdue.due_entries(0, desk.clock.now_ms(), 200) == ["ttl\tacme/bob\t1-1"]


async def test_a_page_of_agents_is_full_also_where_some_names_cannot_be_read(desk: Desk) -> None:
    names = [f"acme/a-{n}" for n in range(5)]
    desk.redis.zadd(desk.keys.roster(0), dict.fromkeys([*names, b"acme/a-1\xff", b"acme/a-2\xff\xff", b"acme/\xff"], 0))

    first = await desk.store.roster.page(0, "acme", "", 3)
    rest = await desk.store.roster.page(0, "acme", first[-1], 3)

    assert first + rest == names
