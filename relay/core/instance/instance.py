"""One instance of the relay: its parts, and the clockwork that runs them."""

import asyncio
import logging
import time

from relay.auth import Identity
from relay.core.instance.background import Background, attempt, repeat
from relay.core.instance.drain import Drain
from relay.core.instance.duties import LOOK_EVERY_S, Duties
from relay.core.instance.event_feed import Feeds
from relay.core.instance.heartbeat import Heartbeat
from relay.core.instance.notifier import Notifier
from relay.core.instance.pauses import PauseSwitch
from relay.core.instance.readiness import Readiness
from relay.core.instance.sockets import Socket, Sockets
from relay.core.instance.stalls import Stalls
from relay.core.instance.topics import Topics
from relay.core.output_budget import Output, OutputBudget
from relay.core.presence.ghosts import Ghosts
from relay.core.presence.membership import Membership
from relay.core.presence.recheck import Recheck
from relay.core.presence.registrations import Registrations
from relay.core.presence.session_admission import SessionAdmission
from relay.core.presence.sessions import Sessions
from relay.core.presence.wakes import WakeDispatcher
from relay.core.session.key_check import KeyCheck
from relay.core.session.session import Session
from relay.protocol.frames import Auth
from relay.settings import Settings
from relay.store.store import Store
from relay.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

LEASES_PER_HEARTBEAT = 3
DEPTH_EVERY_S = 5.0
MEMORY_EVERY_S = 1.0


class Instance:
    """Wakes reach sessions at once. A check every `recheck_s` finds what a lost wake missed."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        settings: Settings = store.settings
        self.store = store
        self.metrics = metrics
        self.settings = settings
        self.output = OutputBudget(settings.max_buffer_bytes)
        self.topics = Topics()
        self.registrations = Registrations(settings.registrations_per_s)
        self.notifier = Notifier()
        self.sessions = Sessions(store.instance, settings.max_connections_per_agent)
        self.sockets = Sockets(settings.max_connections, metrics)
        self.admissions = SessionAdmission(settings.sessions_per_s, time.monotonic)
        self.membership = Membership(store, self.sessions, metrics)
        self.drain = Drain(self.sessions, self.sockets, self.notifier, settings.drain_s)
        self._stalls = Stalls(store.clock.now_ms)
        self.heartbeat = Heartbeat(store, self.sessions, self.sockets, self._stalls, self.output, metrics)
        self.duties = Duties(store, metrics)
        self._background = Background()
        self.spawn = self._background.spawn
        self.feeds = Feeds(store.history, store.clock.now_ms, self.spawn)
        keys = KeyCheck(store.agents)
        self._recheck = Recheck(store, self.sessions, self.membership, keys)
        self.pauses = PauseSwitch(store.pauses, self.sessions, self.notifier)
        self._ghosts = Ghosts(store, self.sessions, self.membership, self.notifier)
        self._wakes = WakeDispatcher(
            store, self.sessions, self._ghosts, self.notifier, keys, self.pauses, self._background
        )
        self._subscriber = store.subscriber(self._wakes.dispatch, self.topics.published, self._resubscribed)
        self._readiness = Readiness(store, lambda: self._subscriber.heard_share)
        self.topics.attach(self._subscriber.follow, self._subscriber.unfollow)
        store.witness.on_regress.append(lambda: self.spawn(attempt(self._come_back)))
        store.pipeline.batch_sizes = metrics.batch_calls.observe
        store.pipeline.exchange_s = metrics.exchange_s.observe

    @property
    def draining(self) -> bool:
        return self.drain.has_begun

    def not_ready(self) -> str | None:
        """Why this instance should get no traffic, or None."""
        return "draining" if self.draining else self._readiness.reason()

    # -- sessions

    def begin(self, identity: Identity, auth: Auth, output: Output, socket: Socket) -> Session:
        """A session for an authenticated client. Its frames may be handled from now on."""
        name, store, spawn = self.sessions.new_name(), self.store, self.spawn
        session = Session(name, identity, auth, store, output, socket, self.topics, self.metrics, spawn)
        session.pass_on = self._pass_on
        session.asked_ms = self._stalls.sent_ms()
        session.pump.is_paused = self.pauses.stops(session.address)
        self.sessions.add(session)
        self.metrics.sessions = len(self.sessions)
        return session

    async def end(self, session: Session, reason: str) -> None:
        """A session is over. What it held goes back."""
        if not self.sessions.remove(session):
            return
        self.metrics.sessions = len(self.sessions)
        if session.joined:
            self._note_end(session, reason)
        await session.end()
        if session.pump.has_mail or session.pump.is_taking:
            self.sessions.wake(session.address)
        await self.membership.leave(session.address, session.name, reason, session.next_active_at_ms)

    def _note_end(self, session: Session, reason: str) -> None:
        lasted_s = (self.store.clock.now_ms() - session.asked_ms) / 1_000
        fields = {"agent": session.address, "session": session.name, "reason": reason}
        log.info("session_ended", extra={**fields, "duration_s": lasted_s, "held": len(session.pump.held)})

    def _pass_on(self, session: Session) -> None:
        self.sessions.wake(session.address, session.name)

    # -- clockwork

    async def run(self) -> None:
        """Runs all background parts of an instance. If one fails, the instance stops."""
        lease_s = self.settings.heartbeat_s / LEASES_PER_HEARTBEAT
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._subscriber.run(), name="wakes")
            parts.create_task(repeat(self.settings.recheck_s, self._look), name="recheck")
            parts.create_task(repeat(lease_s, self.membership.renew_lease), name="lease")
            parts.create_task(repeat(DEPTH_EVERY_S, self.heartbeat.measure_depth), name="depth")
            parts.create_task(repeat(MEMORY_EVERY_S, self.heartbeat.look_at_memory), name="memory")
            parts.create_task(repeat(LOOK_EVERY_S, self.duties.look), name="duties")
            parts.create_task(self.heartbeat.run(), name="heartbeat")

    def _resubscribed(self) -> None:
        self.spawn(attempt(self._come_back))

    async def _come_back(self) -> None:
        """The store is within reach again: first say that we are alive, or our sessions are given up for dead."""
        await self.membership.renew_lease()
        await self._look()
        await self._ghosts.look_at_all()

    async def _look(self) -> None:
        """Looks at the store, then for what was missed."""
        if await self._readiness.inspect():
            await self.membership.data_lost()
        await self.membership.leave_again()
        await self.pauses.look()
        await self._recheck.look()
        await self._ghosts.look()
