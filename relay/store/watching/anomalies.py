"""Anomalies: what the observer found, each once, with its count and its first and last time."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from relay.settings import Settings
from relay.store import readable
from relay.store.keys import Keys
from relay.store.redis.encoder import keyed_packet
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

MOST_KEPT = 500  # anomalies of a tenant; for the next one the oldest goes
ACTIVE_ROUNDS = 3  # an anomaly that was not seen for so many rounds, and a minute, is over
ACTIVE_MS = 60_000

KINDS = (
    *("stuck_consumer", "redelivery_loop", "near_dead", "dead_lettered", "lock_stolen", "zombie", "long_processing"),
    *("burst_take", "bulk_send", "large_payload", "flash", "mailbox_nearly_full", "mailbox_full", "stale", "cleared"),
    *("expired_unread", "receipts_piling_up", "queue_growing", "clock_skew", "wake_path_broken", "store_regressed"),
    "workers_absent",
)
SEVERITIES = ("info", "warning", "critical")
Severity = Literal["info", "warning", "critical"]


class Anomaly(Struct, kw_only=True):
    """Something that looks wrong. The same id is the same anomaly, seen again."""

    kind: str
    severity: Severity
    subject: str  # an agent, session, entry, instance or tenant
    text: str
    evidence: dict[str, Any]
    agent: str = ""
    session: str = ""
    message: str = ""
    entry: str = ""
    instance: str = ""
    first_ms: int = 0
    last_ms: int = 0
    count: int = 1

    @property
    def id(self) -> str:
        return f"{self.kind} {self.subject}"


def _latest_and_worst(anomaly: Anomaly) -> tuple[int, int, str]:
    return -anomaly.last_ms, -SEVERITIES.index(anomaly.severity), anomaly.id


class Anomalies:
    def __init__(self, pipeline: CommandPipeline, keys: Keys, settings: Settings) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._keep_ms = settings.anomalies_keep_s * 1_000
        self._active_ms = max(ACTIVE_MS, int(ACTIVE_ROUNDS * settings.snapshot_every_s * 1_000))

    def is_active(self, anomaly: Anomaly, now_ms: int) -> bool:
        """Whether it was seen lately."""
        return now_ms - anomaly.last_ms <= self._active_ms

    async def of(self, tenant: str) -> list[Anomaly]:
        """The anomalies of a tenant, latest first, then by severity."""
        key = self._keys.anomalies(tenant)
        found = readable.readable(key, await self._pipeline.command("HVALS", key), _read)
        return sorted(found, key=_latest_and_worst)

    async def raise_all(self, tenant: str, found: list[Anomaly], now_ms: int) -> list[Anomaly]:
        """Keeps what was found now beside what is known, and forgets what is old. Returns those that are new, or are
        back after they were over."""
        known = {anomaly.id: anomaly for anomaly in await self.of(tenant)}
        new: list[Anomaly] = []
        for anomaly in found:
            before = known.get(anomaly.id)
            if before is None or not self.is_active(before, now_ms):
                new.append(anomaly)
            anomaly.first_ms = before.first_ms if before else now_ms
            anomaly.count = before.count + 1 if before else 1
            anomaly.last_ms = now_ms
            known[anomaly.id] = anomaly
        latest = sorted(known.values(), key=lambda anomaly: anomaly.last_ms, reverse=True)
        old = [anomaly.id for anomaly in latest[MOST_KEPT:]]
        old += [anomaly.id for anomaly in latest[:MOST_KEPT] if now_ms - anomaly.last_ms > self._keep_ms]
        await self._keep(tenant, {anomaly.id: anomaly for anomaly in found}, old, new)
        return new

    async def _keep(self, tenant: str, found: dict[str, Anomaly], old: list[str], new: list[Anomaly]) -> None:
        pairs = [value for name, anomaly in found.items() for value in (name, msgspec.json.encode(anomaly).decode())]
        call = [self._keep_ms, pairs, old]
        key = self._keys.anomalies(tenant)
        await self._pipeline.reply(keyed_packet(script("raise"), key, msgspec.msgpack.encode(call)))
        for anomaly in new:
            packet = keyed_packet(script("count"), self._keys.anomaly_totals, anomaly.kind)
            await self._pipeline.reply(packet)

    async def totals(self) -> dict[str, int]:
        """Kind -> how many anomalies were raised since the store was made, also those that never were."""
        counts = await self._pipeline.command("HMGET", self._keys.anomaly_totals, *KINDS)
        return {kind: readable.whole(count) for kind, count in zip(KINDS, counts, strict=True)}


def _read(text: bytes) -> Anomaly:
    return msgspec.json.decode(text, type=Anomaly)
