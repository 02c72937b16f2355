"""Batches what waits for one script: one call per shard."""

import logging
from collections.abc import Callable, Container, Iterable
from typing import Generic, TypeVar

from relay.errors import StoreUnavailable
from relay.store.redis.pipeline import Command, CommandPipeline, Outcome

log = logging.getLogger(__name__)

MOST_PER_EXCHANGE = 2_000  # of one kind in one exchange, which must be answered in time
MOST_PER_CALL = 500  # messages in one script call: a few milliseconds of the server's time

Item = TypeVar("Item")


class ShardBatcher(Generic[Item]):
    """What waits for one script, by shard. A shard's items become one call, or several if they weigh too much.

    `weigh` says how many messages an item is about; a call is about `most` of them, or one item that has more.
    """

    def __init__(
        self,
        pipeline: CommandPipeline,
        encode: Callable[[int, list[Item]], bytes],
        deliver: Callable[[list[Item], Outcome], None],
        most: int = MOST_PER_CALL,
        may_repeat: bool = True,
        weigh: Callable[[Item], int] = lambda _: 1,
        is_patient: bool = False,
        needs_replicas: bool = False,
    ) -> None:
        self._is_patient = is_patient  # nobody waits for it: it travels with whatever goes out next
        self._pipeline = pipeline
        self._weigh = weigh
        self._encode = encode
        self._deliver = deliver
        self._most = most
        self._may_repeat = may_repeat
        self._needs_replicas = needs_replicas  # see Command
        self._waiting: dict[int, list[Item]] = {}
        pipeline.sources.append(self.commands)

    def put(self, shard: int, item: Item) -> None:
        items = self._waiting.get(shard)
        if items is None:
            self._waiting[shard] = [item]
            if self._is_patient:
                self._pipeline.ring_later(shard)
            else:
                self._pipeline.ring(shard)
        else:
            items.append(item)

    def put_back(self, shard: int, items: list[Item]) -> None:
        """Puts items back, ahead of those that came in meanwhile."""
        self._waiting[shard] = items + self._waiting.get(shard, [])
        self._pipeline.ring(shard)

    def commands(self, shards: Container[int] | None = None) -> Iterable[Command]:
        """What waits for these shards, or for all, as commands.

        Items beyond the size of one call or one exchange stay for the next.
        """
        waiting = self._taken_out(shards)
        total, left = 0, {}
        for shard, items in waiting.items():
            if total >= MOST_PER_EXCHANGE:
                self._waiting[shard] = items
                self._pipeline.ring(shard)
                continue
            batches, weight = self._batches(items)
            total += weight
            taken = sum(map(len, batches))
            if taken < len(items):
                left[shard] = items[taken:]
                self._pipeline.ring(shard)
            for part, batch in enumerate(batches):
                yield from self._make(shard, batch, part)
        self._waiting |= left  # shards that were not served this time come first in the next one

    def _taken_out(self, shards: Container[int] | None) -> dict[int, list[Item]]:
        if shards is None:
            waiting, self._waiting = self._waiting, {}
        else:
            waiting = {shard: items for shard, items in self._waiting.items() if shard in shards}
            for shard in waiting:
                del self._waiting[shard]
        return waiting

    def _batches(self, items: list[Item]) -> tuple[list[list[Item]], int]:
        """The first of the items, as many as make one call and at least one; and what they weigh."""
        weight = 0
        for count, item in enumerate(items):
            more = self._weigh(item)
            if weight + more > self._most and count > 0:
                return [items[:count]], weight
            weight += more
        return [items], weight

    def _packet(self, shard: int, items: list[Item], _: int) -> bytes:
        """The call for one of the batches."""
        return self._encode(shard, items)

    def _make(self, shard: int, items: list[Item], part: int) -> Iterable[Command]:
        def done(outcome: Outcome) -> None:
            self._deliver(items, outcome)

        exchange = self._pipeline.exchange  # its number, which it keeps when it is sent again; see fence.lua

        def encode() -> bytes:
            self._pipeline.exchange = exchange
            return self._packet(shard, items, part)

        try:
            yield Command(encode(), done, self._may_repeat, encode, self._needs_replicas, shard)
        except Exception:
            # What cannot be put into a call must not take the pipeline down, which everybody else uses too.
            log.exception("call_not_made")
            self._deliver(items, StoreUnavailable("the call could not be made"))
