"""release: given back, nobody's fault: at once, in order, not counted."""

import pytest

from tests.builders import BOB, Desk, a_message


async def test_it_goes_back_uncounted_and_comes_again_in_order(desk: Desk) -> None:
    first, second, third = await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    bob = await desk.join(ack_timeout_s=30)
    await desk.take(bob, room=2)
    ears = desk.ears()

    refused = await desk.release(bob, second.entry, first.entry)
    released, due = desk.holders(), desk.due()
    again = await desk.take(bob)

    assert refused == {}
    assert released == {first.entry: ("~ready", 1), second.entry: ("~ready", 1)}
    assert due == {}
    assert ears.heard() == ["mail\tacme/bob"]
    assert [(row.entry, row.attempt) for row in again] == [(one.entry, 1) for one in (first, second, third)]
    assert [event.entry for event in desk.events("released")] == [second.entry, first.entry]


async def test_the_failures_before_stay_counted(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=0)
    await desk.take(bob)

    await desk.release(bob, sent.entry)
    again = await desk.take(bob)

    assert [row.attempt for row in again] == [2]


@pytest.mark.parametrize(("entry", "code"), [("theirs", "lock_lost"), ("1-1p3", "not_found")])
async def test_only_the_holder_gives_back(desk: Desk, entry: str, code: str) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join(mode="shared")
    eve = await desk.join(mode="shared")
    await desk.take(bob)
    named = sent.entry if entry == "theirs" else entry

    refused = await desk.release(eve, named)

    assert refused == {named: code}
    assert desk.holders() == {sent.entry: (bob.name, 1)}
    assert desk.events("released") == []


async def test_a_wrong_attempt_is_lock_lost(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)

    _, _, refused, _ = await desk.call("release", BOB, [], [bob.name, [10, sent.entry, 9]])

    assert refused == [1, sent.entry.encode(), b"lock_lost"]
