"""Exchanges are apart only when there are many."""

from relay.store.redis.pace import APART_S, FREE_AT_ONCE, FREE_PER_S, Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def exchanges(pace: Pace, clock: Clock, every_s: float, seconds: float) -> int:
    """How many there are when something new waits every so often, each taking no time."""
    count, end, rung_at = 0, clock.now + seconds, clock.now
    while clock.now < end:
        clock.now = max(clock.now, rung_at)
        clock.now += pace.wait_s()
        pace.began()
        count += 1
        while rung_at <= clock.now:
            rung_at += every_s
    return count


def test_after_a_rest_nothing_waits() -> None:
    pace = Pace(Clock())

    for _ in range(FREE_AT_ONCE):
        assert pace.wait_s() == 0
        pace.began()

    assert pace.wait_s() == APART_S


def test_a_lone_conversation_is_not_slowed() -> None:
    clock = Clock()
    pace = Pace(clock)

    assert exchanges(pace, clock, every_s=1 / 250, seconds=2) >= 495


def test_a_trickle_of_many_shares_exchanges() -> None:
    clock = Clock()
    pace = Pace(clock)

    assert exchanges(pace, clock, every_s=1 / 2_000, seconds=2) <= 2 * max(FREE_PER_S, 1 / APART_S) + FREE_AT_ONCE


def test_what_took_long_is_followed_at_once() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(2 * FREE_AT_ONCE):
        pace.began()

    clock.now += 2 * APART_S

    assert pace.wait_s() == 0
