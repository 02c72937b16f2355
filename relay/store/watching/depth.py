"""Depth: how much waits in a shard, and how messages ended other than by ack."""

from dataclasses import dataclass

from relay.store import readable
from relay.store.keys import Keys
from relay.store.redis.pipeline import CommandPipeline


@dataclass(frozen=True, slots=True)
class Depth:
    """What waits in a shard."""

    mailboxes: int
    messages: int
    oldest_ms: int | None
    expired: int  # since the store was made
    dead: int
    cancelled: int
    revived: int
    unreadable: int  # records that were set aside
    events_cut: int  # entries of the event log, before any archive had read them


class Depths:
    def __init__(self, pipeline: CommandPipeline, keys: Keys) -> None:
        self._pipeline = pipeline
        self._keys = keys

    async def of(self, shard: int) -> Depth:
        """Raises StoreUnavailable."""
        key = self._keys.waiting(shard)
        mailboxes = await self._pipeline.command("ZCARD", key)
        oldest = await self._pipeline.command("ZRANGE", key, 0, 0, "WITHSCORES")
        known = await self._pipeline.command("HLEN", self._keys.ids(shard))
        messages = known - await self._pipeline.command("ZCARD", self._keys.shadows(shard))
        names = ("expired", "dead", "cancelled", "revived", "unreadable", "events_cut")
        totals = await self._pipeline.command("HMGET", self._keys.totals(shard), *names)
        oldest_ms = readable.score(oldest[1]) if oldest else None
        return Depth(mailboxes, messages, oldest_ms, *map(readable.whole, totals))
