"""Roster: the agents and totals of one tenant, without reading other tenants' data."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from relay.store import readable
from relay.store.keys import Keys
from relay.store.redis.pipeline import CommandPipeline

SUMS_AT_ONCE = 200
OLDEST_AT_ONCE = 100
MOST_OLDER = (
    1_000  # mailboxes of other tenants in a shard that may have waited longer before the look for one's own ends
)


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals of a tenant. `online` counts agents with a session, even if its instance has just died."""

    agents: int
    messages: int
    bytes: int
    dead: int
    online: int

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.agents + other.agents,
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.dead + other.dead,
            self.online + other.online,
        )


class Roster:
    """Agents that are registered or have mail, by shard, in the order of their names."""

    def __init__(self, pipeline: CommandPipeline, keys: Keys) -> None:
        self._pipeline = pipeline
        self._keys = keys

    async def page(self, shard: int, tenant: str, after: str, limit: int) -> list[str]:
        """The next agents of a tenant in one shard; `after` is one of them, or empty."""
        first, end = _names_of(tenant)
        key = self._keys.roster(shard)
        low: str | bytes = f"({after}" if after else first
        names: list[str] = []
        while lacking := limit - len(names):  # instead of those that cannot be read
            reply = await self._pipeline.command("ZRANGE", key, low, end, "BYLEX", "LIMIT", 0, lacking)
            names += readable.names(key, reply)
            if len(reply) < lacking:
                break
            low = b"(" + reply[-1]
        return names

    async def by_name(self, tenant: str, after: str, most_of_shard: int) -> tuple[list[str], bool]:
        """The next agents of a tenant in all shards, in the order of their names, and whether there are no more."""
        shards = range(self._keys.shards)
        pages = await asyncio.gather(*(self.page(shard, tenant, after, most_of_shard) for shard in shards))
        ends = [page[-1] for page in pages if len(page) == most_of_shard]  # behind which a shard may have more
        return sorted(name for page in pages for name in page if not ends or name <= min(ends)), not ends

    async def sums(self, tenant: str) -> Sums:
        """The totals of a tenant over all shards, with three small commands per shard."""
        sums = await asyncio.gather(*(self._sums(shard, tenant) for shard in range(self._keys.shards)))
        return sum(sums, Sums(0, 0, 0, 0, 0))

    async def _sums(self, shard: int, tenant: str) -> Sums:
        fields = [f"{tenant}\t{what}" for what in ("messages", "bytes", "dead", "online")]
        agents, values = await asyncio.gather(
            self._pipeline.command("ZLEXCOUNT", self._keys.roster(shard), *_names_of(tenant)),
            self._pipeline.command("HMGET", self._keys.sums(shard), *fields),
        )
        return Sums(agents, *(max(0, readable.whole(value)) for value in values))

    async def size(self) -> int:
        """How many agents there are, in all tenants."""
        shards = range(self._keys.shards)
        return sum(
            await asyncio.gather(*(self._pipeline.command("ZCARD", self._keys.roster(shard)) for shard in shards))
        )

    async def sums_of_all(self) -> dict[str, dict[str, int]]:
        """Tenant -> what -> how much of it, over all shards: read a page at a time, by a worker."""
        by_tenant: dict[str, dict[str, int]] = {}
        for shard in range(self._keys.shards):
            seen: dict[bytes, bytes] = {}
            async for fields in self._pages(self._keys.sums(shard)):
                seen |= fields
            for tenant, what, count in readable.readable(self._keys.sums(shard), seen.items(), _read_sum):
                if what:
                    of_tenant = by_tenant.setdefault(tenant, {})
                    of_tenant[what] = of_tenant.get(what, 0) + count
        return by_tenant

    async def oldest_ms(self, tenant: str) -> int | None:
        """Since when the tenant's oldest message waits. None if nothing waits, or only what came after the mail of
        MOST_OLDER mailboxes of other tenants in its shard."""
        oldest = await asyncio.gather(*(self._oldest_ms(shard, tenant) for shard in range(self._keys.shards)))
        return min((at_ms for at_ms in oldest if at_ms is not None), default=None)

    async def _oldest_ms(self, shard: int, tenant: str) -> int | None:
        prefix = f"{tenant}/".encode()
        for start in range(0, MOST_OLDER, OLDEST_AT_ONCE):
            flat = await self._pipeline.command(
                *("ZRANGE", self._keys.waiting(shard), start, start + OLDEST_AT_ONCE - 1, "WITHSCORES")
            )
            for n in range(0, len(flat), 2):
                if flat[n].startswith(prefix):
                    return readable.score(flat[n + 1])
            if len(flat) < 2 * OLDEST_AT_ONCE:
                break
        return None

    async def _pages(self, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        cursor = b""
        while cursor != b"0":
            cursor, flat = await self._pipeline.command("HSCAN", key, cursor or b"0", "COUNT", SUMS_AT_ONCE)
            if flat:
                yield {flat[n]: flat[n + 1] for n in range(0, len(flat), 2)}


def _read_sum(record: tuple[bytes, bytes]) -> tuple[str, str, int]:
    """Tenant, what, and how much of it; without a tenant they are facts of the shard. Raises ValueError."""
    tenant, _, what = record[0].decode().partition("\t")
    return tenant, what, int(record[1]) if what else 0


def _names_of(tenant: str) -> tuple[str, str]:
    """The bounds of a tenant's addresses among all: "/" is followed by "0"."""
    return f"[{tenant}/", f"({tenant}0"
