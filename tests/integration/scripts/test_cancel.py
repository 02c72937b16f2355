"""cancel: a sender takes back what nobody holds."""

import asyncio

import pytest

from tests.builders import CAROL, Desk, a_message


@pytest.mark.parametrize("priority", [0, 4, 9])
async def test_what_waits_is_cancelled_and_leaves_nothing_behind(desk: Desk, priority: int) -> None:
    sent = await desk.send_one(a_message("m-1", priority=priority, ttl_s=60, delay_s=5))

    word = await desk.cancel("m-1")

    assert word == "cancelled"
    assert (desk.depth(priority=priority), desk.known_ids(), desk.due(), desk.bytes_held()) == (0, {}, {}, 0)
    assert desk.waits_since() is None
    assert [event.entry for event in desk.events("cancelled")] == [sent.entry]
    assert await desk.receipts() == []


@pytest.mark.parametrize("delay_s", [0, 5])
async def test_what_was_given_back_can_be_cancelled(desk: Desk, delay_s: float) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=delay_s)

    word = await desk.cancel("m-1")

    assert word == "cancelled"
    assert (desk.depth(), desk.holders(), desk.due(), desk.failures()) == (0, {}, {}, {})


async def test_what_is_held_cannot(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)

    word = await desk.cancel("m-1")

    assert word == "held"
    assert desk.holders() == {sent.entry: (bob.name, 1)}


async def test_what_is_not_there_or_not_ones_own_is_not_found(desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))

    words = [await desk.cancel("m-2"), await desk.cancel("m-1", sender=CAROL)]

    assert words == ["not_found", "not_found"]
    assert desk.depth() == 1


async def test_a_cancelled_id_is_a_duplicate_within_the_window(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    await desk.cancel("m-1")

    again = await desk.send_one(a_message("m-1"))

    assert (again.word, again.values) == ("duplicate", (sent.entry, "cancelled", 0))


async def test_a_mailbox_that_is_made_anew_never_gives_a_handle_again(desk: Desk) -> None:
    handles = [(await desk.send_one(a_message("m-0"))).entry]

    for n in range(12):  # each time both go out together, and a few times within a millisecond
        _, sent = await asyncio.gather(desk.cancel(f"m-{n}"), desk.send_one(a_message(f"m-{n + 1}")))
        handles.append(sent.entry)

    assert len(set(handles)) == len(handles)
