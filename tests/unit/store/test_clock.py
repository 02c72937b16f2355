"""The store's time, as far as a question and its answer can tell."""

import time

import pytest

from relay.store.clock import Clock


def ahead_ms(clock: Clock) -> int:
    """Of the time since the start of the machine."""
    return clock.now_ms() - clock.own_ms()


@pytest.mark.parametrize(
    ("server_ms", "asked_ms", "heard_ms", "offset_ms"),
    [
        (1_000, 999, 1_001, 0),  # in step
        (1_000, 900, 1_300, 0),  # a slow answer, but it may well be in step
        (5_000, 999, 1_001, 3_999),  # the server is ahead, by this at least
        (1_000, 5_000, 5_010, -4_000),  # and behind, by this at least
    ],
)
def test_a_clock_is_corrected_by_as_much_as_it_is_proven_wrong(
    server_ms: int, asked_ms: int, heard_ms: int, offset_ms: int
) -> None:
    clock = Clock()
    first_ms = ahead_ms(clock)

    clock.heard(first_ms + server_ms, asked_ms, heard_ms)

    assert abs(ahead_ms(clock) - first_ms - offset_ms) <= 1


def test_a_better_answer_corrects_a_worse_one() -> None:
    clock = Clock()
    first_ms = ahead_ms(clock)

    clock.heard(first_ms + 5_000, 1_000, 3_000)
    clock.heard(first_ms + 5_000, 2_000, 2_010)
    clock.heard(first_ms + 5_000, 1_000, 3_000)

    assert abs(ahead_ms(clock) - first_ms - 2_990) <= 1


def test_it_begins_with_the_time_of_this_machine() -> None:
    assert abs(Clock().now_ms() - time.time() * 1_000) < 1_000


def test_whoever_sets_the_clock_of_this_machine_does_not_move_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    before_ms = clock.now_ms()

    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 10 * 10**9)

    assert clock.now_ms() - before_ms < 5_000
