"""Pauses: stopped delivery to an agent, or to all agents of a tenant."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from relay.protocol.address import tenant_of
from relay.protocol.columns import escape, unescape
from relay.store import readable
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

AT_ONCE = 500  # of a shard that are looked through in one call

Scope = Literal["agent", "tenant"]


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused the delivery, since when, and why if it was said."""

    by: str
    since_ms: int
    reason: str
    scope: Scope  # whose pause it is

    @classmethod
    def parse(cls, text: bytes, scope: Scope) -> "Pause":
        """From the columns that pause.lua stores. What cannot be read pauses all the same."""
        by, since_ms, reason = [*readable.shown(text).split("\t"), "", ""][:3]
        return cls(by, readable.whole(since_ms), unescape(reason), scope)


class Pauses:
    """A name is an address or, without a slash, a tenant. A tenant's pause is in every shard."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

    async def pause(self, name: str, by: str, reason: str = "") -> Pause:
        """Stops the delivery. One that was paused already stays as it is. Returns the pause that counts."""
        await self._change(name, by, reason, on=True)
        found = await self.of(name)
        assert found is not None
        return found

    async def resume(self, name: str, by: str) -> None:
        """Lets the delivery go on; also if it was not paused."""
        await self._change(name, by, "", on=False)

    async def _change(self, name: str, by: str, reason: str, on: bool) -> None:
        own = self._keys.shard(name)
        shards = [own] if "/" in name else range(self._keys.shards)
        await asyncio.gather(
            *(
                self._pipeline.reply(
                    self._encoder.packet(
                        script("pause"),
                        shard,
                        [name, by, escape(reason), on, shard == own],
                        keys=[self._keys.paused(shard)],
                    ),
                    needs_replicas=True,
                )
                for shard in shards
            )
        )

    async def of(self, name: str) -> Pause | None:
        """The pause of an agent or of a tenant itself."""
        key = self._keys.paused(self._keys.shard(name))
        text = await self._pipeline.command("HGET", key, name)
        return Pause.parse(text, "agent" if "/" in name else "tenant") if text else None

    async def agents_of(self, tenant: str, shard: int) -> dict[str, Pause]:
        """The agents of a tenant in a shard that are paused themselves."""
        paused: dict[str, Pause] = {}
        key, cursor = self._keys.paused(shard), b""
        while cursor != b"0":
            cursor, flat = await self._pipeline.command(
                "HSCAN", key, cursor or b"0", "MATCH", f"{tenant}/*", "COUNT", AT_ONCE
            )
            paused |= readable.readable(key, readable.pairs(flat), read_pause)
        return paused

    async def names(self) -> set[str]:
        """Every agent and tenant that is paused."""
        keys = [self._keys.paused(shard) for shard in range(self._keys.shards)]
        found = await asyncio.gather(*(self._pipeline.command("HKEYS", key) for key in keys))
        return {name for key, names in zip(keys, found, strict=True) for name in readable.names(key, names)}


def read_pause(record: tuple[bytes, bytes]) -> tuple[str, Pause]:
    """An agent that is paused itself. Raises ValueError."""
    return record[0].decode(), Pause.parse(record[1], "agent")


def is_paused(address: str, paused: set[str]) -> bool:
    """Whether one of these names is the agent's or its tenant's."""
    return bool(paused) and (address in paused or tenant_of(address) in paused)
