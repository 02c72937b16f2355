"""The doctor on a real server: every broken set-up is found by name, and of a clean one nothing is said."""

import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis

from relay.doctor.examine import Examined, examine
from relay.doctor.finding import Finding
from relay.settings import Settings
from relay.store.keys import SCHEMA
from relay.store.store import open_store
from relay.store.watching import checkup
from tests.builders import ALICE, BOB, NOON_MS, Desk, a_message, open_desk
from tests.servers import RealCluster, RealServer
from workers.loop import go_round
from workers.main import workers
from workers.metrics import WorkerMetrics

Seed = Callable[["Patient"], Awaitable[None]]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as server:
        yield server


class Patient:
    """A store in good order, which a test breaks in one way."""

    def __init__(self, desk: Desk, client: redis.Redis) -> None:
        self.desk = desk
        self.redis: Any = client
        self.keys = desk.keys
        self.box = desk.keys.box(BOB)
        self._configured: dict[str, str] = {}

    def configure(self, name: str, value: str) -> None:
        self._configured.setdefault(name, self.redis.config_get(name)[name])
        self.redis.config_set(name, value)

    def restore(self) -> None:
        for name, value in self._configured.items():
            self.redis.config_set(name, value)

    async def examined(self, **options: Any) -> list[Finding]:
        every_s = {name: worker.every_s for name, worker in workers(self.desk.store.settings).items()}
        return [finding async for finding in examine(self.desk.store, every_s, Examined(), **options)]


@pytest.fixture
async def patient(server: RealServer) -> AsyncIterator[Patient]:
    """Agents with mail, holds and dead letters, and workers that have done their duty."""
    with server.client() as client:
        async with open_desk(server, shards=2, max_connections=10) as desk:
            desk.clock.advance(time.time() - NOON_MS / 1_000)
            await desk.store.check()
            bob = await desk.join(BOB)
            await desk.send(*(a_message(f"m-{n}") for n in range(250)))
            taken = await desk.take(bob, room=100)
            await desk.ack(bob, *(row.entry for row in taken[:20]))
            await desk.nack(bob, taken[20].entry, retry=False)
            await desk.nack(bob, taken[21].entry, delay_s=3_600)
            await desk.send(*(a_message(f"p-{n}", to=ALICE, priority=9) for n in range(3)), sender=BOB)
            for worker in workers(desk.store.settings).values():
                if not worker.after_s:
                    await go_round(desk.store, worker, WorkerMetrics("w-1", []))
            for name in ("reaper", "idle"):  # which wait for a while before their first round
                client.set(desk.keys.lease(name), "w-1")
            listening = client.pubsub(ignore_subscribe_messages=True)
            listening.subscribe(*(desk.keys.wake_prefix(shard) + desk.store.instance for shard in range(2)))
            patient = Patient(desk, client)
            yield patient
            patient.restore()
            listening.close()


async def test_of_a_clean_set_up_nothing_is_said(patient: Patient) -> None:
    assert await patient.examined() == []


def configured(name: str, value: str) -> Seed:
    async def seed(patient: Patient) -> None:
        patient.configure(name, value)

    return seed


async def nearly_full(patient: Patient) -> None:
    patient.configure("maxmemory", str(int(patient.redis.info("memory")["used_memory"] / 0.8)))


async def full(patient: Patient) -> None:
    patient.configure("maxmemory", str(int(patient.redis.info("memory")["used_memory"] / 0.95)))


async def ghosts(patient: Patient) -> None:
    held = patient.redis.xpending_range(patient.box, "agent", "-", "+", 1)[0]["message_id"]
    head = patient.redis.xrange(patient.box, held, held)[0][1]["head"]
    patient.redis.hdel(patient.keys.ids(patient.keys.shard(BOB)), "\t".join(head.split("\t")[:4]))
    patient.redis.xdel(patient.box, held)


async def stranded(patient: Patient) -> None:
    held = patient.redis.xpending_range(patient.box, "agent", "-", "+", 1)[0]["message_id"]
    patient.redis.xack(patient.box, "agent", held)


async def stranded_on_the_last_page(patient: Patient) -> None:
    last = patient.redis.xrevrange(patient.box, count=1)[0][0]
    patient.redis.xgroup_setid(patient.box, "agent", last)


async def unindexed(patient: Patient) -> None:
    patient.redis.hdel(patient.keys.ids(patient.keys.shard(BOB)), "acme\tbob\talice\tm-200")


async def lost_ids(patient: Patient) -> None:
    patient.redis.hset(patient.keys.ids(patient.keys.shard(BOB)), "acme\tbob\talice\tnowhere", "5-5p3")


async def orphaned(patient: Patient) -> None:
    held = patient.redis.xpending_range(patient.box, "agent", "-", "+", 1)[0]["message_id"]
    patient.redis.xclaim(patient.box, "agent", "gone.1", 0, [held])


async def leaked(patient: Patient) -> None:
    patient.redis.xgroup_createconsumer(patient.box, "agent", "gone.1")


async def overdue(patient: Patient) -> None:
    patient.redis.zadd(patient.keys.due(0), {f"hold\t{BOB}\t1-1": time.time() * 1_000 - 120_000})


async def unswept(patient: Patient) -> None:
    patient.redis.zadd(patient.keys.waiting(1), {"acme/old": time.time() * 1_000 - 40 * 86_400_000})


async def stuck_outbox(patient: Patient) -> None:
    patient.redis.delete(patient.keys.outbox(1))
    patient.redis.xadd(patient.keys.outbox(1), {"receipts": "x"}, id="1-1")


async def dead_instance(patient: Patient) -> None:
    patient.redis.hset(patient.keys.instances(0), "gone", 5)


async def deaf_instance(patient: Patient) -> None:
    patient.redis.hset(patient.keys.instances(1), "deaf", int(time.time() * 1_000) + 60_000)


async def archive_behind(patient: Patient) -> None:
    patient.redis.set(patient.keys.archived(patient.keys.shard(BOB)), f"{int(time.time() * 1_000) - 7_200_000}-0")


async def failing_worker(patient: Patient) -> None:
    await patient.desk.store.workers.report("sweeper", "a bad member")


async def absent_worker(patient: Patient) -> None:
    patient.redis.hset(patient.keys.rounds, "overdue", f"{int(time.time() * 1_000) - 120_000}\tw-1\t0\t1\t0.5")


async def never_a_worker(patient: Patient) -> None:
    patient.redis.hdel(patient.keys.rounds, "receipts")
    patient.redis.delete(patient.keys.lease("receipts"))


async def other_shards(patient: Patient) -> None:
    patient.redis.hset(patient.keys.meta, "shards", "16")


async def other_schema(patient: Patient) -> None:
    patient.redis.hset(patient.keys.meta, "schema", str(SCHEMA + 2))


async def full_of_dead_letters(patient: Patient) -> None:
    fields = patient.redis.xrange(patient.keys.dead(BOB))[0][1]
    pipe = patient.redis.pipeline()
    for _ in range(1_000):
        pipe.xadd(patient.keys.dead(BOB), fields)
    pipe.execute()


async def record_that_waits(patient: Patient) -> None:
    patient.redis.xadd(patient.box, {"head": "no", "opts": "such", "body": "thing"})


async def records_set_aside(patient: Patient) -> None:
    patient.redis.hset(patient.keys.totals(1), "unreadable", 3)


BROKEN: dict[str, tuple[Seed, str]] = {
    "a server that evicts": (configured("maxmemory-policy", "allkeys-lru"), "eviction"),
    "no append-only file": (configured("appendonly", "no"), "append_only"),
    "a log that is not flushed": (configured("appendfsync", "no"), "append_only"),
    "a log that is not flushed while it is rewritten": (configured("no-appendfsync-on-rewrite", "yes"), "append_only"),
    "little memory left": (nearly_full, "memory"),
    "no memory left": (full, "memory"),
    "a small buffer for wakes": (configured("client-output-buffer-limit", "pubsub 1048576 0 0"), "buffers"),
    "a limit for answers": (configured("client-output-buffer-limit", "normal 1048576 0 0"), "buffers"),
    "a small buffer for commands": (configured("client-query-buffer-limit", "1048576"), "query_buffers"),
    "few connections": (configured("maxclients", "50"), "clients"),
    "clients that may be cut off": (configured("maxmemory-clients", "10mb"), "clients"),
    "large nodes": (configured("stream-node-max-bytes", "4096"), "stream_nodes"),
    "old ids that are freed at once": (configured("lazyfree-lazy-expire", "no"), "lazy_expiry"),
    "connections that end when they are quiet": (configured("timeout", "2"), "timeouts"),
    "connections that never end": (configured("tcp-keepalive", "0"), "timeouts"),
    "scripts that refuse others": (configured("busy-reply-threshold", "50"), "timeouts"),
    "holds of entries that are gone": (ghosts, "ghosts"),
    "an entry that nobody will get": (stranded, "stranded"),
    "many of them, over several pages": (stranded_on_the_last_page, "stranded"),
    "an entry that the index has not": (unindexed, "unindexed"),
    "an entry that only the index has": (lost_ids, "lost_ids"),
    "a hold without a session": (orphaned, "orphaned"),
    "a consumer without a session": (leaked, "leaked_consumers"),
    "a record that cannot be read": (record_that_waits, "unreadable"),
    "records that were set aside": (records_set_aside, "records_unreadable"),
    "holds that do not end": (overdue, "overdue"),
    "messages past their TTL": (unswept, "unswept"),
    "receipts that go nowhere": (stuck_outbox, "outbox"),
    "an instance that died": (dead_instance, "dead_instances"),
    "an instance that hears nothing": (deaf_instance, "deaf"),
    "an archive that is behind": (archive_behind, "archive_lag"),
    "a worker that fails": (failing_worker, "worker_failing"),
    "a worker that is gone": (absent_worker, "worker_missing"),
    "a worker that never was": (never_a_worker, "worker_missing"),
    "another number of shards": (other_shards, "shards"),
    "another schema": (other_schema, "schema"),
    "a full dead-letter box": (full_of_dead_letters, "dead_letters_full"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_set_up_is_found_by_name_and_nothing_else_is(patient: Patient, name: str) -> None:
    seed, check = BROKEN[name]
    await seed(patient)

    found = await patient.examined()

    assert {finding.check for finding in found} == {check}, found
    assert all(finding.fix for finding in found)


@pytest.mark.parametrize(
    "name",
    [
        *("a server that evicts", "a log that is not flushed", "large nodes", "a small buffer for wakes"),
        *("connections that never end", "few connections", "clients that may be cut off", "a limit for answers"),
        *("holds of entries that are gone", "a hold without a session", "a consumer without a session"),
        *("an entry that only the index has", "an entry that nobody will get", "records that were set aside"),
    ],
)
async def test_the_command_that_it_names_mends_it(patient: Patient, name: str) -> None:
    await BROKEN[name][0](patient)
    found = await patient.examined()
    assert len(found) == 1

    for _ in range(2):  # a hold that is released leaves its consumer, which is another finding
        for finding in found:
            _carry_out(finding.fix, patient.redis)
        found = await patient.examined()

    assert found == []


def _carry_out(fix: str, client: Any) -> None:
    for line in fix.partition(", while")[0].split(" && "):
        if "REWRITE" not in line:
            client.execute_command(*_words(line.removeprefix("redis-cli ")))


def _words(line: str) -> list[str]:
    """As a shell would split it; $'…' has escapes."""
    return [word.removeprefix("$").replace("\\t", "\t") for word in shlex.split(line)]


async def test_a_clock_that_differs_is_found(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    here = time.time
    monkeypatch.setattr(checkup.time, "time", lambda: here() - 90)

    (finding,) = await patient.examined()

    assert finding.check == "clock"
    assert "90.0 s ahead" in finding.what


@pytest.mark.parametrize("promised", ["fsync", "replica"])
async def test_a_promise_that_the_server_does_not_keep_is_found(server: RealServer, promised: str) -> None:
    async with open_desk(server, durability=promised) as desk:
        found = [finding async for finding in examine(desk.store, {}, Examined())]

    assert [finding.check for finding in found] == ["durability"]


async def test_replication_is_looked_at_from_both_sides() -> None:
    with RealServer() as server, RealServer() as replica, replica.client() as client, server.client() as master:
        client.replicaof("127.0.0.1", server.port)
        _until(lambda: master.info("replication")["connected_slaves"] == 1)
        _until(lambda: client.info("replication")["master_link_status"] == "up")
        urls, chosen = (server.url, replica.url), Settings()
        async with open_store(chosen, urls[0]) as at_master, open_store(chosen, urls[1]) as at_replica:
            unsafe = [one async for one in examine(at_master, {}, Examined())]
            wrong = [one async for one in examine(at_replica, {}, Examined())]
        client.execute_command("REPLICAOF", "NO", "ONE")

    assert (unsafe[0].check, unsafe[0].what.partition(" ")[0]) == ("replication", "min-replicas-to-write")
    assert [one.check for one in wrong] == ["replication"]
    assert "is a replica" in wrong[0].what


async def test_a_server_that_hides_its_settings_is_examined_without_them(server: RealServer) -> None:
    with server.client() as client:
        client.acl_setuser("shy", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-config"])
    examined = Examined()
    async with open_store(Settings(), server.url.replace("redis://", "redis://shy:x@")) as store:
        found = [one async for one in examine(store, {}, examined)]

    assert found == []
    assert examined.config_hidden


async def test_every_master_of_a_cluster_is_examined() -> None:
    with RealCluster() as cluster, cluster.servers[1].client() as client:
        async with open_store(Settings(), cluster.url) as store:
            await store.check()
            clean = [one async for one in examine(store, {}, Examined())]
            client.config_set("maxmemory-policy", "allkeys-lru")
            found = [one async for one in examine(store, {}, Examined())]

    port = cluster.servers[1].port
    assert clean == []
    assert [(one.check, one.what.partition(": ")[0]) for one in found] == [("eviction", f"127.0.0.1:{port}")]
    assert f"redis-cli -h 127.0.0.1 -p {port} CONFIG SET" in found[0].fix


async def test_only_so_many_mailboxes_are_looked_into(patient: Patient) -> None:
    await leaked(patient)

    assert await patient.examined(most_mailboxes=0) == []


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
