"""State that explains itself: every look at a message or a mailbox says why it is not delivered, and until when."""

import time

import pytest

from tests.callers import admin, caller
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def test_a_message_says_why_it_waits_and_until_when(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    path = "/v1/agents/bob/messages/m-1"
    await alice.send("bob", "m-1", max_attempts=3)
    queued = await alice.get(path)
    delivery = await bob.lease_one(consumer="w1", ack_timeout_s=30)
    held = await alice.get(path)
    await bob.settle("nack", delivery, delay_s=60)
    failed = await alice.get(path)

    assert (queued["state"], queued["why"]) == ("queued", "nobody connected")
    assert (held["state"], held["why"]) == ("held", "held by a lease")
    assert held["holder"].startswith("http.w1.")
    assert held["until_ms"] - held["held_since_ms"] == pytest.approx(30_000, abs=2_000)
    assert (failed["state"], failed["why"], failed["attempt"]) == ("delayed", "backing off after a nack", 2)
    assert failed["until_ms"] == pytest.approx(time.time() * 1_000 + 60_000, abs=20_000)
    assert "holder" not in failed.body
    assert failed["max_attempts"] == 3


async def test_a_full_window_is_told_of_the_message_and_of_the_mailbox(room: Room) -> None:
    alice, root = caller(room, "alice"), admin(room)
    bob = await room.agent("bob", window=1)
    await alice.send("bob", "m-1")
    await bob.deliveries(1)
    await alice.send("bob", "m-2", delay_s=60)
    await alice.send("bob", "m-3")

    agent = (await root.get("/v1/agents/bob")).body
    page = (await root.get("/v1/agents/bob/messages"))["messages"]

    assert [agent[name] for name in ("depth", "waiting", "held", "delayed")] == [3, 1, 1, 1]
    assert agent["why"] == "window of its session full"
    (session,) = agent["sessions"]
    assert (session["mode"], session["window"], session["holds"], session["alive"]) == ("exclusive", 1, 1, True)
    assert [(one["id"], one["why"]) for one in page] == [
        ("m-1", "held by its session"),
        ("m-2", "delayed by its sender"),
        ("m-3", "window of its session full"),
    ]
    assert page[0]["holder"] == session["session"]


async def test_the_list_of_agents_has_the_split_and_no_sessions(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")

    (row,) = [one for one in (await admin(room).get("/v1/agents"))["agents"] if one["agent"] == room.address("bob")]

    assert (row["waiting"], row["held"], row["delayed"], row["why"]) == (1, 0, 0, "nobody connected")
    assert "sessions" not in row


async def test_a_mailbox_can_be_looked_at_by_sender(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")
    await caller(room, "carol").send("bob", "m-2")

    page = (await admin(room).get("/v1/agents/bob/messages", from_="carol"))["messages"]

    assert [one["id"] for one in page] == ["m-2"]


async def test_whoever_may_name_a_sender_is_told_how(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")
    eve, root = caller(room, "eve", "inspect"), admin(room)

    for looker in (eve, root):
        lost = await looker.get("/v1/agents/bob/messages/m-1")
        found = await looker.get("/v1/agents/bob/messages/m-1", from_="alice")
        assert (lost.said, "?from=" in lost["error"]["message"]) == ((404, "not_found"), True)
        assert found["state"] == "queued"
    mallory = await caller(room, "mallory").get("/v1/agents/bob/messages/m-1")
    assert "?from=" not in mallory["error"]["message"]


async def test_a_look_does_not_lead_into_another_tenant(room: Room) -> None:
    eve = caller(room, "eve", "inspect")

    assert (await eve.get("/v1/agents/bob/messages/m-1", from_="other~alice")).said == (403, "forbidden")
