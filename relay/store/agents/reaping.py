"""Reaping: removes what is kept for agents and instances that have been away for long."""

from typing import Any

import msgspec

from relay.store import readable
from relay.store.keys import ALL_LANES
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script


class Reaping:
    """Each step is safe to repeat, and to run in several places at once."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

    async def idle_agents(self, shard: int, before_ms: int, cursor: str, count: int) -> tuple[str, list[str]]:
        """A page of agents that were last seen before then; the cursor is "0" at the end."""
        key = self._keys.seen(shard)
        following, flat = await self._pipeline.command("HSCAN", key, cursor, "COUNT", count)
        idle = [name for name, seen in readable.pairs(flat) if _seen_ms(seen) < before_ms]
        return following.decode(), readable.names(key, idle)

    async def never_seen(self, shard: int, cursor: str, count: int) -> tuple[str, list[str]]:
        """A page of agents on the roster that no session or call was seen of; the cursor is "0" at the end."""
        key = self._keys.roster(shard)
        following, flat = await self._pipeline.command("ZSCAN", key, cursor, "COUNT", count)
        names = flat[::2]
        seen = await self._pipeline.command("HMGET", self._keys.seen(shard), *names) if names else []
        never = (name for name, at in zip(names, seen, strict=True) if at is None)
        return following.decode(), readable.names(key, never)

    async def reap(self, shard: int, addresses: list[str], receipts_before_ms: int, known_before_ms: int) -> list[str]:
        """Gives back what agents need that are away for long; the words are reap.lua's."""
        keys: list[str] = []
        for address in addresses:
            keys += (*self._keys.boxes(address), self._keys.dead(address), self._keys.receipts(address))
        mailboxes = [[address, ALL_LANES] for address in addresses]
        values = [f"{max(0, receipts_before_ms)}-0", known_before_ms, mailboxes]
        packet = self._encoder.packet(script("reap"), shard, values, keys=keys)
        return [word.decode() for word in await self._pipeline.reply(packet)]

    async def forget_calls(self, shard: int, before_ms: int) -> int:
        """Forgets instances that have called nothing since then: nothing of theirs is on its way. Returns how many."""
        key = self._keys.calls(shard)
        flat = await self._pipeline.command("HGETALL", key)
        idle = [name for name, at_ms in readable.readable(key, readable.pairs(flat), _read_call) if at_ms < before_ms]
        return int(await self._pipeline.command("HDEL", key, *idle)) if idle else 0


def _seen_ms(value: bytes) -> int:
    """0 if that cannot be read: one bad record must not keep the others from being looked at."""
    return readable.whole(value.partition(b"\t")[0])


def _read_call(record: tuple[bytes, bytes]) -> tuple[bytes, int]:
    """An instance, and when it last called. Raises msgspec's errors."""
    _, at_ms, *_ = msgspec.msgpack.decode(record[1], type=list[Any])
    return record[0], int(at_ms)
