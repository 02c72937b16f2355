"""thread: how far one direction of a thread has come."""

from relay.store.agents.agents import ThreadState
from relay.store.redis.scripts import script
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


async def test_a_thread_is_told_from_an_index_that_ends_with_its_messages(desk: Desk) -> None:
    await desk.send(
        *(a_message(f"m-{n}", thread="t") for n in range(3)), a_message("none"), a_message("long", thread="t1")
    )
    assert desk.redis.zcard(desk.keys.threads(0)) == 4
    bob = await desk.join()

    taken = await desk.take(bob)
    await desk.nack(bob, taken[0].entry, retry=False)
    await desk.ack(bob, *(one.entry for one in taken[1:]))

    assert desk.redis.zcard(desk.keys.threads(0)) == 0
    assert await desk.store.agents.thread_state(ALICE, BOB, "t") == ThreadState(3, 3, 0)


async def test_a_revived_message_is_in_its_thread_again(desk: Desk) -> None:
    await desk.send(a_message("1", thread="t"), a_message("2", thread="t"))
    bob = await desk.join()
    taken = await desk.take(bob)
    await desk.nack(bob, taken[0].entry, retry=False)
    _, (letter,) = await desk.store.dead_letters.page(BOB, "", 10)

    await desk.store.dead_letters.revive(BOB, [letter.entry])

    assert await desk.store.agents.thread_state(ALICE, BOB, "t") == ThreadState(2, 0, 2)


async def test_what_has_no_thread_is_looked_for_page_by_page(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", payload="x" * 60_000, priority=n % 2) for n in range(40)))

    first_page = await desk.store.pipeline.reply(
        desk.encoder.packet(
            script("thread"),
            0,
            ["acme\tbob\talice\t", 1, ""],
            keys=desk.keys.boxes(BOB),
        )
    )
    state = await desk.store.agents.thread_state(ALICE, BOB, "")

    assert 10 < first_page[2] < 30
    assert state == ThreadState(last_seq=40, settled_seq=0, pending=40)
