"""Answers of the store that never arrive: what was carried out is known, and nothing happens twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.agents import message, messages, until
from tests.proxy import CutProxy
from tests.system.conftest import STARTS_WITHIN_S, Instance, Room

# What is swallowed is named by words that only the call in question has: a take names entries, too.
pytestmark = [pytest.mark.xdist_group("store failures"), pytest.mark.usefixtures("working_store")]

SETTINGS = {"recheck_s": 0.3, "heartbeat_s": 2}
OPTIONS = {"appendfsync": "always"}


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
    await alice.sent(message("first"))  # the rate limit has been asked for more, and the mailbox is one like most
    sent = messages(20)

    proxy.swallow_from = sent[0]["id"].encode()
    await alice.send(*sent)
    await until(lambda: room.depth("bob") == 21, "the store has them")
    proxy.swallow_replies = False
    proxy.cut()
    await alice.accepted(*(one["id"] for one in sent))

    bob = await room.agent("bob")
    assert await bob.drained() == 21
    assert [one["payload"] for one in bob.got_deliveries()[1:]] == list(range(1, 21))
    assert [one["seq"] for one in bob.got_deliveries()] == list(range(1, 22))
    await alice.close()
    instance.kill()


async def test_an_ack_whose_answer_is_lost_is_settled_once(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(*messages(5))
    found = await bob.deliveries(5)

    proxy.swallow_from = found[0]["id"].encode()
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
    # A shared mailbox is never pushed from: what is delivered comes with the answer to a take.
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance, mode="shared")
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

    proxy.swallow_from = b"a broken leg"
    await bob.say("nack", entries=[failed["entry"]], delay_s=60, reason="a broken leg", confirm=True)
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

    proxy.swallow_from = b'"yes"'
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
    entries: dict[int, set[str]] = {}
    cuts = 0

    while len(entries) < 200:
        if len(entries) % 20 == 10 and cuts <= len(entries) // 20:
            proxy.cut()
            cuts += 1
        # An instance that is cut off for longer than its lease loses its sessions, whose mail then comes again.
        one = await bob.delivery(within_s=20)
        entries.setdefault(one["payload"], set()).add(one["entry"])
        await bob.say("ack", entries=[one["entry"]])
    await sending

    assert cuts == 10
    assert sorted(entries) == list(range(200))
    assert {len(of_one) for of_one in entries.values()} == {1}, "stored twice"
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


async def test_a_part_whose_answer_is_lost_is_not_said_twice(room: Room, proxy: CutProxy) -> None:
    instance = await _behind(room, proxy)
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(message("q-1", request=True))
    question = await bob.delivery()

    proxy.swallow_from = b'"part"'
    await bob.say("reply", entry=question["entry"], payload="part", more=True, confirm=True)
    await until(lambda: _is_in_an_outbox(room, f"{alice.address}\t{bob.address}\tq-1\t"), "the store has done it")
    proxy.swallow_replies = False
    proxy.cut()
    settled = await bob.expect("settled")

    assert settled["entries"] == [question["entry"]]
    assert (await alice.delivery(within_s=20))["payload"] == "part"
    await alice.settled_down()
    assert len(alice.got_deliveries()) == 1
    await bob.close()
    instance.kill()


def _is_in_an_outbox(room: Room, reply: str) -> bool:
    outboxes = [room.redis.xrange(room.keys.outbox(shard)) for shard in range(room.keys.shards)]
    return any(reply in fields.get("reply", "") for outbox in outboxes for _, fields in outbox)
