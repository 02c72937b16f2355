"""Snapshots: the state and activity of every tenant, written every few seconds, and their history."""

from typing import Any

import msgspec
from msgspec import Struct

from relay.settings import Settings
from relay.store import readable
from relay.store.keys import Keys
from relay.store.redis.encoder import keyed_packet
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

ALL_TENANTS = "*"  # under this name the whole store has its history
RANKED = ("depth", "oldest", "dead", "rate")  # by what agents are ranked


class Percentiles(Struct, frozen=True):
    """In milliseconds."""

    p50: int
    p95: int
    p99: int


class BusyAgent(Struct, frozen=True):
    """An agent among the busiest of its tenant."""

    agent: str
    depth: int
    oldest_age_s: float | None
    dead: int
    accepted_per_s: float
    acked_per_s: float
    sent_per_s: float


class ShardLoad(Struct, frozen=True):
    shard: int
    messages: int
    oldest_age_s: float | None
    accepted_per_s: float
    acked_per_s: float


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state of a tenant at one time, and its activity in the seconds before."""

    at_ms: int
    seconds: float
    counts: dict[str, int]  # events by kind
    accepted_per_s: float
    acked_per_s: float
    messages: int
    bytes: int
    dead: int
    online: int
    oldest_age_s: float | None
    taken_ms: Percentiles | None  # from accepted to taken
    acked_ms: Percentiles | None  # from accepted to acked
    estimated: bool = False  # there was more than one round reads


class Ranking(Struct, frozen=True, kw_only=True):
    """The first agents of a tenant by what they are ranked by, as of the latest snapshot."""

    at_ms: int
    by: dict[str, list[str]] = {}
    agents: dict[str, BusyAgent] = {}
    shards: list[ShardLoad] = []


class Snapshots:
    def __init__(self, pipeline: CommandPipeline, keys: Keys, settings: Settings) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._keep_ms = settings.history_keep_s * 1_000
        self._most = max(1, int(settings.history_keep_s / settings.snapshot_every_s))
        self._ranking_ms = int(max(60.0, 6 * settings.snapshot_every_s) * 1_000)

    async def write(self, tenant: str, snapshot: Snapshot, ranking: Ranking) -> None:
        """Adds to the history of a tenant, and replaces its ranking."""
        values: list[Any] = [self._most, self._keep_ms, msgspec.json.encode(snapshot)]
        await self._pipeline.reply(keyed_packet(script("record"), self._keys.history(tenant), *values))
        text = msgspec.json.encode(ranking)
        await self._pipeline.reply(keyed_packet(script("keep"), self._keys.ranking(tenant), self._ranking_ms, text))

    async def history(self, tenant: str, since_ms: int) -> list[Snapshot]:
        """The snapshots from that time on, oldest first."""
        key = self._keys.history(tenant)
        rows = await self._pipeline.command("XRANGE", key, str(max(0, since_ms)), "+", "COUNT", self._most)
        return readable.readable(key, (fields[1] for _, fields in rows), _read_snapshot)

    async def ranking(self, tenant: str) -> Ranking:
        """An empty one if there is none, or it is old."""
        key = self._keys.ranking(tenant)
        return readable.read_or(key, await self._pipeline.command("GET", key), _read_ranking, Ranking(at_ms=0))


def _read_snapshot(text: bytes) -> Snapshot:
    return msgspec.json.decode(text, type=Snapshot)


def _read_ranking(text: bytes) -> Ranking:
    return msgspec.json.decode(text, type=Ranking)
