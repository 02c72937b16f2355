"""Membership: registers sessions of this instance with the store, and renews the lease of the instance."""

import asyncio
import logging

from relay.core.presence.sessions import Sessions
from relay.core.session.session import Session
from relay.errors import Busy, RelayError, StoreUnavailable
from relay.protocol.frames import frame
from relay.store.agents.presence import Joined
from relay.store.store import Store
from relay.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

EPOCH_WITHIN_S = 1.0  # a new session does not wait longer to learn that nothing has changed


class Membership:
    """Sessions join and leave. A leave that did not reach the store is repeated."""

    def __init__(self, store: Store, sessions: Sessions, metrics: Metrics) -> None:
        self._metrics = metrics
        self.lease_ms = int(store.settings.heartbeat_s * 1_000)  # how long a dead instance is believed to be alive
        self._store = store
        self._sessions = sessions
        self._departures: list[tuple[str, str, str, int | None]] = []  # that the store has not heard of
        self._leaving: set[str] = set()  # holders whose leave is under way, or will be repeated

    async def renew_lease(self) -> None:
        await self._store.presence.renew(self.lease_ms)

    async def join(self, session: Session) -> None:
        """Puts the session in charge of its mailbox. Raises StoreUnavailable and Busy."""
        session.begin(await self._join(session))

    async def _join(self, session: Session) -> Joined:
        return await self._store.presence.join(
            *(session.address, session.name, session.mode),
            *(self.lease_ms, session.next_active_at_ms, session.asked_ms, session.pump.window),
        )

    async def rejoin(self, session: Session) -> None:
        """The store does not know this session any more: it was wiped, or thought this instance dead."""
        try:
            joined = await self._join(session)
        except Busy:
            session.close("replaced")
            return
        log.info("session_rejoined", extra={"agent": session.address, "session": session.name})
        session.pump.open(joined.pending, joined.backlog_end)

    async def change_role(self, session: Session) -> None:
        """A renewed session serves its mailbox from now on, or gives back what it holds. Raises StoreUnavailable."""
        if session.receives:
            await self.join(session)
        else:
            await self._store.presence.leave(session.address, session.name, "renewed", session.next_active_at_ms)
            await self._join(session)

    async def leave(self, address: str, name: str, reason: str, next_active_at_ms: int | None = None) -> bool:
        """Ends the registration of a holder. If the store is away, it is told when it is back.

        False if it was not registered, as far as that is known."""
        self._leaving.add(name)
        try:
            was_here = await self._store.presence.leave(address, name, reason, next_active_at_ms)
        except RelayError as error:
            log.warning("leave_failed", extra={"session": name, "error": error.message})
            self._departures.append((address, name, reason, next_active_at_ms))
            return False
        self._leaving.discard(name)
        return was_here

    def is_leaving(self, name: str) -> bool:
        return name in self._leaving

    async def leave_again(self) -> None:
        """Repeats the leaves that did not reach the store."""
        departures, self._departures = self._departures, []
        await asyncio.gather(*(self.leave(*departure) for departure in departures))

    async def check_epoch(self) -> None:
        """Reads the epoch again, so that a new session is told the current one. Raises StoreUnavailable.

        On a Cluster the master that knows it may be away, which must not keep sessions from the others.
        """
        before = self._store.meta.epoch
        try:
            async with asyncio.timeout(EPOCH_WITHIN_S if before else None):
                is_new = await self._store.meta.check()
        except (TimeoutError, StoreUnavailable):
            if not before or self._store.reached_share() == 0:
                raise StoreUnavailable("the store does not answer") from None
            return
        if is_new and before:
            await self.data_lost()

    async def data_lost(self) -> None:
        """Some of the data are gone, or all: sessions that know the old epoch are told the new one."""
        epoch, regressed = self._store.meta.epoch, self._store.meta.newly_regressed
        self._metrics.store_regresses += len(regressed)
        for shard, regress in regressed.items():
            log.error("store_regressed", extra={"shard": shard, "epoch": epoch, **regress.as_fields()})
        if not regressed:
            log.warning("store_was_wiped", extra={"epoch": epoch})
        for session in self._sessions:
            if session.epoch not in ("", epoch):
                session.epoch = epoch
                session.send(frame("epoch", epoch=epoch))
            if self._store.keys.shard(session.address) in regressed:
                session.pump.doubt()
        await self.renew_lease()
