"""A server without memory to give: what frees memory goes on, what only adds is refused."""

from collections.abc import AsyncIterator, Iterator

import pytest

from relay.errors import StoreUnavailable
from tests.builders import ALICE, BOB, Desk, a_message, open_desk
from tests.servers import RealServer
from workers.loop import run_once
from workers.main import workers


@pytest.fixture(scope="module")
def own_server() -> Iterator[RealServer]:
    with RealServer() as server:
        yield server


@pytest.fixture
async def desk(own_server: RealServer) -> AsyncIterator[Desk]:
    """On a server of its own, which has memory until the test says otherwise."""
    with own_server.client() as client:
        client.config_set("maxmemory", 0)
    async with open_desk(own_server, events_keep_s=60) as desk:
        yield desk


def is_full(desk: Desk) -> None:
    """From now on the server refuses every write that may need memory."""
    desk.redis.config_set("maxmemory", 1)


async def test_what_only_adds_is_refused(desk: Desk) -> None:
    puller = await desk.join()
    await desk.send(a_message("m-1", request=True))
    (request,) = await desk.take(puller)
    is_full(desk)

    assert (await desk.send_one(a_message("m-2"))).word == "unavailable"
    assert await desk.reply(puller, request.entry) == "unavailable"
    with pytest.raises(StoreUnavailable):
        await desk.store.agents.register(ALICE, mode="shared")


async def test_a_session_joins_takes_and_acks(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    is_full(desk)

    puller = await desk.join()
    taken = await desk.take(puller)

    assert await desk.ack(puller, *(one.entry for one in taken)) == {}
    assert desk.depth() == 0
    assert [one["state"] for one in await desk.receipts()] == ["delivered", "delivered"]


async def test_a_holder_fails_releases_touches_and_leaves(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"), a_message("m-3"))
    is_full(desk)

    puller = await desk.join(ack_timeout_s=30)
    one, two, three = [taken.entry for taken in await desk.take(puller)]

    assert await desk.nack(puller, one, retry=False) == {}
    assert await desk.release(puller, two) == {}
    assert await desk.touch(puller, three) == {}
    assert await desk.leave(puller)
    assert {owner for owner, _ in desk.holders().values()} == {"~ready"}


async def test_a_sender_takes_back_and_an_agent_is_forgotten(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    is_full(desk)

    assert await desk.cancel("m-1") == "cancelled"
    assert await desk.store.agents.remove(BOB, force=True) == "removed"
    assert desk.depth() == 0


async def test_an_instance_still_says_that_it_is_alive_and_looks_at_the_store(desk: Desk) -> None:
    await desk.store.inspect()
    is_full(desk)

    await desk.store.presence.renew(lease_ms=90_000)

    assert not await desk.store.inspect()
    assert await desk.store.presence.instances(0) == {desk.store.instance: desk.clock.now_ms() + 90_000}


async def test_the_rate_is_still_kept(desk: Desk) -> None:
    is_full(desk)
    granted: list[int | None] = []

    desk.store.rates.spend(ALICE, 1, lambda count, _: granted.append(count))
    await desk.store.pipeline.finish()

    assert granted == [1]


async def test_who_waits_for_a_reply_is_still_told(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "m-1", BOB, 60_000)
    await desk.store.pipeline.finish()
    is_full(desk)

    await desk.store.tasks.follow(ALICE, "m-1")
    await desk.store.tasks.follow(ALICE, "no such task")

    assert desk.redis.hexists(desk.keys.task(ALICE, "m-1"), f"watch:{desk.store.instance}")
    assert not desk.redis.exists(desk.keys.task(ALICE, "no such task"))


async def test_workers_end_trim_and_free_without_any_client(desk: Desk) -> None:
    puller = await desk.join(ack_timeout_s=30)
    await desk.send(a_message("m-1"), a_message("m-2", ttl_s=10), a_message("m-3", to=ALICE))
    await desk.take(puller, room=1)
    is_full(desk)

    desk.clock.advance(desk.store.settings.message_ttl_s + 1)
    for worker in workers(desk.store.settings).values():
        await run_once(desk.store, worker)

    assert desk.depth() == desk.depth(ALICE) == 0
    assert desk.redis.hlen(desk.keys.ids(0)) == 0


async def test_a_worker_keeps_others_from_its_duty(desk: Desk) -> None:
    is_full(desk)
    lease = desk.store.workers.lease

    assert await lease("sweeper", "one", 60_000)
    assert not await lease("sweeper", "two", 60_000)
    assert await lease("sweeper", "one", 60_000)
