"""spend: a bucket of tokens per sender, which fills with time and which no instance can refill."""

import msgspec

from relay.store.batches import as_packet
from relay.store.scripts import script
from tests.builders import ALICE, BOB, NOON_MS, Desk


async def spend(desk: Desk, *wants: object, per_s: int = 10, burst: int = 20) -> list[list[int]]:
    call = msgspec.msgpack.encode([desk.clock.now_ms(), per_s, burst, list(wants)])
    packet = as_packet("EVALSHA", script("spend").sha, 1, desk.keys.rates(0), call)
    granted: list[list[int]] = await desk.store.line.reply(packet)
    return granted


async def test_a_rested_sender_may_spend_its_burst(desk: Desk) -> None:
    assert await spend(desk, ALICE, 20) == [[20, 100]]
    assert desk.redis.hget(desk.keys.rates(0), ALICE) == f"0\t{NOON_MS}"


async def test_an_empty_bucket_grants_nothing_and_says_when(desk: Desk) -> None:
    await spend(desk, ALICE, 20)

    assert await spend(desk, ALICE, 1) == [[0, 100]]
    desk.clock.advance(0.05)
    assert await spend(desk, ALICE, 1) == [[0, 50]]
    desk.clock.advance(0.05)
    assert await spend(desk, ALICE, 1) == [[1, 100]]


async def test_a_part_of_what_is_wanted_is_granted(desk: Desk) -> None:
    await spend(desk, ALICE, 15)

    assert await spend(desk, ALICE, 15) == [[5, 100]]


async def test_the_bucket_fills_no_further_than_its_burst(desk: Desk) -> None:
    await spend(desk, ALICE, 20)
    desk.clock.advance(3_600)

    assert await spend(desk, ALICE, 100) == [[20, 100]]


async def test_other_senders_are_unaffected_also_in_one_call(desk: Desk) -> None:
    granted = await spend(desk, ALICE, 30, BOB, 5, ALICE, 1)

    assert granted == [[20, 100], [5, 0], [0, 100]]


async def test_a_clock_behind_gives_nothing_twice(desk: Desk) -> None:
    await spend(desk, ALICE, 20)
    desk.clock.advance(-5)
    behind = await spend(desk, ALICE, 20)
    desk.clock.advance(5)
    level = await spend(desk, ALICE, 20)

    assert (behind[0][0], level[0][0]) == (0, 0)
