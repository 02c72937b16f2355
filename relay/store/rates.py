"""Rate limits: one token bucket per sender in the store, spent in small advances, so that no instance can refill it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from relay.store.batches import Gatherer, Line, Outcome
from relay.store.calls import Calls
from relay.store.keys import as_packet
from relay.store.scripts import script

ADVANCES_PER_S = 20  # a busy sender asks the store about this often, not for each message
MAX_BALANCES = 100_000
Granted = Callable[[int | None, int], None]  # how many (None: the store is away), and in how many ms there is more


@dataclass(slots=True)
class Want:
    sender: str
    count: int  # what the sender wants to send now
    balance: int  # what it had left here
    most: int  # what is asked of the store
    got: Granted


class Rates:
    """Grants messages to senders. What was advanced and not spent stays with this instance for that sender."""

    def __init__(self, line: Line, calls: Calls) -> None:
        self._calls = calls
        self._keys = calls.keys
        self._per_s = calls.settings.rate_per_s
        self._advance = max(1, self._per_s // ADVANCES_PER_S)
        self._balances: dict[str, int] = {}
        # Asking twice may spend twice, which costs a sender a moment; not asking again would cost it the message.
        self._wants = Gatherer[Want](line, self._encode, self._granted, most=500)

    def spend(self, sender: str, count: int, got: Granted) -> None:
        """Spends up to `count`; `got` is called at once when that much is at hand, else when the store has answered."""
        if self._per_s == 0:
            got(count, 0)
            return
        balance = self._balances.pop(sender, 0)
        if balance >= count:
            self._balances[sender] = balance - count
            got(count, 0)
            return
        most = max(count - balance, self._advance)
        self._wants.put(self._keys.shard(sender), Want(sender, count, balance, most, got))

    def _encode(self, shard: int, wants: list[Want]) -> bytes:
        flat: list[Any] = []
        for want in wants:
            flat += (want.sender, want.most)
        call = [self._calls.clock.now_ms(), self._per_s, self._calls.settings.rate_burst, flat]
        return as_packet("EVALSHA", script("spend").sha, 1, self._keys.rates(shard), msgspec.msgpack.encode(call))

    def _granted(self, wants: list[Want], outcome: Outcome, _: bool) -> None:
        if len(self._balances) >= MAX_BALANCES:
            self._balances.clear()
        for n, want in enumerate(wants):
            if isinstance(outcome, Exception):
                want.got(None, 0)
                continue
            granted, retry_after_ms = outcome[n]
            total = self._balances.pop(want.sender, 0) + want.balance + granted
            spent = min(want.count, total)
            if total > spent:
                self._balances[want.sender] = total - spent
            want.got(spent, retry_after_ms)
