"""holds: who holds messages of some mailboxes, how many, and for how long."""

from typing import Any

from relay.store.keys import ALL_LANES
from relay.store.redis.scripts import script
from tests.builders import BOB, CAROL, Desk, a_message


async def holds(desk: Desk, *addresses: str, most: int = 20) -> list[list[tuple[str, int, str]]]:
    """Of each mailbox: session, how many, the oldest of them. For how long is the server's time."""
    mailboxes = [[address, ALL_LANES] for address in addresses]
    packet = desk.encoder.for_mailboxes(script("holds"), 0, [most], mailboxes)
    rows: list[list[Any]] = await desk.store.pipeline.reply(packet)
    return [[_named(row[n : n + 5]) for n in range(0, len(row), 5)] for row in rows]


def _named(row: list[Any]) -> tuple[str, int, str]:
    session, count, idle_ms, oldest, held_ms = row
    assert idle_ms >= 0
    assert held_ms >= 0
    return session.decode(), count, oldest.decode()


async def test_each_holder_is_told_with_the_oldest_that_it_has(desk: Desk) -> None:
    one, other = await desk.join(mode="shared"), await desk.join(mode="shared")
    sent = await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    await desk.take(one, room=2)
    await desk.take(other)

    (found,) = await holds(desk, BOB)

    assert sorted(found) == sorted([(one.name, 2, sent[0].entry), (other.name, 1, sent[2].entry)])


async def test_every_lane_is_told_by_itself(desk: Desk) -> None:
    bob = await desk.join()
    low, high = await desk.send(a_message("m-1"), a_message("m-2", priority=3))
    await desk.take(bob)

    assert await holds(desk, BOB) == [[(bob.name, 1, high.entry), (bob.name, 1, low.entry)]]


async def test_what_waits_is_parked_or_is_ready_nobody_holds(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send(*(a_message(f"m-{n}") for n in range(2)))
    await desk.take(bob)
    await desk.release(bob, sent[0].entry)
    await desk.nack(bob, sent[1].entry, delay_s=60)
    await desk.send_one(a_message("m-9"))

    assert await holds(desk, BOB, CAROL) == [[], []]


async def test_no_more_holders_of_a_lane_are_told_than_wanted(desk: Desk) -> None:
    sessions = [await desk.join(mode="shared") for _ in range(3)]
    await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    for session in sessions:
        await desk.take(session, room=1)

    (found,) = await holds(desk, BOB, most=2)

    assert len(found) == 2
