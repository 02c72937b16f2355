"""How much goes out together."""

from typing import Any

from relay.store.batches import MOST_PER_CALL, MOST_PER_EXCHANGE, Gatherer


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
