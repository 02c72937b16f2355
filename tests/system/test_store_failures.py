"""The store goes away, stalls, is full, forgets: sessions stay, senders are told, everything resumes by itself."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.agents import message, messages, until
from tests.proxy import CutProxy
from tests.system.conftest import STARTS_WITHIN_S, Instance, Room

pytestmark = pytest.mark.xdist_group("store failures")

SETTINGS = {"recheck_s": 0.3, "heartbeat_s": 2}
OPTIONS = {"appendfsync": "always"}
TOLD_WITHIN_S = 12.0  # the relay tries for some seconds before it says so


@pytest.fixture(autouse=True)
async def well_again(room: Room) -> AsyncIterator[None]:
    """Each test starts with a store that works and instances that know it."""
    await room.a.is_ready()
    await room.b.is_ready()
    yield
    if not room.relay.server.is_running:
        room.relay.server.start()


async def test_while_the_server_is_down_senders_are_told_and_sessions_stay(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("before"))
    held = await bob.delivery()

    room.relay.server.kill()
    began = time.monotonic()
    await alice.send(message("m-1"), message("m-2"))
    refused = (await alice.expect("refused", within_s=TOLD_WITHIN_S))["refusals"]
    took_s = time.monotonic() - began
    status, body = await room.a.ready()
    await bob.say("ack", entries=[held["entry"]])
    unsure = (await bob.expect("refused", within_s=TOLD_WITHIN_S))["refusals"]
    await alice.say("presence", agents=["bob"])
    error = await alice.expect("error", within_s=TOLD_WITHIN_S)
    room.relay.server.start()

    assert took_s < TOLD_WITHIN_S
    assert [(one["id"], one["code"], one["retryable"]) for one in refused] == [
        ("m-1", "store_unavailable", True),
        ("m-2", "store_unavailable", True),
    ]
    assert (status, body["status"]) == (503, "not_ready")
    assert body["reason"]
    assert [(one["entry"], one["code"]) for one in unsure] == [(held["entry"], "store_unavailable")]
    assert error["code"] == "store_unavailable"

    await room.a.is_ready()
    await alice.sent(message("m-1"), message("m-2"))
    assert [one["id"] for one in await bob.deliveries(2)] == ["m-1", "m-2"]
    await bob.ack(held)
    assert room.depth("bob") == 2
    assert alice.is_open
    assert bob.is_open


async def test_a_short_restart_is_not_even_noticed_by_senders(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await bob.drained()

    room.relay.server.kill()
    sending = asyncio.create_task(alice.sent(*messages(20)))
    room.relay.server.start()
    await sending

    assert [one["payload"] for one in await bob.deliveries(20)] == list(range(1, 21))


async def test_a_new_session_while_the_server_is_down_is_told_to_come_back(room: Room) -> None:
    room.relay.server.kill()
    late = await room.socket("late")
    await late.expect("hello")
    await late.say("auth", token=room.token("late"))

    error = await late.expect("error", within_s=TOLD_WITHIN_S)
    code = await late.closed()
    room.relay.server.start()

    assert (error["code"], error["retryable"]) == ("store_unavailable", True)
    assert 4_000 <= code < 4_500
    await room.a.is_ready()
    await room.agent("late")


async def test_a_server_that_stalls_and_wakes_stores_nothing_twice(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await bob.drained()

    room.relay.server.pause()
    await alice.send(*messages(10))
    try:
        refused = (await alice.expect("refused", within_s=15))["refusals"]
    finally:
        room.relay.server.resume()
    assert {one["code"] for one in refused} == {"store_unavailable"}
    await room.a.is_ready()
    await alice.sent(*messages(10))
    found = await bob.deliveries(10)
    await bob.ack(*found)
    await bob.settled_down()

    assert sorted(one["id"] for one in found) == sorted(f"m-{n}" for n in range(1, 11))
    assert len(bob.got_deliveries()) == 10
    assert room.depth("bob") == 0


async def test_readyz_follows_the_server(room: Room) -> None:
    room.relay.server.kill()
    try:
        for instance in (room.a, room.b):
            await _status_becomes(instance, 503)
    finally:
        room.relay.server.start()

    for instance in (room.a, room.b):
        await _status_becomes(instance, 200)


async def test_a_store_that_would_evict_is_not_ready(room: Room) -> None:
    room.redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        await _status_becomes(room.a, 503)
        _, body = await room.a.ready()
        assert "noeviction" in body["reason"]
    finally:
        room.redis.config_set("maxmemory-policy", "noeviction")
    await _status_becomes(room.a, 200)


async def test_durability_follows_what_the_server_does(room: Room) -> None:
    room.redis.config_set("appendfsync", "everysec")
    alice = await room.agent("alice")
    try:
        await _durability_becomes(room.a, "memory")
        await alice.send(message("m-1"))
        assert (await alice.expect("accepted"))["durability"] == "memory"
    finally:
        room.redis.config_set("appendfsync", "always")
    await _durability_becomes(room.a, "fsync")


async def test_a_server_without_memory_refuses_sends_and_lets_acks_through(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(3))
    found = await bob.deliveries(3)

    room.redis.config_set("maxmemory", 1)
    try:
        await alice.send(message("m-4"))
        refusal = (await alice.expect("refused", within_s=TOLD_WITHIN_S))["refusals"][0]
    finally:
        room.redis.config_set("maxmemory", 0)

    assert (refusal["id"], refusal["code"], refusal["retryable"]) == ("m-4", "store_unavailable", True)
    await alice.sent(message("m-4"))
    await bob.ack(*found, await bob.delivery())
    assert room.depth("bob") == 0


async def test_forgotten_scripts_are_loaded_again(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    room.redis.script_flush()
    await alice.sent(*messages(5))
    found = await bob.deliveries(5)
    room.redis.script_flush()
    await bob.ack(*found)
    room.redis.script_flush()
    await bob.say("block", agents=["eve"])
    await bob.expect("blocks")

    assert len(await alice.receipts(5)) == 5


async def test_a_lost_consumer_group_heals(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(3))
    held = await bob.deliveries(3)

    room.redis.xgroup_destroy(room.keys.box(bob.address), "agent")
    await alice.sent(message("m-4"))
    again = await room.agent("bob", at=room.b)

    found = await again.deliveries(4)
    assert [one["id"] for one in found] == ["m-1", "m-2", "m-3", "m-4"]
    assert [one["entry"] for one in found[:3]] == [one["entry"] for one in held]
    await again.ack(*found)
    assert room.depth("bob") == 0


async def test_a_lost_consumer_group_heals_also_for_the_session_that_is_there(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    await bob.ack(await bob.delivery())

    room.redis.xgroup_destroy(room.keys.box(bob.address), "agent")
    await alice.sent(message("m-2"))

    one = await bob.delivery()
    assert one["id"] == "m-2"
    await bob.ack(one)


async def test_a_wiped_store_heals_and_says_so_by_its_epoch(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob", at=room.b)
    await alice.sent(message("lost"))
    held = await bob.delivery()

    room.redis.flushall()
    await until(lambda: room.a.events("store_was_wiped") and room.b.events("store_was_wiped"))
    await alice.sent(message("new"))
    one = await bob.delivery()
    await bob.say("ack", entries=[held["entry"]])
    refusal = await bob.refusal()
    later = await room.agent("carol", at=room.b)

    assert one["id"] == "new"
    assert refusal["code"] == "not_found"
    assert later.welcome["epoch"] != alice.welcome["epoch"]
    await bob.ack(one)
    assert (await alice.receipts(1))[0]["id"] == "new"
    await room.a.is_ready()


# -- through a proxy that loses answers


@pytest.fixture
async def proxy(room: Room) -> AsyncIterator[CutProxy]:
    async with CutProxy(room.relay.server.port) as proxy:
        yield proxy


async def _behind(room: Room, proxy: CutProxy) -> Instance:
    """An instance that reaches the store through the proxy, which this loop serves."""
    instance = Instance(**(room.relay.settings | {"redis_url": proxy.url}))
    room.relay._stack.enter_context(instance)
    await until(lambda: instance.events("serving"), within_s=STARTS_WITHIN_S)
    await instance.is_ready()
    return instance


async def test_a_send_whose_answer_is_lost_is_stored_once(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice = await room.agent("alice", at=instance)
    await alice.sent(message("first", to="carol"))  # the rate limit has been asked for more than this one
    sent = messages(20)

    proxy.swallow_from = sent[0]["id"].encode()
    await alice.send(*sent)
    await until(lambda: room.depth("bob") == 20, "the store has them")
    proxy.swallow_replies = False
    proxy.cut()
    await alice.accepted(*(one["id"] for one in sent))

    bob = await room.agent("bob")
    assert await bob.drained() == 20
    assert [one["payload"] for one in bob.got_deliveries()] == list(range(1, 21))
    assert [one["seq"] for one in bob.got_deliveries()] == list(range(1, 21))
    await alice.close()
    instance.kill()


async def test_an_ack_whose_answer_is_lost_is_settled_once(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(*messages(5))
    found = await bob.deliveries(5)

    proxy.swallow_from = found[0]["entry"].encode()
    await bob.say("ack", entries=[one["entry"] for one in found[:3]], confirm=True)
    await until(lambda: room.depth("bob") == 2, "the store has done it")
    proxy.swallow_replies = False
    proxy.cut()
    settled = await bob.expect("settled")

    assert settled["entries"] == [one["entry"] for one in found[:3]]
    assert bob.got("refused") == []
    receipts = await alice.receipts(3)
    assert [one["id"] for one in receipts] == ["m-1", "m-2", "m-3"]
    await bob.ack(*found[3:])
    assert len(await alice.receipts(2)) == 2
    await alice.settled_down()
    assert sum(len(frame["receipts"]) for frame in alice.got("receipts")) == 5
    await bob.close()
    instance.kill()


async def test_a_delivery_whose_answer_is_lost_is_made_again(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await bob.drained()
    await alice.sent(message("before"))
    await bob.ack(await bob.delivery())

    proxy.swallow_from = bob.welcome["session"].encode()
    await alice.sent(*messages(3))
    await until(lambda: room.holders("bob"), "the store has given it")
    proxy.swallow_replies = False
    proxy.cut()
    found = await bob.deliveries(3, within_s=15)
    await bob.ack(*found)

    assert [one["payload"] for one in found] == [1, 2, 3]
    assert {one["attempt"] for one in found} == {1}
    assert room.depth("bob") == 0
    await bob.close()
    instance.kill()


async def test_a_nack_whose_answer_is_lost_counts_once(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(message("n-1"))
    failed = await bob.delivery()

    proxy.swallow_from = failed["entry"].encode()
    await bob.say("nack", entries=[failed["entry"]], delay_s=60, reason="no", confirm=True)
    await until(lambda: room.holders("bob") == {failed["entry"]: ("~parked", 2)}, "the store has done it")
    proxy.swallow_replies = False
    proxy.cut()

    assert (await bob.expect("settled"))["entries"] == [failed["entry"]]
    assert room.holders("bob") == {failed["entry"]: ("~parked", 2)}
    await bob.close()
    instance.kill()


async def test_a_reply_whose_answer_is_lost_arrives_once(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(message("q-1", request=True))
    question = await bob.delivery()

    proxy.swallow_from = question["entry"].encode()
    await bob.say("reply", entry=question["entry"], payload="yes", confirm=True)
    await until(lambda: room.depth("bob") == 0, "the store has done it")
    proxy.swallow_replies = False
    proxy.cut()
    await bob.expect("settled")

    reply = await alice.delivery(within_s=20)
    assert (reply["payload"], reply["reply_to"]) == ("yes", "q-1")
    await alice.settled_down()
    assert len(alice.got_deliveries()) == 1
    await bob.close()
    instance.kill()


async def test_a_connection_that_is_cut_again_and_again_loses_and_doubles_nothing(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice, bob = await room.agent("alice", at=instance), await room.agent("bob", at=instance)
    await bob.drained()
    sending = asyncio.create_task(_send_until_accepted(alice, 200))
    seen: list[int] = []

    for round in range(200):
        if round % 20 == 10:
            proxy.cut()
        one = await bob.delivery(within_s=20)
        seen.append(one["payload"])
        await bob.say("ack", entries=[one["entry"]])
    await sending

    assert sorted(set(seen)) == list(range(200))
    await until(lambda: room.depth("bob") == 0, "all are settled")
    await bob.close()
    await alice.close()
    instance.kill()


async def _send_until_accepted(alice, count: int) -> None:  # type: ignore[no-untyped-def]
    for n in range(count):
        while True:
            await alice.send(message(f"m-{n}", payload=n))
            await until(lambda: any(frame["op"] in ("accepted", "refused") for frame in alice.inbox), within_s=20)
            answer = next(frame for frame in alice.inbox if frame["op"] in ("accepted", "refused"))
            alice.inbox.remove(answer)
            if answer["op"] == "accepted":
                break


async def _status_becomes(instance: Instance, wanted: int) -> None:
    deadline = time.monotonic() + 20
    while (answer := await instance.ready())[0] != wanted:
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


async def _durability_becomes(instance: Instance, wanted: str) -> None:
    deadline = time.monotonic() + 20
    while (answer := await instance.ready())[1]["durability"] != wanted:
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)
