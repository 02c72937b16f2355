"""Rate limits: one token bucket per sender in the store, spent in small advances, so that no instance can refill it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from relay.store import readable
from relay.store.redis.batcher import ShardBatcher
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline, Outcome
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script

ADVANCES_PER_S = 20  # a busy sender asks the store about this often, not for each message
MAX_BALANCES = 100_000

# What an operation costs, in thousandths of a message.
MESSAGE = 1_000  # also a reply and a publication
ACK = 100  # so whoever acks all that ten senders send at their full rate is not limited
SETTLING = {"ack": ACK, "nack": 200, "release": 200, "touch": 200}
LOOK = 100  # at one thing: a message, a task, an agent; a lease; a name in a question of presence
LIST = 1_000  # a page of a list, a question about a whole thread, a change of blocks or topics
SEARCH = 1_000  # what one call of take.lua reads of other types, in a lease with types

Granted = Callable[[int | None, int], None]  # how many (None: the store is away), and in how many ms there is more


@dataclass(slots=True)
class Want:
    sender: str
    count: int  # how many operations the sender wants now
    price: int  # of each
    balance: int  # what it had left here
    got: Granted

    @property
    def least(self) -> int:
        """How much the balance lacks for one more operation."""
        return self.price - self.balance % self.price


class Rates:
    """Grants operations to senders. What was advanced and not spent stays with this instance for that sender."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys
        self._per_s = encoder.settings.rate_per_s
        self._burst = encoder.settings.rate_burst * MESSAGE
        self._advance = max(MESSAGE, self._per_s * MESSAGE // ADVANCES_PER_S)
        self._balances: dict[str, int] = {}
        # Asking twice may spend twice, which costs a sender a moment; not asking again would cost it the message.
        self._wants = ShardBatcher[Want](pipeline, self._encode, self._granted, most=500)

    def spend(self, sender: str, count: int, got: Granted, price: int = MESSAGE) -> None:
        """Spends up to `count` operations. `got` is called at once if the local balance is enough, else when the store
        has answered. An operation that costs more than the whole burst costs the whole burst."""
        if self._per_s == 0:
            got(count, 0)
            return
        price = min(price, self._burst)
        balance = self._balances.pop(sender, 0)
        if balance >= count * price:
            self._balances[sender] = balance - count * price
            got(count, 0)
            return
        self._wants.put(self._keys.shard(sender), Want(sender, count, price, balance, got))

    def give_back(self, sender: str, amount: int) -> None:
        """Takes back what was spent in advance and not needed."""
        if self._per_s and amount > 0:
            self._balances[sender] = self._balances.get(sender, 0) + amount

    def _encode(self, shard: int, wants: list[Want]) -> bytes:
        flat: list[Any] = []
        for want in wants:
            flat += (want.sender, want.least, max(want.count * want.price - want.balance, self._advance))
        call = [self._encoder.clock.now_ms(), self._per_s, self._burst, flat]
        keys = self._keys.rates(shard), self._keys.limits(shard)
        return encode_command("EVALSHA", script("spend").sha, len(keys), *keys, msgspec.msgpack.encode(call))

    def _granted(self, wants: list[Want], outcome: Outcome) -> None:
        if len(self._balances) >= MAX_BALANCES:
            self._balances.clear()
        for n, want in enumerate(wants):
            if isinstance(outcome, Exception):
                self._balances[want.sender] = self._balances.get(want.sender, 0) + want.balance
                want.got(None, 0)
                continue
            granted, retry_after_ms = outcome[n]
            total = self._balances.pop(want.sender, 0) + want.balance + granted
            count = min(want.count, total // want.price)
            if total > count * want.price:
                self._balances[want.sender] = total - count * want.price
            want.got(count, retry_after_ms)

    async def forget_idle(self, shard: int, before_ms: int) -> int:
        """Forgets the buckets of senders that have not sent since then: they are full. Returns how many."""
        key = self._keys.rates(shard)
        cursor, count = "0", 0
        while True:
            following, flat = await self._pipeline.command("HSCAN", key, cursor, "COUNT", 500)
            idle = [name for name, left in readable.pairs(flat) if readable.whole(left.partition(b"\t")[2]) < before_ms]
            if idle:
                count += await self._pipeline.command("HDEL", key, *idle)
            cursor = following.decode()
            if cursor == "0":
                return count
