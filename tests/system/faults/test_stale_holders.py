"""Only the holder settles: calls that reach the store late, or twice, are not taken for somebody else's success."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.agents import until
from tests.callers import caller
from tests.proxy import CutProxy
from tests.system.conftest import STARTS_WITHIN_S, Instance, Room

pytestmark = pytest.mark.xdist_group("store failures")

SETTINGS = {"recheck_s": 0.3, "heartbeat_s": 2}


@pytest.fixture
async def proxy(room: Room) -> AsyncIterator[CutProxy]:
    async with CutProxy(room.relay.server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(room: Room, proxy: CutProxy) -> AsyncIterator[Instance]:
    """An instance that reaches the store through the proxy, which this loop serves."""
    with Instance(**(room.relay.settings | {"redis_url": proxy.url})) as instance:
        await until(lambda: instance.events("serving"), within_s=STARTS_WITHIN_S)
        await instance.is_ready()
        yield instance
        instance.kill()


async def test_of_two_holders_only_one_is_told_that_it_acked(room: Room, proxy: CutProxy, far: Instance) -> None:
    alice, near, slow = caller(room, "alice"), caller(room, "bob"), caller(room, "bob", at=far)
    await alice.send("bob", "m-1")
    first = await slow.lease_one(ack_timeout_s=1)

    proxy.hold_requests = True
    stale = asyncio.create_task(slow.settle("ack", first))
    second = await near.lease_one(wait_s=20)
    won = await near.settle("ack", second)
    proxy.hold_requests = False
    proxy.cut()
    lost = await stale

    assert (won.status, lost.status) == (200, 404)


async def test_a_stale_reject_is_not_confirmed(room: Room, proxy: CutProxy, far: Instance) -> None:
    alice, near, slow = caller(room, "alice"), caller(room, "bob"), caller(room, "bob", at=far)
    await alice.send("bob", "m-1")
    first = await slow.lease_one(ack_timeout_s=1)

    proxy.hold_requests = True
    stale = asyncio.create_task(slow.settle("nack", first, retry=False))
    second = await near.lease_one(wait_s=20)
    proxy.hold_requests = False
    proxy.cut()
    lost = await stale

    assert lost.said == (409, "lock_lost")
    assert room.holders("bob")[second["entry"]][1] == 2
    assert (await near.settle("ack", second)).status == 200


async def test_a_stale_reply_is_not_confirmed(room: Room, proxy: CutProxy, far: Instance) -> None:
    alice, near, slow = caller(room, "alice"), caller(room, "bob"), caller(room, "bob", at=far)
    await slow.send("carol", "first")  # the rate limit has been asked for more than this one
    await alice.send("bob", "q-1", request=True)
    first = await slow.lease_one(ack_timeout_s=1)

    proxy.hold_requests = True
    stale = asyncio.create_task(slow.settle("reply", first, payload="late"))
    second = await near.lease_one(wait_s=20)
    won = await near.settle("reply", second, payload="in time")
    proxy.hold_requests = False
    proxy.cut()
    lost = await stale

    assert (won.status, lost.status) == (200, 404)
    assert (await alice.get("/v1/tasks/q-1", wait_s=5))["reply"] == "in time"
