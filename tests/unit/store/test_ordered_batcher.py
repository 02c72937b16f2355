"""Steps on mailboxes go out together where they can, and in order where they must."""

from dataclasses import dataclass
from typing import Any

from relay.store.redis.batcher import MOST_PER_CALL
from relay.store.redis.ordered_batcher import MOST_RUNS, OrderedBatcher
from tests.unit.store.test_batcher import SilentPipeline


@dataclass(frozen=True)
class AStep:
    how: str
    address: str
    n: int = 0
    weight: int = 1
    is_alone: bool = False
    may_be_put_back: bool = False


def a_batcher() -> tuple[OrderedBatcher[AStep], list[list[AStep]]]:
    made: list[list[AStep]] = []

    def encode(_: int, steps: list[AStep], number: Any) -> bytes:
        assert number[1] < MOST_RUNS
        made.append(steps)
        return b""

    return OrderedBatcher[AStep](SilentPipeline(), encode, lambda *_: None), made  # type: ignore[arg-type]


def runs_of(*steps: AStep) -> list[list[AStep]]:
    batcher, made = a_batcher()
    for step in steps:
        batcher.put(0, step)
    while list(batcher.commands()):
        pass
    return made


def test_steps_of_one_kind_share_a_call():
    acks = [AStep("ack", f"a{n}") for n in range(50)]

    assert runs_of(*acks) == [acks]


def test_a_step_of_another_mailbox_joins_an_earlier_call():
    nack, ack, other = AStep("nack", "a"), AStep("ack", "a"), AStep("nack", "b")

    assert runs_of(nack, ack, other) == [[nack, other], [ack]]


def test_no_step_overtakes_another_of_its_mailbox():
    steps = [AStep(how, "a", n) for n, how in enumerate(("nack", "ack", "ack", "nack", "release", "ack"))]

    assert [step for run in runs_of(*steps) for step in run] == steps


def test_a_step_follows_one_of_its_mailbox_into_a_later_call():
    first, blocker, second, third = AStep("ack", "a"), AStep("nack", "b"), AStep("ack", "b"), AStep("ack", "a", 1)

    assert runs_of(first, blocker, second, third) == [[first], [blocker], [second, third]]


def test_what_is_alone_shares_no_call():
    replies = [AStep("reply", "a", n, is_alone=True) for n in range(3)]

    assert runs_of(*replies) == [[one] for one in replies]


def test_calls_and_exchanges_are_bounded_and_stay_in_order():
    steps = [AStep(how, "a", n, weight=100) for n, how in enumerate(("ack", "nack") * 100)]
    batcher, made = a_batcher()
    for step in steps:
        batcher.put(0, step)

    while calls := list(batcher.commands()):
        assert len(calls) * 100 <= MOST_PER_CALL

    assert [step for run in made for step in run] == steps


def test_what_follows_a_step_that_may_be_put_back_waits_for_the_next_exchange():
    ack, nack = AStep("ack_plain", "a", may_be_put_back=True), AStep("nack", "a")
    batcher, made = a_batcher()
    for step in (ack, nack):
        batcher.put(0, step)

    exchanges = [len(list(batcher.commands())) for _ in range(3)]

    assert (exchanges, made) == ([1, 1, 0], [[ack], [nack]])
