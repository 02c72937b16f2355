"""Batches that keep the order of steps for each mailbox."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from relay.store.redis.batcher import MOST_PER_CALL, ShardBatcher
from relay.store.redis.encoder import Number
from relay.store.redis.pipeline import CommandPipeline, Outcome

MOST_RUNS = 20  # calls of one shard in one exchange


class Step(Protocol):
    """One step on a mailbox."""

    @property
    def how(self) -> str: ...
    @property
    def is_alone(self) -> bool: ...  # else it may share a call with others that are done in the same way
    @property
    def address(self) -> str: ...
    @property
    def weight(self) -> int: ...  # how many messages it is about
    @property
    def may_be_put_back(self) -> bool: ...  # else the next step of its mailbox may be in the same exchange


AnyStep = TypeVar("AnyStep", bound=Step)


class OrderedBatcher(ShardBatcher[AnyStep]):
    """What waits, by shard, in runs of one kind: no step overtakes an earlier one of its mailbox.

    Each run is a call with its own number, so that it is executed once.
    """

    def __init__(
        self,
        pipeline: CommandPipeline,
        encode: Callable[[int, list[AnyStep], Number], bytes],
        deliver: Callable[[list[AnyStep], Outcome], None],
    ) -> None:
        super().__init__(pipeline, lambda shard, steps: self._packet(shard, steps, 0), deliver, needs_replicas=True)
        self._encode_run = encode

    def _packet(self, shard: int, items: list[AnyStep], part: int) -> bytes:
        return self._encode_run(shard, items, (self._pipeline.exchange, part))

    def _batches(self, items: list[AnyStep]) -> tuple[list[list[AnyStep]], int]:
        """A step joins the latest run of its kind, unless a later run touches its mailbox."""
        runs: list[list[AnyStep]] = []
        latest: dict[str, int] = {}  # kind -> its latest run
        touched: dict[str, int] = {}  # address -> the latest run that touches it
        tentative: set[str] = set()  # addresses with a step that may have to be done again
        total = 0
        for step in items:
            run = latest.get(step.how, -1)
            is_new = step.is_alone or run < touched.get(step.address, 0)
            if step.address in tentative and not step.may_be_put_back:
                break
            if step.may_be_put_back:
                tentative.add(step.address)
            if runs and (total + step.weight > MOST_PER_CALL or (is_new and len(runs) == MOST_RUNS)):
                break
            if is_new:
                run = latest[step.how] = len(runs)
                runs.append([])
            runs[run].append(step)
            touched[step.address] = run
            total += step.weight
        return runs, total
