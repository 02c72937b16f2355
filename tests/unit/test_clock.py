"""The store's time, as far as a question and its answer can tell."""

import pytest

from relay.store.clock import Clock


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

    clock.heard(server_ms, asked_ms, heard_ms)

    assert abs(clock.now_ms() - clock.own_ms() - offset_ms) <= 1


def test_a_better_answer_corrects_a_worse_one() -> None:
    clock = Clock()

    clock.heard(5_000, 1_000, 3_000)
    clock.heard(5_000, 2_000, 2_010)
    clock.heard(5_000, 1_000, 3_000)

    assert abs(clock.now_ms() - clock.own_ms() - 2_990) <= 1
