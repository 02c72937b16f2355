"""Registrations: limits how fast new agents register by first use of a key, which costs them nothing."""

import time

from relay.errors import RateLimited
from relay.protocol.address import tenant_of

BURST_S = 10.0  # who has rested may register this many seconds' worth at once
TENANT_TIMES = 10  # a tenant may have so many times what one remote address may
MAX_BUCKETS = 10_000


class Buckets:
    """A token bucket per name; full buckets are forgotten."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._burst = max(1.0, per_s * BURST_S)
        self._left: dict[str, tuple[float, float]] = {}  # name -> tokens, when

    def wait_s(self, name: str, now: float) -> float:
        """In how many seconds there is a token."""
        return max(0.0, (1.0 - self._tokens(name, now)) / self._per_s)

    def take(self, name: str, now: float) -> None:
        if len(self._left) >= MAX_BUCKETS:
            self._forget_full(now)
        self._left[name] = (self._tokens(name, now) - 1.0, now)

    def _tokens(self, name: str, now: float) -> float:
        tokens, at = self._left.get(name, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._per_s)

    def _forget_full(self, now: float) -> None:
        """Forgets full buckets, or all if that is not enough: so many remote addresses at once are an attack."""
        self._left = {name: bucket for name, bucket in self._left.items() if self._tokens(name, now) < self._burst}
        if len(self._left) >= MAX_BUCKETS:
            self._left.clear()


class Registrations:
    """One per instance; instances do not share their counts."""

    def __init__(self, per_s: float) -> None:
        self._by_remote = Buckets(per_s)
        self._by_tenant = Buckets(per_s * TENANT_TIMES)

    def one_more(self, remote: str, address: str, now: float | None = None) -> None:
        """Raises RateLimited, of a remote address before it can use up what is the tenant's."""
        now = time.monotonic() if now is None else now
        tenant = tenant_of(address)
        wait_s = max(self._by_remote.wait_s(remote, now), self._by_tenant.wait_s(tenant, now))
        if wait_s > 0:
            raise RateLimited("too many new agents", retry_after_ms=max(1, int(wait_s * 1_000)))
        self._by_remote.take(remote, now)
        self._by_tenant.take(tenant, now)
