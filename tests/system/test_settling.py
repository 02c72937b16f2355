"""Ack, nack, release, touch and reply, and what becomes of the message."""

import json
import time

import pytest

from tests.agents import message, messages, until
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


@pytest.mark.parametrize("op", ["ack", "nack", "release", "touch"])
async def test_what_this_session_does_not_hold_is_refused_and_nothing_changes(room: Room, op: str) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    one = await bob.delivery()
    strangers = ["1-1", "", "rubbish", "1-1p9", "99999999999999-0", one["entry"] + "p3", "0" + one["entry"]]

    await bob.say(op, entries=[*strangers], confirm=True)
    refused = (await bob.expect("refused"))["refusals"]

    assert sorted(one["entry"] for one in refused) == sorted(strangers)
    assert {one["code"] for one in refused} == {"not_found"}
    assert all(one["retryable"] is False and one["message"] for one in refused)
    assert await bob.expect("settled") == {"op": "settled", "entries": []}
    assert list(room.holders("bob").values()) == [(bob.welcome["session"], 1)]


async def test_one_bad_entry_does_not_hurt_its_neighbours(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(3))
    first, second, third = [one["entry"] for one in await bob.deliveries(3)]

    await bob.say("ack", entries=[first, "1-1", third], confirm=True)

    assert (await bob.refusal())["entry"] == "1-1"
    assert await bob.expect("settled") == {"op": "settled", "entries": [first, third]}
    assert list(room.holders("bob")) == [second]


async def test_without_confirm_a_settlement_is_answered_only_when_it_is_refused(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(8))
    entries = [one["entry"] for one in await bob.deliveries(8)]

    for entry in entries:  # some of these pairs share a call
        await bob.say("ack", entries=[entry])
        await bob.say("ack", entries=[entry])
    refusals = []
    while len(refusals) < len(entries):
        refusals += (await bob.expect("refused"))["refusals"]

    assert [(one["entry"], one["code"]) for one in refusals] == [(entry, "not_found") for entry in entries]
    assert bob.got("settled") == []


async def test_what_was_said_before_the_end_of_a_session_counts(room: Room) -> None:
    names = [f"bob-{n}" for n in range(8)]  # agents of whose rate their instance knows nothing yet
    alice = await room.agent("alice")

    for name in names:
        await alice.sent(message("m-1", to=name))
        bob = await room.agent(name)
        await bob.say("ack", entries=[(await bob.delivery())["entry"]])
        await bob.close()

    receipts = await alice.receipts(len(names))
    assert {receipt["state"] for receipt in receipts} == {"delivered"}
    assert [room.depth(name) for name in names] == [0] * len(names)


async def test_a_released_message_comes_again_at_once_in_its_place_and_uncounted(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.agent("bob", window=2)
    await alice.sent(*messages(4))
    first, second = await bob.deliveries(2)

    await bob.settle("release", first)
    again = await bob.delivery()

    assert (again["entry"], again["attempt"]) == (first["entry"], 1)
    await bob.ack(again, second)
    assert [one["payload"] for one in await bob.deliveries(2)] == [3, 4]


@pytest.mark.parametrize(("attempt", "delay_s"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600)])
async def test_a_nack_without_a_delay_waits_longer_each_time(room: Room, attempt: int, delay_s: int) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    for _ in range(attempt - 1):
        await bob.settle("nack", await bob.delivery(), delay_s=0)
    one = await bob.delivery()
    assert one["attempt"] == attempt

    await bob.settle("nack", one)

    (parked,) = room.due("bob").items()
    assert parked[0] == f"park {one['entry']}"
    assert parked[1] - time.time() == pytest.approx(delay_s, abs=3)
    assert room.holders("bob")[one["entry"]] == ("~parked", attempt + 1)


async def test_a_nack_with_a_delay_comes_again_after_it(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"), message("m-2"))
    first, second = await bob.deliveries(2)
    began = time.monotonic()

    await bob.settle("nack", first, delay_s=0.3)
    again = await bob.delivery()

    assert (again["id"], again["attempt"]) == ("m-1", 2)
    assert time.monotonic() - began >= 0.3
    await bob.ack(again, second)


async def test_at_max_attempts_the_message_dies_with_its_reasons_and_the_sender_is_told(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1", max_attempts=3, payload={"a": 1}))

    for attempt, reason in enumerate(("no disk", "no\tdisk\n", 'still "no"'), 1):
        one = await bob.delivery()
        assert one["attempt"] == attempt
        await bob.settle("nack", one, delay_s=0, reason=reason)
    (receipt,) = await alice.receipts(1)

    assert (receipt["id"], receipt["state"], receipt["attempt"]) == ("m-1", "dead", 3)
    assert receipt["reason"] == 'still "no"'
    assert room.depth("bob") == 0
    (dead,) = room.dead("bob")
    assert (dead["attempts"], dead["entry"], dead["reason"]) == ("3", one["entry"], 'still "no"')
    assert [line.split("\t")[0] for line in dead["history"].split("\n")] == ["1", "2", "3"]
    assert "no\\tdisk\\n" in dead["history"]
    assert json.loads(dead["body"]) == {"a": 1}
    await bob.settled_down()
    assert len(bob.got_deliveries()) == 3


async def test_a_nack_without_retry_goes_straight_to_the_dead_letter_box(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"), message("m-2"))
    first, second = await bob.deliveries(2)

    await bob.settle("nack", first, retry=False, reason="never")
    (receipt,) = await alice.receipts(1)

    assert (receipt["state"], receipt["reason"], receipt["attempt"]) == ("dead", "never", 1)
    assert [dead["reason"] for dead in room.dead("bob")] == ["never"]
    assert room.depth("bob") == 1
    await bob.ack(second)


async def test_touch_moves_the_end_of_a_timed_hold(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1", ack_timeout_s=100))
    one = await bob.delivery()
    ((_, before),) = room.due("bob").items()

    await bob.settle("touch", one, extend_s=500)

    ((_, after),) = room.due("bob").items()
    assert before - time.time() == pytest.approx(100, abs=3)
    assert after - time.time() == pytest.approx(500, abs=3)


async def test_a_hold_without_a_time_needs_no_touch(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    one = await bob.delivery()

    await bob.settle("touch", one)

    assert room.due("bob") == {}


async def test_shared_sessions_hold_for_30_s_unless_they_say_otherwise(room: Room) -> None:
    alice = await room.agent("alice")
    await room.agent("pool", mode="shared")
    await room.agent("patient", mode="shared", ack_timeout_s=300)

    await alice.sent(
        message("m-1", to="pool"), message("m-2", to="patient"), message("m-3", to="pool", ack_timeout_s=7)
    )
    await until(lambda: len(room.due("pool")) == 2 and len(room.due("patient")) == 1)

    assert sorted(at - time.time() for at in room.due("pool").values()) == pytest.approx([7, 30], abs=3)
    assert [at - time.time() for at in room.due("patient").values()] == pytest.approx([300], abs=3)


# -- requests and replies


async def test_a_reply_acks_the_request_and_arrives_as_a_message(room: Room) -> None:
    alice, bob = await room.agent("alice", at=room.b), await room.agent("bob")
    await alice.sent(message("q-1", request=True, payload="what?"))
    question = await bob.delivery()

    await bob.say("reply", entry=question["entry"], payload={"answer": 42}, confirm=True)
    await bob.expect("settled")
    reply = await alice.delivery()

    assert question["request"] is True
    assert (reply["reply_to"], reply["payload"], reply["from"]) == ("q-1", {"answer": 42}, bob.address)
    assert reply["request"] is False
    assert room.depth("bob") == 0
    (receipt,) = await alice.receipts(1)
    assert (receipt["id"], receipt["state"]) == ("q-1", "delivered")


async def test_parts_come_before_the_reply_and_do_not_ack(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("q-1", request=True))
    question = await bob.delivery()

    for part in ("one", "two"):
        await bob.say("reply", entry=question["entry"], payload=part, more=True, confirm=True)
        assert (await bob.expect("settled"))["entries"] == [question["entry"]]
    assert room.depth("bob") == 1
    await bob.say("reply", entry=question["entry"], payload="end")
    parts = await alice.deliveries(3)

    assert [one["payload"] for one in parts] == ["one", "two", "end"]
    assert {one["reply_to"] for one in parts} == {"q-1"}
    assert [one.get("more") for one in parts] == [True, True, None]
    await until(lambda: room.depth("bob") == 0)


async def test_a_reply_waits_for_a_requester_that_is_away(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("q-1", request=True))
    question = await bob.delivery()
    await alice.close()

    await bob.say("reply", entry=question["entry"], payload="late", confirm=True)
    await bob.expect("settled")
    await until(lambda: room.depth("alice") == 1)
    again = await room.agent("alice", at=room.b)

    one = await again.delivery()
    assert (one["payload"], one["reply_to"], one["was_stored"]) == ("late", "q-1", True)


@pytest.mark.parametrize("place", ["same instance", "another instance"])
async def test_what_one_session_lets_lie_goes_to_an_idle_one_and_not_back(room: Room, place: str) -> None:
    alice = await room.agent("alice")
    slow = await room.agent("pool", mode="shared", window=1, ack_timeout_s=0.3)
    await alice.sent(message("m-1", to="pool"))
    held = await slow.delivery()
    at = room.a if place == "same instance" else room.b
    quick = await room.agent("pool", at=at, mode="shared", window=1, ack_timeout_s=30)

    again = await quick.delivery()

    assert (again["entry"], again["attempt"]) == (held["entry"], 2)
    await quick.settled_down()
    assert len(slow.got_deliveries()) == 1


async def test_only_a_request_that_is_held_can_be_answered(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("plain"))
    plain = await bob.delivery()

    await bob.say("reply", entry=plain["entry"], payload=1)
    error = await bob.error()
    await bob.say("reply", entry="1-1", payload=1)
    unknown = await bob.refusal()
    await bob.say("reply", entry="rubbish", payload=1)

    assert (error["code"], error["entry"]) == ("malformed", plain["entry"])
    assert (unknown["code"], unknown["entry"]) == ("not_found", "1-1")
    assert (await bob.refusal())["code"] == "not_found"
    assert room.depth("bob") == 1


async def test_a_reply_over_the_size_limit_is_refused_and_the_request_stays(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("q-1", request=True))
    question = await bob.delivery()

    await bob.say("reply", entry=question["entry"], payload="x" * 70_000)
    error = await bob.error()

    assert (error["code"], error["max"]) == ("too_large", 65_536)
    assert room.depth("bob") == 1


async def test_a_replys_payload_is_carried_as_its_bytes(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("q-1", request=True))
    question = await bob.delivery()

    payload = '{ "a":\t1.00, "b":"\\u00e4" }'
    await bob.say_text('{"op":"reply","entry":"' + question["entry"] + '","payload":' + payload + "}")
    await alice.delivery()

    assert any('"payload":{ "a":\t1.00, "b":"\\u00e4" }' in text for text in alice.raw)
