"""What one client says of one entry, frame after frame, happens in the order in which it was said."""

import asyncio

from tests.builders import Desk, a_message


async def test_an_ack_does_not_overtake_the_nack_before_it(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message())
    await desk.take(bob)

    nacked, acked = await asyncio.gather(desk.nack(bob, sent.entry, delay_s=60), desk.ack(bob, sent.entry))

    assert (nacked, acked) == ({}, {sent.entry: "lock_lost"})
    assert desk.holders() == {sent.entry: ("~parked", 2)}


async def test_an_ack_does_not_overtake_the_release_before_it(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message())
    await desk.take(bob)

    released, acked = await asyncio.gather(desk.release(bob, sent.entry), desk.ack(bob, sent.entry))

    assert (released, acked) == ({}, {sent.entry: "lock_lost"})


async def test_a_part_of_a_reply_comes_before_the_ack_after_it(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message(request=True))
    await desk.take(bob)

    parts = [desk.reply(bob, sent.entry, part, more=True) for part in ("one", "two")]
    said = await asyncio.gather(*parts, desk.touch(bob, sent.entry), desk.ack(bob, sent.entry))

    assert said == ["replied", "replied", {}, {}]
    assert [event.kind for event in desk.events("replied", "touched", "acked")] == [
        *("replied", "replied"),
        *("touched", "acked"),
    ]
