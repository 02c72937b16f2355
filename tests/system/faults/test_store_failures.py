"""The store goes away, stalls, is full, forgets: sessions stay, senders are told, everything resumes by itself."""

import asyncio
import time

import pytest

from tests.agents import message, messages, until
from tests.system.conftest import Instance, Room

pytestmark = [pytest.mark.xdist_group("store failures"), pytest.mark.usefixtures("working_store")]

SETTINGS = {"recheck_s": 0.3, "heartbeat_s": 2}
OPTIONS = {"appendfsync": "always"}
TOLD_WITHIN_S = 12.0  # the relay tries for some seconds before it says so


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


async def test_a_session_that_ends_while_the_store_is_away_does_not_stay_registered(room: Room) -> None:
    bob = await room.agent("bob")
    await bob.drained()
    room.relay.server.kill()
    await _status_becomes(room.a, 503)
    await bob.close()
    await until(lambda: room.a.events("leave_failed"), "the store could not be told", within_s=20)

    room.relay.server.start()
    await _status_becomes(room.a, 200)

    await until(lambda: room.redis.hget(room.keys.presence(room.keys.shard(bob.address)), bob.address) is None)
