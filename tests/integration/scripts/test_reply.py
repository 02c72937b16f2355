"""reply: the answer to a request is stored in the same step as its ack."""

import orjson

from tests.builders import ALICE, BOB, Desk, a_message


async def test_the_last_answer_acks_the_request_and_arrives_in_the_requesters_mailbox(desk: Desk) -> None:
    sent = await desk.send_one(a_message("ask", request=True))
    bob = await desk.join()
    await desk.take(bob)

    word = await desk.reply(bob, sent.entry, {"answer": 42})

    alice = await desk.join(ALICE)
    await desk.store.line.finish()
    (row,) = await desk.take(alice)
    body = orjson.loads(b"{" + row.body + b"}")
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
    await desk.store.line.finish()

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
    await desk.store.line.finish()

    again = [b"reply", f'{ALICE}\t{BOB}\task\t{desk.clock.now_ms() + 1_000}\tend\t1\t"once"'.encode()]
    (first,) = desk.events("accepted")[1:]
    outbox_entry = first.id.partition("/")[2].encode()
    desk.store.receipts.forward(0, outbox_entry, again)
    await desk.store.line.finish()

    assert desk.depth(ALICE) == 1
    assert len(desk.events("duplicate")) == 1
