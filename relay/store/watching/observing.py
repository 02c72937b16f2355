"""Observing: one reader follows the event logs of all shards, a bounded part at a time."""

import asyncio
import math
import time
from dataclasses import dataclass

import msgspec

from relay.settings import Settings
from relay.store import readable
from relay.store.keys import Keys
from relay.store.redis.encoder import keyed_packet
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

FIRST_COUNT = 5  # entries of the first page of a log; one may hold some hundred kilobytes
PAGE_BYTES = 65_536  # about how much of a log is read in one call
REMEMBERED_S = 5.0  # how long it is believed how far back the logs go
KEEP_PLACES_ROUNDS = 6  # a reader that was away for longer begins anew

Logged = tuple[int, list[bytes]]  # when it was logged, by the store's clock, and the fields of one entry


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a log goes."""

    first: str  # the oldest entry that is kept; empty if none is
    last: str
    added: int  # entries since the log began
    length: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing was ever dropped from it."""
        return self.added == self.length

    @property
    def whole_since_ms(self) -> int:
        """From when on it has everything; a log that lost all of its entries has what comes after the last of them."""
        return _ms(self.first) if self.first else _ms(self.last) + 1


def _ms(entry: str) -> int:
    return int(entry.partition("-")[0])


class ReadMark(msgspec.Struct, frozen=True):
    """How far a log has been read, and how many entries had been added by then, if known."""

    entry: str
    added: int | None


class Places(msgspec.Struct, frozen=True):
    """Where the reader of all logs was at a time."""

    at_ms: int
    by_shard: dict[int, ReadMark]


@dataclass(frozen=True, slots=True)
class Part:
    """What was read of a log, and how many entries there were; some are skipped if there are too many."""

    logged: list[Logged]
    entries: int

    @property
    def weight(self) -> float:
        """For how many events each that was read stands."""
        return max(1.0, self.entries / len(self.logged)) if self.logged else 1.0


def _read_places(text: bytes) -> Places | None:
    return msgspec.json.decode(text, type=Places)


class Observing:
    def __init__(self, pipeline: CommandPipeline, keys: Keys, settings: Settings) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._whole_since_ms: int | None = None
        self._looked_at = -math.inf
        self._keep_ms = int(KEEP_PLACES_ROUNDS * settings.snapshot_every_s * 1_000)

    async def reach(self, shard: int) -> Reach:
        reply = await self._pipeline.reply(keyed_packet(script("reach"), self._keys.events(shard)))
        first, last, added, length = reply
        return Reach(first.decode(), last.decode(), added, length)

    async def reaches(self) -> list[Reach]:
        """Of every shard."""
        return await asyncio.gather(*(self.reach(shard) for shard in range(self._keys.shards)))

    async def whole_since_ms(self) -> int | None:
        """From when on every log has all of its events; None if nothing was ever dropped. Up to a few seconds old."""
        if time.monotonic() - self._looked_at > REMEMBERED_S:
            since = [reach.whole_since_ms for reach in await self.reaches() if not reach.is_whole]
            self._whole_since_ms = max(since, default=None)
            self._looked_at = time.monotonic()
        return self._whole_since_ms

    async def receipts_waiting(self, addresses: list[str]) -> list[int]:
        """How many entries the streams of receipts of these senders have; one holds a few receipts."""
        keys = (self._keys.receipts(address) for address in addresses)
        return await asyncio.gather(*(self._pipeline.command("XLEN", key) for key in keys))

    async def places(self) -> Places | None:
        """Where the reader was in the round before; None if there was none lately."""
        text = await self._pipeline.command("GET", self._keys.observed)
        return readable.read_or(self._keys.observed, text, _read_places, None)

    async def keep_places(self, places: Places) -> None:
        text = msgspec.json.encode(places)
        await self._pipeline.reply(keyed_packet(script("keep"), self._keys.observed, self._keep_ms, text))

    async def read(self, shard: int, place: ReadMark, reach: Reach, most_bytes: int) -> Part:
        """Entries after that place, up to the last entry of `reach` and about this many bytes."""
        logged: list[Logged] = []
        after, read, count = place.entry, 0, FIRST_COUNT
        while read < most_bytes and after != reach.last:
            rows = await self._pipeline.command(
                "XRANGE", self._keys.events(shard), f"({after}", reach.last, "COUNT", count
            )
            if not rows:
                break
            logged += [(int(entry.partition(b"-")[0]), fields) for entry, fields in rows]
            after = rows[-1][0].decode()
            read += sum(len(value) for _, fields in rows for value in fields)
            count = max(1, int(len(logged) * min(PAGE_BYTES, most_bytes - read) / read))
        return Part(logged, len(logged) if place.added is None else max(len(logged), reach.added - place.added))
