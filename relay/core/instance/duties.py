"""Duties: notices that no worker runs, so that nothing which is due at a time happens."""

import logging

from relay.store.store import Store
from relay.store.watching.anomalies import Anomaly
from relay.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0


class Duties:
    """Whoever should raise this anomaly is a worker itself, so every instance looks."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self.absent_s = 0.0  # 0 while workers go round
        self._store = store
        self._metrics = metrics

    async def look(self) -> None:
        """Raises StoreUnavailable."""
        was_absent = self.absent_s > 0
        self.absent_s = await self._store.workers.absent_s(self._reached_s())
        is_absent = self._metrics.workers_absent = self.absent_s > 0
        if is_absent != was_absent:
            log.warning("workers_absent" if is_absent else "workers_are_back", extra={"absent_s": round(self.absent_s)})
        if is_absent:
            await self._store.anomalies.raise_all("*", [workers_absent(self.absent_s)], self._store.clock.now_ms())

    def _reached_s(self) -> float:
        """For how long the whole store has been within reach: before that no worker could go round."""
        return min(map(self._store.connected_s, range(self._store.keys.shards)))


def workers_absent(absent_s: float) -> Anomaly:
    return Anomaly(
        kind="workers_absent",
        severity="critical",
        subject="workers",
        text=f"no worker has gone round for {absent_s:.0f} s: delayed and nacked messages stand still",
        evidence={"absent_s": round(absent_s)},
    )
