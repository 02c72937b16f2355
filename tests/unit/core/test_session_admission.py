"""How many sessions begin a second, and when the others are told to come back."""

from relay.core.presence.session_admission import LATEST_S, SessionAdmission


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_no_second_has_more_than_the_limit() -> None:
    clock, begun = Clock(), []
    admissions = SessionAdmission(50, clock)

    for _ in range(5_000):
        if admissions.wait_ms() == 0:
            begun.append(clock.now)
        clock.now += 0.001

    assert max(sum(start <= at < start + 1 for at in begun) for start in begun) <= 50
    assert len(begun) >= 5 * 45


def test_each_of_a_crowd_is_given_another_time_and_finds_room_then() -> None:
    clock = Clock()
    admissions = SessionAdmission(100, clock)

    waits = [admissions.wait_ms() for _ in range(2_000)]
    told = [wait for wait in waits if wait]
    refused_again = 0
    for wait in told:
        clock.now = 1_000.0 + wait / 1_000
        refused_again += admissions.wait_ms() > 0

    assert 1 <= waits.count(0) <= 10
    assert told == sorted(set(told))
    assert told[-1] / 1_000 < 2_000 / 100 * 1.2
    assert refused_again <= 1


def test_nobody_is_told_to_stay_away_for_long() -> None:
    admissions = SessionAdmission(0.5, Clock())

    assert max(admissions.wait_ms() for _ in range(1_000)) == LATEST_S * 1_000


def test_a_slow_limit_lets_one_begin() -> None:
    assert SessionAdmission(0.1, Clock()).wait_ms() == 0
