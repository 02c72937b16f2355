"""How much goes out together."""

from typing import Any

from relay.errors import StoreUnavailable
from relay.store.redis.batcher import MOST_PER_CALL, MOST_PER_EXCHANGE, ShardBatcher
from relay.store.redis.pipeline import Command, CommandPipeline
from relay.store.redis.servers.connect import home_at


class SilentPipeline:
    """A pipeline that only counts how often it is rung."""

    def __init__(self) -> None:
        self.sources: list[Any] = []
        self.rung = 0
        self.exchange = 1

    def ring(self, _: int) -> None:
        self.rung += 1


def a_batcher(pipeline: SilentPipeline) -> tuple[ShardBatcher[int], list[list[int]]]:
    made: list[list[int]] = []

    def encode(_: int, items: list[int]) -> bytes:
        made.append(items)
        return b""

    return ShardBatcher[int](pipeline, encode, lambda *_: None), made  # type: ignore[arg-type]


def test_a_call_and_an_exchange_are_bounded_and_nothing_is_left_behind():
    pipeline = SilentPipeline()
    batcher, made = a_batcher(pipeline)
    for shard in range(64):
        for number in range(600):
            batcher.put(shard, shard * 1_000 + number)

    exchanges = 0
    while list(batcher.commands()):
        exchanges += 1

    assert max(map(len, made)) == MOST_PER_CALL
    assert exchanges >= 64 * 600 // (MOST_PER_EXCHANGE + MOST_PER_CALL)
    assert sorted(item for items in made for item in items) == sorted(
        shard * 1_000 + number for shard in range(64) for number in range(600)
    )
    assert pipeline.rung >= 64


def test_what_waits_in_a_shard_stays_in_order():
    batcher, made = a_batcher(SilentPipeline())
    for number in range(1_200):
        batcher.put(0, number)

    while list(batcher.commands()):
        pass

    assert [item for items in made for item in items] == list(range(1_200))


def test_a_busy_shard_does_not_keep_others_waiting():
    batcher, made = a_batcher(SilentPipeline())
    for shard in range(4):
        for _ in range(MOST_PER_CALL * 4):
            batcher.put(shard, shard)
    batcher.put(4, 4)

    list(batcher.commands())
    list(batcher.commands())

    assert [4] in made


async def test_a_call_is_made_anew_when_it_is_repeated_and_one_that_must_not_be_is_told() -> None:
    told: list[Any] = []
    pipeline = CommandPipeline(home_at("redis://127.0.0.1:1"))
    once = Command(b"once", lambda outcome: told.append(outcome), may_repeat=False)
    again = Command(b"before", lambda *_: None, re_encode=lambda: b"anew")
    calls = [once, again]

    pipeline.masters.all[0]._prepare_to_repeat(calls)

    assert (calls, again.packet) == ([again], b"anew")
    assert [type(outcome) for outcome in told] == [StoreUnavailable]


def test_a_call_that_is_made_anew_keeps_the_number_of_its_exchange() -> None:
    pipeline = SilentPipeline()
    batcher: ShardBatcher[int] = ShardBatcher(
        pipeline,  # type: ignore[arg-type]
        lambda *_: b"exchange %d" % pipeline.exchange,
        lambda *_: None,
    )
    batcher.put(0, 1)
    (command,) = batcher.commands()

    pipeline.exchange = 7
    command.encode_again()

    assert command.packet == b"exchange 1"


def test_a_store_is_busy_for_as_long_as_its_last_exchange_took_while_another_is_under_way() -> None:
    pipeline = CommandPipeline(home_at("redis://127.0.0.1:1"))
    (master,) = pipeline.masters.all
    pipeline.answered(0.5)

    at_rest = pipeline.busy_s()
    master.under_way = [Command(b"", lambda _: None)]

    assert (at_rest, pipeline.busy_s()) == (0.0, 0.5)
