"""Readiness: whether this instance should get traffic, and if not, why."""

from collections.abc import Callable

from relay.errors import RelayError, StoreUnavailable
from relay.store.store import Store


class Readiness:
    """On a Cluster an instance is ready while it reaches RELAY_READY_SHARE of the shards."""

    def __init__(self, store: Store, heard_share: Callable[[], float]) -> None:
        self._store = store
        self._heard_share = heard_share
        self._problem: str | None = "the store has not been looked at yet"

    async def inspect(self) -> bool:
        """Looks at the store. True if its data were lost since the last time.

        Raises StoreUnavailable, unless the store is known from before and only some of its masters are away.
        """
        before = self._store.meta.epoch
        try:
            is_new = await self._store.inspect()
            self._problem = self._store.safety.reason if self._store.safety else None
        except StoreUnavailable as error:
            if before and self._store.settings.ready_share <= self._store.reached_share() < 1:
                return False
            self._problem = error.message
            raise
        except RelayError as error:
            self._problem = error.message
            raise
        return is_new and bool(before)

    def reason(self) -> str | None:
        """Why this instance should get no traffic, or None."""
        if not self._reaches_enough():
            return "the store does not answer"
        if self._heard_share() < self._store.settings.ready_share:
            return "the subscription for wakes is down"
        return self._problem

    def _reaches_enough(self) -> bool:
        return self._store.reached_share() >= self._store.settings.ready_share
