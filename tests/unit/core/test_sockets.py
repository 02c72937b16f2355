"""Sockets are told of the time in turns, so that idle ones cost next to nothing."""

from collections import Counter
from unittest.mock import Mock

from relay.core.instance.sockets import TURNS, Sockets
from relay.telemetry.metrics import Metrics


def some_sockets(count: int) -> tuple[Sockets, list[Mock]]:
    sockets, opened = Sockets(1_000, Metrics()), [Mock() for _ in range(count)]
    for socket in opened:
        sockets.opened(socket)
    return sockets, opened


def test_each_has_its_turn_once_in_a_round() -> None:
    sockets, opened = some_sockets(7 * TURNS)

    told = [sockets.in_turn() for _ in range(TURNS)]

    assert Counter(socket for some in told for socket in some) == Counter(opened)
    assert [len(some) for some in told] == [7] * TURNS


def test_one_that_is_in_a_hurry_has_every_turn() -> None:
    sockets, opened = some_sockets(100)

    sockets.hurry(opened[7])

    assert all(sockets.in_turn().count(opened[7]) == 1 for _ in range(2 * TURNS))


def test_a_few_are_told_too() -> None:
    sockets, opened = some_sockets(1)

    assert sockets.in_turn() == opened


def test_one_that_is_closed_is_told_no_more() -> None:
    sockets, opened = some_sockets(1)
    sockets.hurry(opened[0])

    sockets.closed(opened[0])

    assert sockets.in_turn() == []
