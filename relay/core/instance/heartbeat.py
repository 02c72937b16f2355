"""Heartbeat: what runs several times a second, and what is measured every few seconds."""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from relay.core.instance.sockets import Sockets
from relay.core.instance.stalls import Stalls
from relay.core.output_budget import OutputBudget
from relay.core.presence.sessions import Sessions
from relay.core.session.session import Session
from relay.store.store import Store
from relay.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

TICK_S = 0.25
SILENT_AFTER_S = 5.0  # a store that is well answers sooner than this, at least a ping
CUT_OFF_AFTER_S = 10.0  # and after this much more the sessions of this instance go elsewhere
COMEBACK_MS = 5_000  # clients that are sent away together come back spread over this


class Heartbeat:
    """Ticks the sockets, and closes the sessions when the store has been out of reach for too long."""

    def __init__(
        self, store: Store, sessions: Sessions, sockets: Sockets, stalls: Stalls, output: OutputBudget, metrics: Metrics
    ) -> None:
        self.on_tick: list[Callable[[float], None]] = []
        self._store = store
        self._sessions = sessions
        self._sockets = sockets
        self._stalls = stalls
        self._output = output
        self._metrics = metrics
        self._silent_ticks: dict[int, int] = {}  # shard -> for how long its master has not answered

    async def run(self) -> None:
        while True:
            self.tick(time.monotonic())
            await asyncio.sleep(TICK_S)

    def tick(self, now: float) -> None:
        self._output.refresh()
        self._metrics.buffered_bytes = self._output.used
        self._metrics.answers = self._store.replies.stored
        self._metrics.wakes["sent"] = self._store.accepting.wakes_sent
        self._metrics.wakes["unheard"] = self._store.accepting.wakes_unheard
        for socket in self._sockets if self._output.is_scarce() else self._sockets.in_turn():
            socket.tick(now)
        self._stalls.turn()
        for tick in self.on_tick:
            tick(now)
        self._watch_store()

    def _watch_store(self) -> None:
        """Another instance may reach the master that this one does not.

        Ticks are counted, so that a frozen instance that wakes up has the time to ask.
        """
        silent = [shard for shard in range(self._store.keys.shards) if self._store.silent_s(shard) > SILENT_AFTER_S]
        self._silent_ticks = {shard: self._silent_ticks.get(shard, 0) + 1 for shard in silent}
        cut_off = {shard for shard, ticks in self._silent_ticks.items() if ticks * TICK_S > CUT_OFF_AFTER_S}
        if cut_off:
            self._send_away(
                [session for session in self._sessions if self._store.keys.shard(session.address) in cut_off]
            )
            self._silent_ticks = {}

    def _send_away(self, sessions: list[Session]) -> None:
        if sessions:
            log.warning("cut_off", extra={"sessions": len(sessions)})
        for session in sessions:
            session.close("store_unavailable", random.randrange(1_000, 1_000 + COMEBACK_MS))

    # -- measures

    async def look_at_memory(self) -> None:
        memory, metrics = self._store.memory, self._metrics
        was_short = memory.is_short
        await memory.look()
        metrics.store_used_bytes, metrics.store_max_bytes = memory.used_bytes, memory.max_bytes
        metrics.store_is_short = memory.is_short
        if memory.is_short != was_short:
            log.warning(
                "store_nearly_full" if memory.is_short else "store_has_room", extra={"share": f"{memory.share:.2f}"}
            )

    async def measure_depth(self) -> None:
        now_ms, metrics = self._store.clock.now_ms(), self._metrics
        depths = await asyncio.gather(*(self._store.depths.of(shard) for shard in range(self._store.keys.shards)))
        metrics.events_cut = sum(depth.events_cut for depth in depths)
        for shard, depth in enumerate(depths):
            age_s = 0 if depth.oldest_ms is None else max(0, now_ms - depth.oldest_ms) // 1_000
            metrics.depth[shard] = (depth.messages, age_s)
