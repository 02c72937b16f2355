"""Topics, blocks, presence, sync and ping: what agents know of each other."""

import time

import pytest

from tests.agents import message, messages, until
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def test_ping_is_answered_with_the_time(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.say("ping")
    pong = await alice.expect("pong")

    assert set(pong) == {"op", "server_time_ms"}
    assert abs(pong["server_time_ms"] / 1_000 - time.time()) < 5


# -- topics


async def test_what_is_published_reaches_every_subscriber_of_the_tenant_on_any_instance(room: Room) -> None:
    near, far = await room.agent("near", at=room.a), await room.agent("far", at=room.b)
    other = await room.agent("other", at=room.b)
    publisher = await room.agent("publisher", at=room.a)
    for agent in (near, far, publisher):
        await agent.say("subscribe", topics=["news"])
        assert await agent.expect("subscribed") == {"op": "subscribed", "topics": ["news"]}
    await other.say("subscribe", topics=["sport"])
    await other.expect("subscribed")

    await publisher.say_text('{"op":"publish","topic":"news","payload":{"n": 1.00}}')

    for agent in (near, far, publisher):
        event = await agent.expect("event")
        assert event == {"op": "event", "topic": "news", "from": publisher.address, "payload": {"n": 1.0}}
    assert '"payload":{"n": 1.00}' in far.raw[-1]
    await other.settled_down()
    assert other.got("event") == []


async def test_another_tenants_topic_of_the_same_name_is_another_topic(room: Room) -> None:
    mine, publisher = await room.agents("mine", "publisher")
    stranger = await room.agent(f"{room.tenant}x/stranger")
    for agent in (mine, stranger):
        await agent.say("subscribe", topics=["news"])
        await agent.expect("subscribed")

    await publisher.say("publish", topic="news", payload=1)

    await mine.expect("event")
    await stranger.settled_down()
    assert stranger.got("event") == []


async def test_subscribed_lists_all_that_are_on_and_unsubscribe_takes_away(room: Room) -> None:
    bob, alice = await room.agents("bob", "alice")
    await bob.say("subscribe", topics=["b", "a"])
    await bob.say("subscribe", topics=["c", "a"])
    assert (await bob.expect("subscribed"))["topics"] == ["a", "b"]
    assert (await bob.expect("subscribed"))["topics"] == ["a", "b", "c"]

    await bob.say("unsubscribe", topics=["a", "never"])
    assert (await bob.expect("subscribed"))["topics"] == ["b", "c"]
    await alice.say("publish", topic="a", payload=1)
    await alice.say("publish", topic="b", payload=2)

    assert (await bob.expect("event"))["payload"] == 2
    assert len(bob.got("event")) == 1


async def test_a_new_session_starts_without_subscriptions(room: Room) -> None:
    first, alice = await room.agents("bob", "alice")
    await first.say("subscribe", topics=["news"])
    await first.expect("subscribed")

    second = await room.agent("bob", at=room.b)
    await alice.say("publish", topic="news", payload=1)
    await second.say("subscribe", topics=[])

    assert (await second.expect("subscribed"))["topics"] == []
    await second.settled_down()
    assert second.got("event") == []


# -- blocks


async def test_a_blocked_sender_is_answered_as_ever_and_nothing_is_stored(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await bob.say("block", agents=["alice"])
    assert await bob.expect("blocks") == {"op": "blocks", "agents": [alice.address]}

    await alice.send(message("m-1"))
    answer = await alice.expect("accepted")
    await alice.sent(message("m-1"))

    assert answer == {"op": "accepted", "ids": ["m-1"], "duplicate_ids": [], "durability": answer["durability"]}
    assert room.depth("bob") == 0
    await bob.sent(message("back", to="alice"))  # one way only
    assert (await alice.delivery())["id"] == "back"

    await bob.say("unblock", agents=[alice.address])
    assert await bob.expect("blocks") == {"op": "blocks", "agents": []}
    await alice.sent(message("m-2"))
    assert (await bob.delivery())["id"] == "m-2"


async def test_a_block_holds_for_a_later_session_on_another_instance(room: Room) -> None:
    alice, bob = await room.agent("alice", at=room.b), await room.agent("bob")
    await bob.say("block", agents=["alice", "carol"])
    await bob.expect("blocks")
    await bob.close()

    await alice.sent(message("m-1"))
    again = await room.agent("bob", at=room.b)
    await again.say("block", agents=[])

    assert again.queue_status["pending"] == 0
    assert (await again.expect("blocks"))["agents"] == [alice.address, room.address("carol")]


async def test_what_cannot_be_an_address_cannot_be_blocked(room: Room) -> None:
    bob = await room.agent("bob")

    await bob.say("block", agents=["a b"])

    assert (await bob.error())["code"] == "malformed"


# -- presence


async def test_presence_tells_who_is_there_and_when_the_others_were(room: Room) -> None:
    soon_ms = int(time.time() * 1_000) + 3_600_000
    alice, bob = await room.agent("alice"), await room.agent("bob", at=room.b)
    part_time = await room.agent("carol", at=room.b, next_active_at_ms=soon_ms)
    await part_time.close()
    await until(
        lambda: room.redis.hget(room.keys.presence(room.keys.shard(part_time.address)), part_time.address) is None
    )

    await alice.say("presence", agents=["bob", part_time.address, "nobody"])
    frame = await alice.expect("presence")

    assert list(frame["agents"]) == [bob.address, part_time.address, room.address("nobody")]
    seen = frame["agents"]
    assert seen[bob.address]["online"] is True
    assert abs(seen[bob.address]["last_seen_ms"] / 1_000 - time.time()) < 5
    assert seen[part_time.address]["online"] is False
    assert seen[part_time.address]["next_active_at_ms"] == soon_ms
    assert abs(seen[part_time.address]["last_seen_ms"] / 1_000 - time.time()) < 10
    assert seen[room.address("nobody")]["online"] is False
    assert seen[room.address("nobody")]["last_seen_ms"] is None


async def test_presence_of_nobody_is_empty(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.say("presence", agents=[])

    assert await alice.expect("presence") == {"op": "presence", "agents": {}}


# -- sync


async def test_sync_tells_what_each_side_of_a_thread_has(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(4, thread="t"), message("other", thread="u"))
    await bob.sent(message("back", to="alice", thread="t"))
    found = await bob.deliveries(5)
    await bob.ack(*found[:2])

    await alice.say("sync", peer="bob", thread="t")
    mine = await alice.expect("sync_state")
    await bob.say("sync", peer=alice.address, thread="t")
    theirs = await bob.expect("sync_state")

    assert mine == {
        "op": "sync_state",
        "peer": bob.address,
        "thread": "t",
        "sent": {"last_seq": 4, "settled_seq": 2},
        "received": {"last_seq": 1, "settled_seq": 0},
        "pending": 3,
    }
    assert (theirs["sent"], theirs["received"], theirs["pending"]) == (mine["received"], mine["sent"], 3)


async def test_sync_of_an_unknown_thread_is_all_zeros(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.say("sync", peer="bob", thread="never")
    state = await alice.expect("sync_state")

    assert state["sent"] == state["received"] == {"last_seq": 0, "settled_seq": 0}
    assert state["pending"] == 0
