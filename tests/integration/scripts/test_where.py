"""where: what a sender is told of its message."""

import pytest

from relay.store.whereabouts import Whereabouts
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message


async def where(desk: Desk, id: str = "m-1", sender: str = ALICE) -> Whereabouts | None:
    return await desk.store.looks.where(sender, BOB, id)


async def state(desk: Desk, id: str = "m-1") -> str | None:
    found = await where(desk, id)
    return found.state if found else None


@pytest.mark.parametrize("priority", [0, 5, 9])
async def test_what_waits_is_queued_and_what_is_taken_is_held(desk: Desk, priority: int) -> None:
    sent = await desk.send_one(a_message(priority=priority))

    before = await where(desk)
    await desk.take(await desk.join())
    after = await where(desk)

    assert before == Whereabouts("queued", sent.entry, 1, NOON_MS)
    assert after == Whereabouts("held", sent.entry, 1, NOON_MS)


async def test_what_was_given_back_is_queued_with_the_attempt_that_comes(desk: Desk) -> None:
    sent = await desk.send_one(a_message())
    bob = await desk.join()
    await desk.take(bob)

    await desk.nack(bob, sent.entry, delay_s=0)

    assert await where(desk) == Whereabouts("queued", sent.entry, 2, NOON_MS)


async def test_what_must_wait_is_delayed_before_and_after_it_was_looked_at(desk: Desk) -> None:
    await desk.send_one(a_message(delay_s=5))

    states = [await state(desk)]
    bob = await desk.join()
    assert await desk.take(bob) == []
    states.append(await state(desk))
    desk.clock.advance(5)
    await desk.overdue()
    states.append(await state(desk))

    assert states == ["delayed", "delayed", "queued"]


async def test_how_it_ended_is_told_for_the_dedup_window(desk: Desk) -> None:
    acked, dead, cancelled = await desk.send(a_message("m-1"), a_message("m-2"), a_message("m-3"))
    bob = await desk.join()
    await desk.take(bob, room=2)
    desk.clock.advance(1)
    await desk.ack(bob, acked.entry)
    await desk.nack(bob, dead.entry, retry=False)
    await desk.cancel("m-3")

    found = [await where(desk, f"m-{n}") for n in (1, 2, 3)]

    assert found == [
        Whereabouts("acked", acked.entry, 1, NOON_MS + 1_000),
        Whereabouts("dead", dead.entry, 1, NOON_MS + 1_000),
        Whereabouts("cancelled", cancelled.entry, 0, NOON_MS + 1_000),
    ]


async def test_what_has_expired_is_so_before_and_after_any_sweep(desk: Desk) -> None:
    sent = await desk.send_one(a_message(ttl_s=5))
    desk.clock.advance(5)

    before = await where(desk)
    await desk.overdue()
    after = await where(desk)

    assert before == after == Whereabouts("expired", sent.entry, 0, NOON_MS + 5_000)


async def test_nothing_is_known_of_what_was_never_sent_or_is_anothers(desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))

    assert await where(desk, "m-2") is None
    assert await where(desk, "m-1", CAROL) is None


async def test_an_entry_that_an_operator_removed_is_not_known(desk: Desk) -> None:
    sent = await desk.send_one(a_message())
    desk.redis.xdel(desk.keys.box(BOB), sent.entry)

    assert await where(desk) is None
