"""How senders learn what became of their messages."""

import pytest

from tests.agents import message, messages, until
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def test_a_receipt_has_exactly_its_fields(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    await bob.ack(await bob.delivery())

    frame = await alice.expect("receipts")

    assert set(frame) == {"op", "cursor", "receipts"}
    (receipt,) = frame["receipts"]
    assert set(receipt) == {"id", "to", "state", "was_stored", "attempt", "at_ms", "latency_ms"}
    assert (receipt["id"], receipt["to"], receipt["state"]) == ("m-1", bob.address, "delivered")
    assert (receipt["was_stored"], receipt["attempt"]) == (False, 1)


async def test_receipts_wait_for_a_sender_that_is_away_and_come_until_they_are_confirmed(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(3))
    await alice.close()
    await bob.ack(*await bob.deliveries(3))
    await until(lambda: room.redis.xlen(room.keys.receipts(alice.address)) > 0)

    for at in (room.a, room.b):
        again = await room.agent("alice", at=at)
        frame = await again.expect("receipts")
        assert [one["id"] for one in frame["receipts"]] == ["m-1", "m-2", "m-3"]
        await again.close()

    last = await room.agent("alice")
    await last.say("receipts_ack", cursor=(await last.expect("receipts"))["cursor"])
    await last.settled_down()
    await last.close()
    none = await room.agent("alice")
    await none.settled_down()
    assert none.got("receipts") == []
    assert room.redis.xlen(room.keys.receipts(alice.address)) == 0


async def test_a_cursor_confirms_everything_up_to_it_and_no_more(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    cursors = []
    for n in range(3):
        await alice.sent(message(f"m-{n}"))
        await bob.ack(await bob.delivery())
        cursors.append((await alice.expect("receipts"))["cursor"])

    await alice.say("receipts_ack", cursor=cursors[1])
    await alice.settled_down()
    again = await room.agent("alice")

    assert [one["id"] for one in (await again.expect("receipts"))["receipts"]] == ["m-2"]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1-", "-1", "1-1-1", "9" * 30, "+", "1-99999999999999999999"])
async def test_a_cursor_that_the_relay_never_gave_is_malformed(room: Room, cursor: str) -> None:
    alice = await room.agent("alice")

    await alice.say("receipts_ack", cursor=cursor)

    assert (await alice.error())["code"] == "malformed"


async def test_no_receipt_is_sent_when_none_is_wanted(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("quiet", receipt=False), message("loud", receipt=True))

    await bob.ack(*await bob.deliveries(2))

    assert [one["id"] for one in await alice.receipts(1)] == ["loud"]
    await alice.settled_down()
    assert len(alice.got("receipts")) == 1


async def test_a_client_that_only_sends_gets_its_receipts_too(room: Room) -> None:
    sender, bob = await room.agent("alice", scope="send"), await room.agent("bob", at=room.b)
    await sender.sent(message("m-1"))
    await bob.ack(await bob.delivery())
    first = await sender.receipts(1)
    await sender.sent(message("m-2"))
    await sender.close()
    await bob.ack(await bob.delivery())

    back = await room.agent("alice", scope="send", at=room.b)

    assert first[0]["id"] == "m-1"
    assert {one["id"] for one in await back.receipts(2)} == {"m-1", "m-2"}


async def test_a_dead_letters_receipt_says_whether_the_message_waited_for_the_session(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(message("early"))
    bob = await room.agent("bob")
    await alice.sent(message("late"))
    entries = [one["entry"] for one in await bob.deliveries(2)]

    await bob.say("nack", entries=entries, retry=False)

    found = [(one["id"], one["state"], one["was_stored"]) for one in await alice.receipts(2)]
    assert found == [("early", "dead", True), ("late", "dead", False)]


async def test_many_receipts_come_once_each_and_in_order(room: Room) -> None:
    alice, bob = await room.agent("alice", at=room.b), await room.agent("bob", window=1_000)
    await alice.sent(*messages(400))

    for one in await bob.deliveries(400):
        await bob.say("ack", entries=[one["entry"]])
    receipts = await alice.receipts(400)
    await alice.settled_down()

    assert [one["id"] for one in receipts] == [f"m-{n}" for n in range(1, 401)]
    assert sum(len(frame["receipts"]) for frame in alice.got("receipts")) == 400
