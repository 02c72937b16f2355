"""Trimming: measures the memory of all event logs, and cuts their oldest entries."""

import asyncio
from dataclasses import dataclass

from relay.store import readable
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

MEASURED_BYTES = 16 * 2**20  # of logs that are looked through in one round: some milliseconds of the server's time


@dataclass(frozen=True, slots=True)
class Log:
    """The event log of one shard."""

    entries: int
    bytes: float


class Trimming:
    """Measuring a log walks through it, so each round measures some logs and uses older values for the others."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys
        self._bytes_per_entry: dict[int, float] = {}
        self._next = 0  # the shard that is measured next

    async def logs(self) -> list[Log]:
        """Of every shard. Raises StoreUnavailable."""
        shards = range(self._keys.shards)
        lengths = await asyncio.gather(*(self._pipeline.command("XLEN", self._keys.events(shard)) for shard in shards))
        measured = 0.0
        for _ in shards:
            if measured >= MEASURED_BYTES:
                break
            measured += await self._measure(self._next, lengths[self._next])
            self._next = (self._next + 1) % self._keys.shards
        known = self._bytes_per_entry.values()
        usual = sum(known) / len(known) if known else 0.0
        each = [self._bytes_per_entry.get(shard, usual) for shard in shards]
        return [Log(length, length * entry_bytes) for length, entry_bytes in zip(lengths, each, strict=True)]

    async def _measure(self, shard: int, entries: int) -> float:
        if entries == 0:
            self._bytes_per_entry.pop(shard, None)
            return 0.0
        size: int = await self._pipeline.command("MEMORY", "USAGE", self._keys.events(shard), "SAMPLES", 0) or 0
        self._bytes_per_entry[shard] = size / entries
        return size

    async def trim(self, shard: int, older_than_ms: int, unarchived_older_than_ms: int) -> int:
        """Removes events older than that; where an archive is kept, of those that it has not read only the ones older
        than the second time. Returns how many entries went."""
        oldest = f"{older_than_ms}-0"
        key = self._keys.archived(shard)
        archived: bytes | None = await self._pipeline.command("GET", key)
        if archived is not None:
            read = readable.read_or(key, archived, _read_id, "0-0")
            oldest = min(oldest, max(read, f"{unarchived_older_than_ms}-0", key=_id_order), key=_id_order)
        count: int = await self._pipeline.command("XTRIM", self._keys.events(shard), "MINID", oldest)
        return count

    async def cut(self, shard: int, keep: int) -> int:
        """Cuts a log to this many entries; returns how many were removed. Unarchived ones are counted in the store."""
        packet = self._encoder.packet(script("cut"), shard, [keep], keys=[self._keys.archived(shard)])
        count, _ = await self._pipeline.reply(packet)
        return int(count)


def _read_id(value: bytes) -> str:
    """Raises ValueError."""
    stream_id = value.decode()
    _id_order(stream_id)
    return stream_id


def _id_order(stream_id: str) -> tuple[int, int]:
    milliseconds, _, number = stream_id.partition("-")
    return int(milliseconds), int(number)
