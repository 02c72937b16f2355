"""spend: a bucket of tokens per sender, which fills with time and which no instance can refill."""

import msgspec

from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script
from tests.builders import ALICE, BOB, NOON_MS, Desk

ONE = 1_000  # token, in thousandths


async def spend(desk: Desk, *wants: object, per_s: int = 10, burst: int = 20 * ONE) -> list[list[int]]:
    """Each want is a sender, the least and the most."""
    call = msgspec.msgpack.encode([desk.clock.now_ms(), per_s, burst, list(wants)])
    packet = encode_command("EVALSHA", script("spend").sha, 2, desk.keys.rates(0), desk.keys.limits(0), call)
    granted: list[list[int]] = await desk.store.pipeline.reply(packet)
    return granted


async def test_a_rested_sender_may_spend_its_burst(desk: Desk) -> None:
    assert await spend(desk, ALICE, ONE, 20 * ONE) == [[20 * ONE, 100]]
    assert desk.redis.hget(desk.keys.rates(0), ALICE) == f"0\t{NOON_MS}"


async def test_an_empty_bucket_grants_nothing_and_says_when(desk: Desk) -> None:
    await spend(desk, ALICE, ONE, 20 * ONE)

    assert await spend(desk, ALICE, ONE, ONE) == [[0, 100]]
    desk.clock.advance(0.05)
    assert await spend(desk, ALICE, ONE, ONE) == [[0, 50]]
    desk.clock.advance(0.05)
    assert await spend(desk, ALICE, ONE, ONE) == [[ONE, 100]]


async def test_what_costs_less_than_a_token_may_go_on_sooner(desk: Desk) -> None:
    await spend(desk, ALICE, ONE, 20 * ONE)

    desk.clock.advance(0.05)

    assert await spend(desk, ALICE, 100, 5 * ONE) == [[500, 10]]


async def test_a_part_of_what_is_wanted_is_granted(desk: Desk) -> None:
    await spend(desk, ALICE, ONE, 15 * ONE)

    assert await spend(desk, ALICE, ONE, 15 * ONE) == [[5 * ONE, 100]]


async def test_the_bucket_fills_no_further_than_its_burst(desk: Desk) -> None:
    await spend(desk, ALICE, ONE, 20 * ONE)
    desk.clock.advance(3_600)

    assert await spend(desk, ALICE, ONE, 100 * ONE) == [[20 * ONE, 100]]


async def test_other_senders_are_unaffected_also_in_one_call(desk: Desk) -> None:
    granted = await spend(desk, ALICE, ONE, 30 * ONE, BOB, ONE, 5 * ONE, ALICE, ONE, ONE)

    assert granted == [[20 * ONE, 100], [5 * ONE, 0], [0, 100]]


async def test_a_clock_behind_gives_nothing_twice(desk: Desk) -> None:
    await spend(desk, ALICE, ONE, 20 * ONE)
    desk.clock.advance(-5)
    behind = await spend(desk, ALICE, ONE, 20 * ONE)
    desk.clock.advance(5)
    level = await spend(desk, ALICE, ONE, 20 * ONE)

    assert (behind[0][0], level[0][0]) == (0, 0)


async def test_a_sender_with_a_rate_of_its_own_spends_by_that(desk: Desk) -> None:
    await desk.store.limits.set_rate(ALICE, 1, 2, "acme/root")

    first = await spend(desk, ALICE, ONE, 20 * ONE, BOB, ONE, 20 * ONE)
    desk.clock.advance(1)
    second = await spend(desk, ALICE, ONE, 20 * ONE)
    await desk.store.limits.set_rate(ALICE, None, None, "acme/root")
    desk.clock.advance(1)
    third = await spend(desk, ALICE, ONE, 20 * ONE)

    assert first == [[2 * ONE, 1_000], [20 * ONE, 100]]
    assert second == [[ONE, 1_000]]
    assert third == [[10 * ONE, 100]]
