"""What time brings, with spans so short that a test can wait for them."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from tests.agents import Agent, message, messages, until
from tests.proxy import CutProxy
from tests.system.conftest import Process, Room

pytestmark = pytest.mark.xdist_group("time")

SETTINGS = {
    "recheck_s": 0.2,
    "heartbeat_s": 0.5,
    "silent_after_s": 1.5,
    "auth_timeout_s": 0.5,
    "sweep_every_s": 0.2,
    "message_ttl_s": 3,
    "dedup_window_s": 2,
}


# -- the connection


async def test_who_does_not_authenticate_in_time_is_closed(room: Room) -> None:
    lazy = await room.socket()

    assert (await lazy.expect("closing"))["code"] == "protocol_violation"
    assert await lazy.closed() == 4503


async def test_a_silent_session_is_closed_and_its_messages_go_back(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.socket("bob", autoping=False)
    await bob.authenticate(token=room.token("bob"))
    await alice.sent(message("m-1"))
    await bob.delivery()

    closing = await bob.expect("closing")
    assert (closing["code"], closing["retry_after_ms"]) == ("silent", 1_000)
    assert await bob.closed() == 4010
    again = await room.agent("bob", at=room.b)
    assert (await again.delivery())["attempt"] == 1


async def test_a_session_that_answers_pings_stays(room: Room) -> None:
    quiet, silent = await room.agent("quiet"), await room.socket("silent", autoping=False)
    await silent.authenticate(token=room.token("silent"))

    assert await silent.closed() == 4010

    await quiet.settled_down()


async def test_a_session_ends_with_its_token(room: Room) -> None:
    alice = await room.agent("alice", ttl_s=1)

    assert (await alice.expect("closing"))["code"] == "token_expired"
    assert await alice.closed() == 4511


async def test_a_fresh_token_in_time_keeps_the_session(room: Room) -> None:
    alice, other = await room.agent("alice", ttl_s=1.5), await room.agent("other", ttl_s=1.5)

    await alice.say("auth", token=room.token("alice"))
    await alice.expect("welcome")
    assert await other.closed() == 4511

    await alice.settled_down()
    assert alice.is_open


# -- lost wakes


async def test_a_lost_wake_only_delays_the_delivery(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await bob.drained()

    # No wake is ever sent for an entry that the store got in this way.
    await alice.sent(message("m-1"))
    one = await bob.delivery()
    await bob.ack(one)
    key = room.keys.box(bob.address)
    await alice.sent(message("template", to="carol"))
    fields = room.redis.xrange(room.keys.box(room.address("carol")))[0][1]
    room.redis.xadd(key, fields | {"head": fields["head"].replace("\tcarol\t", "\tbob\t")})
    room.redis.zadd(room.keys.waiting(room.keys.shard(bob.address)), {bob.address: 1})

    assert (await bob.delivery())["id"] == "template"


async def test_delivery_goes_on_while_the_subscription_is_cut_again_and_again(room: Room) -> None:
    async with CutProxy(room.relay.server.port) as proxy, AsyncExitStack() as stack:
        instance = room.relay.instance(redis_url=proxy.url)
        stack.callback(instance.kill)
        bob = await room.agent("bob", at=instance)
        alice = await room.agent("alice")
        await bob.drained()
        room.redis.client_kill_filter(_type="pubsub")

        await alice.sent(*messages(20))
        room.redis.client_kill_filter(_type="pubsub")
        found = await bob.deliveries(20)

        assert [one["payload"] for one in found] == list(range(1, 21))
        await bob.close()


# -- TTL


async def _server_time_ms(agent: Agent) -> int:
    await agent.say("ping")
    return int((await agent.expect("pong"))["server_time_ms"])


async def test_only_the_expired_one_goes_also_before_any_sweep(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(message("short", ttl_s=0.05), message("long"))
    expired_at = await _server_time_ms(alice) + 50
    while (await _server_time_ms(alice)) <= expired_at:
        pass

    bob = await room.agent("bob", at=room.b)

    assert bob.queue_status["pending"] == 1
    assert (await bob.delivery())["id"] == "long"
    assert await bob.drained() == 1


async def test_a_message_whose_ttl_ends_while_it_is_held_leaves_no_ghost(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.agent("bob", window=1)
    await alice.sent(message("short", ttl_s=0.3), message("next"))
    held = await bob.delivery()

    following = await bob.delivery()
    await bob.say("ack", entries=[held["entry"]])
    refusal = await bob.refusal()

    assert (held["id"], following["id"]) == ("short", "next")
    assert refusal["code"] == "not_found"
    assert list(room.holders("bob")) == [following["entry"]]
    await bob.ack(following)
    assert room.depth("bob") == 0


async def test_the_sweeper_ends_what_outlived_the_relays_ttl(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(5))
    assert room.depth("bob") == 5

    await until(lambda: room.depth("bob") == 0, "the mailbox was swept")

    bob = await room.agent("bob")
    assert bob.queue_status == {"op": "queue_status", "pending": 0, "bytes": 0, "oldest_ms": None}


async def test_expiry_is_silent_unless_everything_was_asked_for(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.sent(message("quiet", ttl_s=0.1), message("told", ttl_s=0.2, receipt="all"))
    (receipt,) = await alice.receipts(1)

    assert (receipt["id"], receipt["state"]) == ("told", "expired")
    assert room.depth("bob") == 0


async def test_everything_asked_for_also_tells_of_delivery(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1", receipt="all"))

    await bob.ack(await bob.delivery())

    assert (await alice.receipts(1))[0]["state"] == "delivered"


async def test_three_sweepers_at_once_have_one_effect(room: Room) -> None:
    more = [room.relay.process("workers", "--only", "sweeper,overdue") for _ in range(2)]
    alice = await room.agent("alice")
    await alice.sent(*messages(30, receipt="all"))

    receipts = await alice.receipts(30)
    await until(lambda: room.depth("bob") == 0)
    await alice.settled_down()

    assert sorted(one["id"] for one in receipts) == sorted(f"m-{n}" for n in range(1, 31))
    assert sum(len(frame["receipts"]) for frame in alice.got("receipts")) == 30
    assert {one["state"] for one in receipts} == {"expired"}
    _end(*more)


async def test_an_id_is_free_again_after_the_dedup_window(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    await bob.ack(await bob.delivery())
    assert await alice.sent(message("m-1")) == ["m-1"]

    deadline = time.monotonic() + 8
    while await alice.sent(message("m-1")) == ["m-1"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)

    assert (await bob.delivery())["id"] == "m-1"


# -- delays and timed holds


async def test_a_delayed_message_is_not_delivered_before_its_time(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await bob.drained()

    await alice.sent(message("later", delay_s=0.6), message("now"))
    first, second = await bob.deliveries(2)

    assert [first["id"], second["id"]] == ["now", "later"]
    assert second["attempt"] == 1
    assert time.time() * 1_000 - second["sent_at_ms"] >= 600


async def test_a_delayed_message_is_not_delivered_to_a_new_session_before_its_time_either(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(message("later", delay_s=0.8), message("now"))

    bob = await room.agent("bob")
    assert await bob.drained() == 1
    assert [one["id"] for one in bob.got_deliveries()] == ["now"]

    later = (await bob.deliveries(2))[1]
    assert (later["id"], later["attempt"]) == ("later", 1)


async def test_a_hold_that_takes_too_long_goes_to_the_other_session_as_a_failed_attempt(room: Room) -> None:
    alice = await room.agent("alice")
    slow = await room.agent("pool", mode="shared", ack_timeout_s=0.3)
    await alice.sent(message("m-1", to="pool"))
    held = await slow.delivery()
    quick = await room.agent("pool", at=room.b, mode="shared", ack_timeout_s=30)

    again = await quick.delivery()
    await slow.say("ack", entries=[held["entry"]])

    assert (again["entry"], again["attempt"]) == (held["entry"], 2)
    assert (await slow.refusal())["code"] == "lock_lost"
    await quick.ack(again)
    assert room.depth("pool") == 0


async def test_a_hold_that_takes_too_long_comes_again_to_an_only_session(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.agent("bob", ack_timeout_s=0.3, window=1)
    await alice.sent(message("m-1"))

    attempts = [(await bob.delivery())["attempt"] for _ in range(3)]

    assert attempts == [1, 2, 3]


async def test_touch_keeps_a_timed_hold(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.agent("bob")
    await alice.sent(message("m-1", ack_timeout_s=0.6), message("m-2", ack_timeout_s=0.6))
    one, _ = await bob.deliveries(2)

    await bob.settle("touch", one, extend_s=60)
    other_again = await bob.delivery()

    assert (other_again["id"], other_again["attempt"]) == ("m-2", 2)
    await bob.ack(one)


async def test_time_outs_also_count_up_to_the_dead_letter_box(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1", ack_timeout_s=0.2, max_attempts=2))
    await bob.deliveries(2)

    (receipt,) = await alice.receipts(1)

    assert (receipt["state"], receipt["attempt"], receipt["reason"]) == ("dead", 2, "ack timeout")
    assert [dead["attempts"] for dead in room.dead("bob")] == ["2"]


async def test_an_ack_between_a_workers_read_and_write_stays_acked(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(40, ack_timeout_s=0.3))
    found = await bob.deliveries(40)

    # Acks that arrive while holds are being ended: each is either taken or refused, and never both undone.
    await until(lambda: min(room.due("bob").values(), default=0) < time.time() + 0.05)
    for one in found:
        await bob.say("ack", entries=[one["entry"]])
    await bob.settled_down()
    refused = {one["entry"] for frame in bob.got("refused") for one in frame["refusals"]}

    waiting = {entry for entry, _ in room.redis.xrange(room.keys.box(bob.address))}
    assert waiting <= refused
    assert {one["entry"] for one in found} - refused == {one["entry"] for one in found} - waiting - refused


# -- presence over time


async def test_who_vanishes_with_its_instance_is_offline_after_the_heartbeat(room: Room) -> None:
    instance = room.relay.instance()
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(message("m-1"))
    await bob.delivery()

    instance.kill()
    await bob.closed()

    async def online(agent: Agent) -> bool:
        await agent.say("presence", agents=["bob"])
        return bool((await agent.expect("presence"))["agents"][bob.address]["online"])

    deadline = time.monotonic() + 5
    while await online(alice):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    # The reaper gives back what it held without anybody's join.
    await until(lambda: {owner for owner, _ in room.holders("bob").values()} == {"~ready"}, "it was released")
    assert [count for _, count in room.holders("bob").values()] == [1]


async def test_shared_sessions_of_a_dead_instance_lose_what_they_held_to_the_others(room: Room) -> None:
    instance = room.relay.instance()
    alice = await room.agent("alice")
    doomed = await room.agent("pool", at=instance, mode="shared")
    await alice.sent(*messages(3, to="pool"))
    await doomed.deliveries(3)
    other = await room.agent("pool", at=room.b, mode="shared")

    instance.kill()

    found = await other.deliveries(3)
    assert [(one["payload"], one["attempt"]) for one in found] == [(1, 1), (2, 1), (3, 1)]


def _end(*processes: Process) -> None:
    for process in processes:
        process.kill()
