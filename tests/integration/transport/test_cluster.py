"""A store on three masters: everything works wherever its shard is, and wherever that moves to."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from relay.errors import ConfigurationError, StoreUnavailable
from relay.settings import Settings
from relay.store.redis.servers import master
from relay.store.redis.servers.slots import slot_of
from relay.store.store import open_store
from tests.agents import until
from tests.builders import Desk, a_message, delivered, open_desk
from tests.clusters import Cluster, say
from tests.servers import RealServer

pytestmark = pytest.mark.xdist_group("cluster")

SHARDS = 12
AT_ONCE_S = 1.0  # longer than any answer takes, and far shorter than what a dead master is waited for


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def desk(cluster: Cluster) -> AsyncIterator[Desk]:
    async with open_desk(cluster, shards=SHARDS) as desk:
        yield desk


def address_in(desk: Desk, shard: int) -> str:
    return next(name for n in range(10_000) if desk.keys.shard(name := f"acme/r{n}") == shard)


def slot(desk: Desk, shard: int) -> int:
    return slot_of(desk.keys.tag(shard))


def another(cluster: Cluster, *than: RealServer) -> RealServer:
    return next(node for node in cluster.masters() if node not in than)


@asynccontextmanager
async def moving(cluster: Cluster, slot: int, to: RealServer) -> AsyncIterator[None]:
    """All keys of the slot are on their way, until the context ends."""
    source = cluster.master_of(slot)
    cluster.begin_move(slot, source, to)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.move_keys, slot, source, to)
        cluster.end_move(slot, source, to)


async def whole_life(desk: Desk, to: str, id: str = "m-1") -> None:
    """From send to receipt."""
    assert (await desk.send_one(a_message(id, to))).word == "stored"
    session = await desk.join(to)
    (taken,) = await desk.take(session)
    assert await desk.ack(session, taken.entry) == {}
    assert await desk.leave(session)


# -- everywhere


async def test_a_message_lives_its_life_in_every_shard(desk: Desk, cluster: Cluster) -> None:
    addresses = [address_in(desk, shard) for shard in range(SHARDS)]

    for to in addresses:
        await whole_life(desk, to)

    assert {cluster.master_of(slot(desk, shard)) for shard in range(SHARDS)} == set(cluster.servers)
    assert sorted(receipt["to"] for receipt in await desk.receipts()) == sorted(addresses)


async def test_what_has_no_shard_has_a_place(desk: Desk) -> None:
    assert await desk.store.inspect()
    assert not await desk.store.inspect()

    assert await desk.store.workers.lease("sweeper", "w1", 60_000)
    assert not await desk.store.workers.lease("sweeper", "w2", 60_000)
    await desk.store.presence.renew(60_000)
    await desk.store.memory.look()
    await desk.store.ping()


async def test_every_master_is_looked_at(desk: Desk, cluster: Cluster) -> None:
    with cluster.servers[1].client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            await desk.store.inspect()
        finally:
            client.config_set("maxmemory-policy", "noeviction")

    assert desk.store.safety is not None
    assert "noeviction" in str(desk.store.safety.reason)


async def test_wakes_and_topics_are_heard_from_every_master(desk: Desk) -> None:
    mail: list[str] = []
    topics: list[tuple[str, bytes]] = []
    wholes: list[int] = []
    subscriber = desk.store.subscriber(
        lambda wakes: mail.extend(line[1] for line in wakes.lines if line[0] == "mail"),
        lambda tenant, data: topics.append((tenant, data)),
        lambda: wholes.append(1),
    )
    addresses = [address_in(desk, shard) for shard in range(SHARDS)]
    tenants = [f"t{n}" for n in range(9)]
    for to in addresses:
        await desk.join(to)
    running = asyncio.create_task(subscriber.run())
    for tenant in tenants:
        subscriber.follow(tenant)
    await until(lambda: subscriber.heard_share == 1 and len(wholes) >= 3, "every master is listened to")

    for to in addresses:
        await desk.send_one(a_message("m-1", to))
    subscriber.unfollow(tenants[0])
    await until(lambda: sorted(set(mail)) == sorted(addresses), "all are woken")
    for tenant in tenants:
        await desk.store.topics.publish(tenant, b"news")

    await until(lambda: len(topics) == len(tenants) - 1)
    assert sorted(topics) == [(tenant, b"news") for tenant in tenants[1:]]
    running.cancel()
    await asyncio.wait((running,))


async def test_a_wiped_script_cache_is_filled_again(desk: Desk, cluster: Cluster) -> None:
    await whole_life(desk, address_in(desk, 0))
    for node in cluster.servers:
        say(node, "SCRIPT FLUSH")

    for shard in range(SHARDS):
        await whole_life(desk, address_in(desk, shard), "m-2")


async def test_one_node_by_itself_is_not_the_store(cluster: Cluster) -> None:
    async with open_store(Settings(), cluster.servers[0].url) as store:
        with pytest.raises(ConfigurationError, match="use redis\\+cluster://"):
            await store.check()


# -- slots that move


async def test_a_shard_is_followed_to_another_master(desk: Desk, cluster: Cluster) -> None:
    to = address_in(desk, 3)
    await desk.send(*(a_message(f"m-{n}", to) for n in range(20)))
    old = cluster.master_of(slot(desk, 3))

    await asyncio.to_thread(cluster.move, slot(desk, 3), another(cluster, old))
    began = time.monotonic()
    again, fresh = await desk.send(a_message("m-7", to), a_message("m-20", to))

    assert time.monotonic() - began < AT_ONCE_S
    assert (again.word, fresh.word) == ("duplicate", "stored")
    session = await desk.join(to)
    assert len(await desk.take(session, room=100)) == 21
    assert await desk.store.presence.registered(3, [to]) != [{}]


async def test_a_shard_on_its_way_waits_and_no_other_does(desk: Desk, cluster: Cluster) -> None:
    moved = slot(desk, 5)
    to, others = address_in(desk, 5), [address_in(desk, shard) for shard in range(SHARDS) if slot(desk, shard) != moved]
    await desk.send_one(a_message("m-0", to))

    async with moving(cluster, moved, another(cluster, cluster.master_of(moved))):
        stuck = asyncio.create_task(desk.send(*(a_message(f"m-{n}", to) for n in (1, 2, 3))))
        began = time.monotonic()
        for other in others:
            await whole_life(desk, other, "meanwhile")
        took_s = time.monotonic() - began
        was_stuck = not stuck.done()
        later = asyncio.create_task(desk.send(*(a_message(f"m-{n}", to) for n in (4, 5))))
        await asyncio.sleep(0)

    assert [answer.word for answer in await stuck + await later] == ["stored"] * 5
    assert was_stuck
    assert took_s < AT_ONCE_S * 3
    session = await desk.join(to)
    assert [delivered(taken)["id"] for taken in await desk.take(session)] == [f"m-{n}" for n in range(6)]


async def test_a_key_that_has_moved_ahead_is_asked_for_where_it_is(desk: Desk, cluster: Cluster) -> None:
    moved = slot(desk, 7)
    to = address_in(desk, 7)
    await desk.store.presence.expect(to, 1_900_000_000_000)
    target = another(cluster, cluster.master_of(moved))

    async with moving(cluster, moved, target):
        await asyncio.to_thread(cluster.move_keys, moved, cluster.master_of(moved), target)
        seen = await desk.store.presence.seen([to])

    assert seen[to].next_active_at_ms == 1_900_000_000_000


async def test_settling_is_done_once_while_its_shard_moves(desk: Desk, cluster: Cluster) -> None:
    to = address_in(desk, 2)
    session = await desk.join(to)
    await desk.send(*(a_message(f"m-{n}", to) for n in range(200)))
    entries = [taken.entry for taken in await desk.take(session, room=200)]

    async def ack_all() -> list[dict[str, str]]:
        return [await desk.ack(session, entry) for entry in entries]

    acking = asyncio.create_task(ack_all())
    for _ in range(3):
        await asyncio.to_thread(cluster.move, slot(desk, 2), another(cluster, cluster.master_of(slot(desk, 2))))

    assert await acking == [{}] * 200
    assert desk.depth(to) == 0
    assert len(desk.events("acked")) == 200
    assert len(await desk.receipts()) == 200


async def test_wakes_follow_their_shard(desk: Desk, cluster: Cluster) -> None:
    mail: list[str] = []
    wholes: list[int] = []
    subscriber = desk.store.subscriber(
        lambda wakes: mail.extend(line[1] for line in wakes.lines if line[0] == "mail"),
        lambda *_: None,
        lambda: wholes.append(1),
    )
    to = address_in(desk, 9)
    await desk.join(to)
    running = asyncio.create_task(subscriber.run())
    await until(lambda: subscriber.heard_share == 1)

    wholes.clear()
    await asyncio.to_thread(cluster.move, slot(desk, 9), another(cluster, cluster.master_of(slot(desk, 9))))
    await until(lambda: wholes and subscriber.heard_share == 1, "it is heard at its new place, and looked for")
    await desk.send_one(a_message("m-1", to))

    await until(lambda: to in mail)
    running.cancel()
    await asyncio.wait((running,))


# -- masters that are away


async def test_a_dead_master_refuses_by_name_and_delays_no_other(
    desk: Desk, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "GIVE_UP_AFTER_S", 1.0)
    for shard in range(SHARDS):
        await whole_life(desk, address_in(desk, shard))
    dead = cluster.master_of(slot(desk, 0))
    away = [shard for shard in range(SHARDS) if cluster.master_of(slot(desk, shard)) is dead]
    dead.kill()
    try:
        refused = asyncio.create_task(desk.store.presence.registered(away[0], ["acme/anybody"]))
        for shard in sorted(set(range(SHARDS)) - set(away)):
            began = time.monotonic()
            await whole_life(desk, address_in(desk, shard), "without")
            assert time.monotonic() - began < AT_ONCE_S
        with pytest.raises(StoreUnavailable, match=f"for shard {away[0]};"):
            await refused

        assert desk.store.masters_away() == [f"127.0.0.1:{dead.port}"]
        assert desk.store.reached_share() == 1 - len(away) / SHARDS
        await desk.store.memory.look()
    finally:
        dead.start()
    await asyncio.to_thread(cluster.wait_until_whole)
    await until(lambda: desk.store.reached_share() == 1, "it is found again")
    await whole_life(desk, address_in(desk, away[0]), "after")


async def test_a_store_that_is_not_there_yet_is_waited_for(cluster: Cluster) -> None:
    for node in cluster.servers:
        node.pause()
    try:
        async with open_store(Settings(shards=SHARDS), cluster.url) as store:
            asked = asyncio.create_task(store.pipeline.command("HGETALL", "relay:nothing"))
            await asyncio.sleep(0.1)
            was_waiting = not asked.done()
            for node in cluster.servers:
                node.resume()
            assert await asked == []
        assert was_waiting
    finally:
        for node in cluster.servers:
            node.resume()
    await asyncio.to_thread(cluster.wait_until_whole)
