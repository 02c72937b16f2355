"""How much goes out together."""

from typing import Any

from relay.errors import StoreUnavailable
from relay.store.batches import MOST_PER_CALL, MOST_PER_EXCHANGE, Call, Gatherer, _prepare_to_repeat


class SilentLine:
    """A line that only counts how often it is rung."""

    def __init__(self) -> None:
        self.gatherers: list[Any] = []
        self.rung = 0

    def ring(self) -> None:
        self.rung += 1


def a_gatherer(line: SilentLine) -> tuple[Gatherer[int], list[list[int]]]:
    made: list[list[int]] = []

    def encode(_: int, items: list[int]) -> bytes:
        made.append(items)
        return b""

    return Gatherer[int](line, encode, lambda *_: None), made  # type: ignore[arg-type]


def test_a_call_and_an_exchange_are_bounded_and_nothing_is_left_behind():
    line = SilentLine()
    gatherer, made = a_gatherer(line)
    for shard in range(64):
        for number in range(600):
            gatherer.put(shard, shard * 1_000 + number)

    exchanges = 0
    while list(gatherer.calls()):
        exchanges += 1

    assert max(map(len, made)) == MOST_PER_CALL
    assert exchanges >= 64 * 600 // (MOST_PER_EXCHANGE + MOST_PER_CALL)
    assert sorted(item for items in made for item in items) == sorted(
        shard * 1_000 + number for shard in range(64) for number in range(600)
    )
    assert line.rung >= 64


def test_what_waits_in_a_shard_stays_in_order():
    gatherer, made = a_gatherer(SilentLine())
    for number in range(1_200):
        gatherer.put(0, number)

    while list(gatherer.calls()):
        pass

    assert [item for items in made for item in items] == list(range(1_200))


def test_a_busy_shard_does_not_keep_others_waiting():
    gatherer, made = a_gatherer(SilentLine())
    for shard in range(4):
        for _ in range(MOST_PER_CALL * 4):
            gatherer.put(shard, shard)
    gatherer.put(4, 4)

    list(gatherer.calls())
    list(gatherer.calls())

    assert [4] in made


def test_a_call_is_made_anew_when_it_is_repeated_and_one_that_must_not_be_is_told():
    told: list[Any] = []
    once = Call(b"once", lambda _, outcome: told.append(outcome), may_repeat=False)
    again = Call(b"before", lambda *_: None, anew=lambda: b"after")
    calls = [once, again]

    _prepare_to_repeat(calls)

    assert (calls, again.packet, again.retried) == ([again], b"after", True)
    assert [type(outcome) for outcome in told] == [StoreUnavailable]
