"""Durability `replica`: what the replicas do not have is not promised. A server that risks too much is called risky."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from relay.errors import ConfigurationError, StoreUnavailable
from relay.settings import Settings
from relay.store.mailbox.settle import UNCONFIRMED, Extra, How, Settlement, failure
from relay.store.redis.servers import master as lines
from relay.store.store import open_store
from tests.builders import ALICE, BOB, NOON_MS, a_message, open_desk
from tests.servers import HOST, RealCluster, RealServer


@pytest.fixture
def master() -> Iterator[RealServer]:
    with RealServer({"repl-diskless-sync-delay": "0"}) as server:
        yield server


@pytest.fixture
def replica(master: RealServer) -> Iterator[RealServer]:
    with RealServer() as server:
        with server.client() as client:
            client.replicaof(HOST, master.port)
            deadline = time.monotonic() + 20
            while client.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield server


async def test_what_no_replica_has_is_not_accepted(master: RealServer) -> None:
    async with open_desk(master, durability="replica") as desk:
        alone = await desk.send_one(a_message("m-1"))

    assert alone.word == "unavailable"


@pytest.mark.usefixtures("replica")
async def test_what_a_replica_has_is_accepted(master: RealServer) -> None:
    async with open_desk(master, durability="replica") as desk:
        await desk.store.inspect()
        answer = await desk.send_one(a_message("m-1"))

        assert (answer.word, desk.store.level()) == ("stored", "replica")


async def test_a_replica_that_stops_answering_ends_the_promise_and_gives_it_back(
    master: RealServer, replica: RealServer
) -> None:
    async with open_desk(master, durability="replica") as desk:
        await desk.send_one(a_message("m-1"))

        replica.pause()
        refused = await desk.send_one(a_message("m-2"))
        began = time.monotonic()
        soon = await desk.send_one(a_message("m-3"))
        took_s = time.monotonic() - began
        replica.resume()

        assert (refused.word, soon.word) == ("unavailable", "unavailable")
        assert took_s < lines.REPLICATE_WITHIN_MS / 1_000
        again = await desk.send_one(a_message("m-2"))
        assert again.word == "duplicate"


async def test_reading_needs_no_replica(master: RealServer, replica: RealServer) -> None:
    async with open_desk(master, durability="replica") as desk:
        session = await desk.join(BOB)
        await desk.send_one(a_message("m-1"))
        replica.kill()

        (taken,) = await desk.take(session)

        assert taken.entry


@pytest.mark.parametrize(
    ("how", "extra", "let_go"),
    [("ack", (), True), ("nack", failure("", True, 0), True), ("release", (), True), ("touch", (60_000,), False)],
)
async def test_a_settlement_that_no_replica_has_is_not_confirmed_and_makes_room(
    master: RealServer, replica: RealServer, how: How, extra: Extra, let_go: bool
) -> None:
    async with open_desk(master, durability="replica") as desk:
        session = await desk.join(BOB)
        await desk.send_one(a_message("m-1"))
        (taken,) = await desk.take(session)
        replica.kill()

        answers: asyncio.Queue[dict[str, str] | None] = asyncio.Queue()
        entries = [taken.entry]
        desk.store.settling.settle(Settlement(how, BOB, session.name, entries, answers.put_nowait, extra=extra))

        assert await answers.get() == ({taken.entry: UNCONFIRMED} if let_go else None)


REPLY = f'{ALICE}\t{BOB}\task\t{NOON_MS + 60_000}\tend\t2\t"done"'


@pytest.mark.parametrize("parcel", [[b"receipts", b"acme/alice\t1\t7\n1\tbob\t5"], [b"reply", REPLY.encode()]])
async def test_what_is_forwarded_stays_in_the_outbox_until_a_replica_has_the_copy(
    master: RealServer, parcel: list[bytes]
) -> None:
    async with open_desk(master, durability="replica") as desk:
        origin = desk.redis.xadd(desk.keys.outbox(0), {"parcel": "as above"}).encode()

        desk.store.receipts.forward(0, origin, parcel)
        await desk.store.pipeline.finish()

        assert desk.redis.xlen(desk.keys.outbox(0)) == 1


async def test_an_answer_that_promises_nothing_does_not_wait(master: RealServer) -> None:
    async with open_desk(master, durability="replica") as desk:
        began = time.monotonic()
        await desk.store.pipeline.command("PING")

        assert time.monotonic() - began < lines.REPLICATE_WITHIN_MS / 1_000


async def test_a_registration_that_no_replica_has_is_not_confirmed(master: RealServer) -> None:
    async with open_desk(master, durability="replica") as desk:
        with pytest.raises(StoreUnavailable, match="replicas"):
            await desk.store.pipeline.command("HSET", "key", "field", "value", needs_replicas=True)


@pytest.mark.usefixtures("replica")
async def test_a_replicated_server_without_min_replicas_is_called_risky(
    master: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(Settings(), master.url) as store:
        await store.inspect()
        await store.inspect()
        assert store.safety is not None
        assert "min-replicas-to-write is not set" in store.safety.warnings[0]
        with master.client() as client:
            client.config_set("min-replicas-to-write", 1)

        await store.inspect()

        assert store.safety.warnings == ()
    assert [record.getMessage() for record in caplog.records] == ["store_is_risky"]


@pytest.mark.usefixtures("replica")
async def test_a_master_without_enough_replicas_is_waited_for(master: RealServer) -> None:
    async with open_desk(master) as desk:
        desk.redis.config_set("min-replicas-to-write", 2)
        sending = asyncio.create_task(desk.send_one(a_message("m-1")))
        await asyncio.sleep(0.2)  # the server refuses meanwhile
        desk.redis.config_set("min-replicas-to-write", 1)

        assert (await sending).word == "stored"


async def test_a_node_of_a_cluster_is_refused() -> None:
    with RealCluster() as cluster:
        async with open_store(Settings(), cluster.servers[0].url) as store:
            with pytest.raises(ConfigurationError, match="node of a cluster"):
                await store.check()
