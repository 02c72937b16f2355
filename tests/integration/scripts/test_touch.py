"""touch: a timed hold is moved on; a hold without a time is left as it is."""

import pytest

from tests.builders import Desk, a_message


async def test_a_timed_hold_is_moved_on(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1", ack_timeout_s=5))
    bob = await desk.join()
    await desk.take(bob)

    desk.clock.advance(4)
    refused = await desk.touch(bob, sent.entry, extend_s=30)

    assert refused == {}
    assert desk.due() == {f"hold {sent.entry}": 30}
    assert desk.holders() == {sent.entry: (bob.name, 1)}
    assert [event.entry for event in desk.events("touched")] == [sent.entry]


async def test_an_untimed_hold_stays_untimed(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)

    refused = await desk.touch(bob, sent.entry)

    assert refused == {}
    assert desk.due() == {}


@pytest.mark.parametrize(("entry", "code"), [("theirs", "lock_lost"), ("1-1", "not_found")])
async def test_only_the_holder_touches(desk: Desk, entry: str, code: str) -> None:
    sent = await desk.send_one(a_message("m-1", ack_timeout_s=5))
    bob = await desk.join(mode="shared")
    eve = await desk.join(mode="shared")
    await desk.take(bob)
    named = sent.entry if entry == "theirs" else entry

    refused = await desk.touch(eve, named)

    assert refused == {named: code}
    assert desk.due() == {f"hold {sent.entry}": 5}
    assert desk.events("touched") == []
