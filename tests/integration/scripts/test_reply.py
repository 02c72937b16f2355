"""reply: the answer to a request is stored in the same step as its ack."""

from typing import Any

import pytest

from relay.store.mailbox import settle
from relay.store.replies import replies
from tests.builders import ALICE, BOB, CAROL, Desk, Puller, a_message, delivered
from tests.conftest import MakeDesk
from workers.receipts import forward_shard


async def test_the_last_answer_acks_the_request_and_arrives_in_the_requesters_mailbox(desk: Desk) -> None:
    sent = await desk.send_one(a_message("ask", request=True))
    bob = await desk.join()
    await desk.take(bob)

    word = await desk.reply(bob, sent.entry, {"answer": 42})

    alice = await desk.join(ALICE)
    await desk.store.pipeline.finish()
    (row,) = await desk.take(alice)
    body = delivered(row)
    assert word == "replied"
    assert (desk.depth(BOB), desk.holders(BOB)) == (0, {})
    assert (body["payload"], body["reply_to"], body["from"]) == ({"answer": 42}, "ask", BOB)
    assert [event.kind for event in desk.events("replied", "acked")] == ["replied", "acked"]
    assert [receipt["state"] for receipt in await desk.receipts()] == ["delivered"]
    assert desk.redis.xlen(desk.keys.outbox(0)) == 0


async def test_a_part_does_not_ack(desk: Desk) -> None:
    sent = await desk.send_one(a_message("ask", request=True))
    bob = await desk.join()
    await desk.take(bob)

    words = [await desk.reply(bob, sent.entry, n, more=True) for n in range(2)]
    await desk.store.pipeline.finish()

    assert words == ["replied", "replied"]
    assert desk.holders(BOB) == {sent.entry: (bob.name, 1)}
    assert desk.depth(ALICE) == 2
    assert [event.reason for event in desk.events("replied")] == ["part", "part"]
    assert desk.events("acked") == []


async def test_what_is_not_a_request_cannot_be_answered(desk: Desk) -> None:
    sent = await desk.send_one(a_message("tell"))
    bob = await desk.join()
    await desk.take(bob)

    word = await desk.reply(bob, sent.entry)

    assert word == "not_a_request"
    assert desk.holders() == {sent.entry: (bob.name, 1)}
    assert desk.depth(ALICE) == 0


async def test_only_the_holder_answers(desk: Desk) -> None:
    sent = await desk.send_one(a_message("ask", request=True))
    bob = await desk.join(mode="shared")
    eve = await desk.join(mode="shared")
    await desk.take(bob)

    words = [await desk.reply(eve, entry) for entry in (sent.entry, "1-1", "nonsense")]

    assert words == ["lock_lost", "not_found", "not_found"]
    assert desk.holders() == {sent.entry: (bob.name, 1)}
    assert desk.redis.xlen(desk.keys.outbox(0)) == 0


async def test_an_answer_that_is_forwarded_twice_arrives_once(desk: Desk) -> None:
    sent = await desk.send_one(a_message("ask", request=True, receipt=False))
    bob = await desk.join()
    await desk.take(bob)
    await desk.reply(bob, sent.entry, "once")
    await desk.store.pipeline.finish()

    again = [b"reply", f'{ALICE}\t{BOB}\task\t{desk.clock.now_ms() + 1_000}\tend\t1\t"once"'.encode()]
    (first,) = desk.events("accepted")[1:]
    outbox_entry = first.id.partition("/")[2].encode()
    desk.store.receipts.forward(0, outbox_entry, again)
    await desk.store.pipeline.finish()

    assert desk.depth(ALICE) == 1
    assert len(desk.events("duplicate")) == 1


async def asked(desk: Desk, **fields: Any) -> tuple[Puller, str]:
    """Bob holds a request of Alice's."""
    sent = await desk.send_one(a_message("ask", request=True, receipt=False, **fields))
    bob = await desk.join()
    await desk.take(bob)
    return bob, sent.entry


async def test_a_reply_has_so_many_bytes_of_parts_and_then_only_an_end(make_desk: MakeDesk) -> None:
    desk = await make_desk(reply_max_bytes=1_000, max_payload_bytes=1_000)
    bob, entry = await asked(desk)
    part = "x" * 398

    words = [await desk.reply(bob, entry, part, more=True) for _ in range(3)]
    held = desk.holders(BOB)
    last = await desk.reply(bob, entry, "the end")

    assert words == ["replied", "replied", "too_large"]
    assert held == {entry: (bob.name, 1)}
    assert last == "replied"
    assert desk.redis.keys(f"{desk.keys.tag(0)}parts:*") == []


async def test_a_reply_has_so_many_parts_however_its_entry_is_spelled(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "MAX_PARTS", 2)
    bob, entry = await asked(desk)

    words = [await desk.reply(bob, spelled, 1, more=True) for spelled in (entry, f"0{entry}", f"{entry}p0")]
    words += [await desk.reply(bob, entry, 1, more=True) for _ in range(2)]

    assert words == ["replied", "not_found", "not_found", "replied", "too_large"]


async def test_what_is_counted_of_a_reply_goes_with_its_request(desk: Desk) -> None:
    bob, entry = await asked(desk, ttl_s=60)

    await desk.reply(bob, entry, 1, more=True)

    (key,) = desk.redis.keys(f"{desk.keys.tag(0)}parts:*")
    assert 0 < desk.redis.pttl(key) <= 60_000


async def test_a_part_is_refused_while_the_outbox_is_full_and_the_end_is_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "OUTBOX_MAX", 1)
    bob, entry = await asked(desk)
    desk.redis.xadd(desk.keys.outbox(0), {"receipts": "left behind"})

    assert await desk.reply(bob, entry, 1, more=True) == "outbox_full"
    assert await desk.reply(bob, entry, 2) == "replied"


async def test_what_a_full_mailbox_has_no_room_for_waits_with_its_task_not_in_the_outbox(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=1)
    bob, entry = await asked(desk)
    await desk.send_one(a_message("in the way", to=ALICE), sender=CAROL)

    for n in range(3):
        await desk.reply(bob, entry, n, more=n < 2)
        await desk.store.pipeline.finish()
    waiting = desk.redis.xlen(desk.keys.outbox(0)), desk.redis.llen(desk.keys.owed(ALICE))
    alice = await desk.join(ALICE)
    heard = []
    for _ in range(4):
        (row,) = await desk.take(alice)
        heard.append(delivered(row)["payload"])
        await desk.ack(alice, row.entry)
        desk.clock.advance(replies.OWED_AGAIN_MS / 1_000)
        await forward_shard(desk.store, 0, desk.clock.now_ms())

    assert waiting == (0, 3)
    assert heard == [{"n": 1}, 0, 1, 2]
    assert desk.redis.exists(desk.keys.owed(ALICE), desk.keys.owing(0)) == 0


async def test_a_full_mailbox_is_owed_so_many_answers(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "OWED_MAX", 2)
    desk = await make_desk(mailbox_max_messages=1)
    bob, entry = await asked(desk)
    await desk.send_one(a_message("in the way", to=ALICE), sender=CAROL)

    for n in range(5):
        await desk.reply(bob, entry, n, more=True)
    await desk.store.pipeline.finish()

    assert desk.redis.llen(desk.keys.owed(ALICE)) == 2
    assert desk.redis.xlen(desk.keys.outbox(0)) == 0
