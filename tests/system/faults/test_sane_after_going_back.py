"""The store goes back in time: what was promised since is gone, and everything that is left fits together."""

import asyncio

import pytest

from tests.agents import message
from tests.callers import Caller, admin, caller, soon
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("store failures")

SETTINGS = {"recheck_s": 1}


@pytest.fixture
def alice(room: Room) -> Caller:
    return caller(room, "alice")


@pytest.fixture
def bob(room: Room) -> Caller:
    return caller(room, "bob")


async def back_up(room: Room) -> None:
    await asyncio.to_thread(room.relay.server.back_up)


async def go_back(room: Room) -> None:
    """And every instance serves again."""
    await asyncio.to_thread(room.relay.server.go_back)
    for instance in (room.a, room.b):
        await instance.is_ready()


async def test_an_id_is_known_exactly_if_its_message_is(room: Room, alice: Caller) -> None:
    await alice.send("bob", "kept")
    await back_up(room)
    await alice.send("bob", "lost")

    await go_back(room)

    assert (await alice.where("bob", "kept"), await alice.where("bob", "lost")) == ("queued", "404")
    assert (await alice.send("bob", "kept"))["duplicate"]
    assert not (await alice.send("bob", "lost"))["duplicate"]


async def test_a_lease_that_was_undone_settles_nothing(room: Room, alice: Caller, bob: Caller) -> None:
    await alice.send("bob", "m-1")
    await back_up(room)
    undone = await bob.lease_one()

    await go_back(room)
    refused = await bob.settle("ack", undone)
    again = await bob.lease_one()

    assert refused.said == (409, "lock_lost")
    assert (again["id"], again["attempt"]) == ("m-1", 1)
    assert (await bob.settle("ack", again)).status == 200


async def test_an_end_that_was_undone_comes_again_with_its_receipt(room: Room, bob: Caller) -> None:
    alice = await room.agent("alice")
    await alice.sent(message("m-1", receipts=["acked"]))
    await back_up(room)
    await bob.settle("ack", await bob.lease_one())
    first = await alice.receipts(1)

    await go_back(room)
    await bob.settle("ack", await bob.lease_one())
    second = await alice.receipts(1)

    assert [one["id"] for one in first + second] == ["m-1", "m-1"]
    assert await bob.lease() == []


async def test_a_task_that_was_undone_is_unknown_and_can_be_asked_for_again(
    room: Room, alice: Caller, bob: Caller
) -> None:
    await back_up(room)
    await alice.ask("bob", "ask", wait_s=0.05)

    await go_back(room)
    unknown = await alice.get("/v1/tasks/ask")
    await alice.ask("bob", "ask", wait_s=0.05)
    question = await bob.lease_one()
    await bob.settle("reply", question, payload="42")

    assert unknown.status == 404
    assert (await alice.get("/v1/tasks/ask", wait_s=20))["reply"] == "42"


async def test_an_answer_that_was_undone_can_be_given_again(room: Room, alice: Caller, bob: Caller) -> None:
    await alice.ask("bob", "ask", wait_s=0.05)
    await back_up(room)
    await bob.settle("reply", await bob.lease_one(), payload="41")

    await go_back(room)
    during = (await alice.get("/v1/tasks/ask"))["state"]
    await bob.settle("reply", await bob.lease_one(), payload="42")

    assert during == "queued"
    assert (await alice.get("/v1/tasks/ask", wait_s=20))["reply"] == "42"


async def test_a_session_that_joined_since_is_served(room: Room, alice: Caller) -> None:
    await back_up(room)
    bob = await room.agent("bob", at=room.b)

    await go_back(room)
    await alice.send("bob", "m-1")

    assert [one["id"] for one in await bob.deliveries(1)] == ["m-1"]
    await soon(lambda: is_online(alice), True)


async def is_online(alice: Caller) -> bool:
    return bool((await alice.get("/v1/agents/bob"))["online"])


async def test_a_registration_that_was_undone_is_gone_for_every_instance(room: Room, bob: Caller) -> None:
    await bob.put("/v1/agents/bob", {"card": {"n": 1}})
    await back_up(room)
    await bob.put("/v1/agents/bob", {"card": {"n": 2}})

    await go_back(room)
    cards = [(await caller(room, "bob", at=at).get("/v1/agents/bob"))["card"] for at in (room.a, room.b)]

    assert cards == [{"n": 1}, {"n": 1}]


async def test_a_block_that_was_undone_holds_nobody_back(room: Room, alice: Caller) -> None:
    bob = await room.agent("bob", at=room.b)
    await back_up(room)
    await bob.say("block", agents=["alice"])
    await bob.expect("blocks")

    await go_back(room)
    await alice.send("bob", "m-1")

    assert [one["id"] for one in await bob.deliveries(1)] == ["m-1"]


async def test_a_pause_that_was_undone_stops_nobody(room: Room, alice: Caller) -> None:
    bob = await room.agent("bob", at=room.b)
    await back_up(room)
    await admin(room).put("/v1/agents/bob/pause")
    await alice.send("bob", "since")

    await go_back(room)
    await alice.send("bob", "m-1")

    assert [one["id"] for one in await bob.deliveries(1)] == ["m-1"]


async def test_a_pause_whose_end_was_undone_is_in_force_and_seen(room: Room, alice: Caller) -> None:
    root = admin(room)
    await root.put("/v1/agents/bob/pause")
    await back_up(room)
    await root.delete("/v1/agents/bob/pause")

    await go_back(room)
    await alice.send("bob", "m-1")
    paused = (await root.get("/v1/agents/bob"))["paused"]
    await root.delete("/v1/agents/bob/pause")
    bob = await room.agent("bob", at=room.b)

    assert paused is not None
    assert [one["id"] for one in await bob.deliveries(1)] == ["m-1"]


@pytest.mark.parametrize("priority", [0, 5])
async def test_a_session_gets_again_what_it_had_settled(room: Room, alice: Caller, priority: int) -> None:
    bob = await room.agent("bob", at=room.b)
    await alice.send("bob", "m-1", priority=priority)
    (first,) = await bob.deliveries(1)
    await back_up(room)
    await bob.ack(first)

    await go_back(room)
    (again,) = await bob.deliveries(1)

    assert (again["id"], again["entry"], again["attempt"]) == ("m-1", first["entry"], 1)
