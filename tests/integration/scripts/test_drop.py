"""drop: remove a dead letter for good."""

from tests.builders import BOB, Desk, a_message


async def test_a_letter_is_dropped_once(desk: Desk) -> None:
    sent = await desk.send_one(a_message())
    bob = await desk.join()
    await desk.take_one(bob)
    await desk.nack(bob, sent.entry, retry=False)
    _, (letter,) = await desk.store.dead_letters.page(BOB, "", 10)

    first = await desk.store.dead_letters.drop(BOB, [letter.entry], "acme/root")
    again = await desk.store.dead_letters.drop(BOB, [letter.entry])

    assert (first, again) == ([True], [False])
    (event,) = desk.events("dropped")
    assert (event.id, event.entry, event.who, event.reason) == ("m-1", sent.entry, "acme/root", "failed")
    assert desk.dead_letters() == []
    assert "dead" not in desk.sums()
