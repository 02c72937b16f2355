"""Roster: the agents and totals of one tenant, without reading other tenants' data."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from relay.store import readable
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

ENROL_AT_ONCE = 200
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

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

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
            async for fields in self._pages("HSCAN", self._keys.sums(shard)):
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

    # -- data that are older than the roster

    async def is_counted(self, shard: int) -> bool:
        is_there: int = await self._pipeline.command("HEXISTS", self._keys.sums(shard), "counted")
        return is_there == 1

    async def build(self, shard: int) -> None:
        """Enrols the agents of older data, counts what they have and indexes their threads. Idempotent."""
        known: set[str] = set()
        async for addresses in self._names("HSCAN", self._keys.agents(shard)):
            known.update(addresses)
            await self._enrol(shard, addresses)
        async for addresses in self._names("ZSCAN", self._keys.waiting(shard)):
            known.update(addresses)
            await self._enrol(shard, addresses)
            for address in addresses:
                await self._index(shard, address)
        while others := await self._recount(shard, sorted(known)):
            known.update(others)

    async def _enrol(self, shard: int, addresses: list[str]) -> None:
        await self._pipeline.reply(self._encoder.packet(script("enrol"), shard, [addresses]))

    async def _recount(self, shard: int, addresses: list[str]) -> list[str]:
        """Counts what these and all others have; not if there are agents that were not named, which it returns."""
        keys = [self._keys.dead(address) for address in addresses]
        packet = self._encoder.packet(script("recount"), shard, [addresses], keys=keys)
        others: list[bytes] = await self._pipeline.reply(packet)
        named = readable.names(self._keys.roster(shard), others)
        if others and not named:  # the roster is an index: what is nobody's name is taken off it, or nothing is counted
            await self._pipeline.command("ZREM", self._keys.roster(shard), *others)
            return await self._recount(shard, addresses)
        return named

    async def _index(self, shard: int, address: str) -> None:
        lane, after = 1, ""
        while lane:
            packet = self._encoder.packet(
                script("index"),
                shard,
                [lane, after],
                keys=self._keys.boxes(address),
            )
            lane, behind = await self._pipeline.reply(packet)
            after = behind.decode()

    async def _names(self, command: str, key: str) -> AsyncIterator[list[str]]:
        """Pages of the names in a hash or a sorted set; some may come twice."""
        async for fields in self._pages(command, key):
            yield readable.names(key, fields)

    async def _pages(self, command: str, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        cursor = b""
        while cursor != b"0":
            cursor, flat = await self._pipeline.command(command, key, cursor or b"0", "COUNT", ENROL_AT_ONCE)
            if flat:
                yield {flat[n]: flat[n + 1] for n in range(0, len(flat), 2)}


def _read_sum(record: tuple[bytes, bytes]) -> tuple[str, str, int]:
    """Tenant, what, and how much of it; without a tenant they are facts of the shard. Raises ValueError."""
    tenant, _, what = record[0].decode().partition("\t")
    return tenant, what, int(record[1]) if what else 0


def _names_of(tenant: str) -> tuple[str, str]:
    """The bounds of a tenant's addresses among all: "/" is followed by "0"."""
    return f"[{tenant}/", f"({tenant}0"
