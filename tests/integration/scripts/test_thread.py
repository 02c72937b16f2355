"""thread: how far one direction of a thread has come."""

from relay.store.agents import ThreadState
from tests.builders import ALICE, BOB, CAROL, Desk, a_message


async def test_what_waits_holds_back_the_settled_number(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", thread="t") for n in range(4)), a_message("other", thread="u"))
    bob = await desk.join()
    taken = await desk.take(bob)
    await desk.ack(bob, taken[0].entry, taken[2].entry)

    state = await desk.store.agents.thread_state(ALICE, BOB, "t")

    assert state == ThreadState(last_seq=4, settled_seq=1, pending=2)


async def test_a_settled_thread_is_settled_to_its_end(desk: Desk) -> None:
    await desk.send(a_message("1", thread="a\tb"), a_message("2", thread="a\tb", priority=7))
    await desk.cancel("1")
    await desk.cancel("2")

    state = await desk.store.agents.thread_state(ALICE, BOB, "a\tb")

    assert state == ThreadState(last_seq=2, settled_seq=2, pending=0)


async def test_every_lane_is_looked_at(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2", priority=7))
    await desk.cancel("1")

    state = await desk.store.agents.thread_state(ALICE, BOB, "")

    assert state == ThreadState(last_seq=2, settled_seq=1, pending=1)


async def test_another_direction_is_another_thread(desk: Desk) -> None:
    await desk.send_one(a_message("1"))

    assert await desk.store.agents.thread_state(BOB, ALICE, "") == ThreadState(0, 0, 0)
    assert await desk.store.agents.thread_state(CAROL, BOB, "") == ThreadState(0, 0, 0)
