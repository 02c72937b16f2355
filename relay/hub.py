"""The hub: every session of this instance, who wakes them, and the clockwork that keeps them honest."""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from relay.auth import Identity
from relay.errors import RelayError
from relay.metrics import Metrics
from relay.protocol import Auth
from relay.session import Outlet, Session
from relay.settings import Settings
from relay.store.presence import Joined
from relay.store.store import Store
from relay.store.wakeups import Wakeups
from relay.topics import Topics

log = logging.getLogger(__name__)

TICK_S = 0.25
LEASES_PER_HEARTBEAT = 3
DEPTH_EVERY_S = 5.0
COMEBACK_MS = 5_000  # a draining instance's clients come back spread over this
FINISH_S = 5.0  # how long one that drains waits for its sessions to settle what they hold


Step = Callable[[], Coroutine[Any, Any, None]]


class Socket(Protocol):
    """The connection of a session, as the hub needs it."""

    def tick(self, now: float) -> None: ...
    def close(self, word: str, code: int, retry_after_ms: int | None = None) -> None: ...
    def buffered_bytes(self) -> int: ...


class Waiters:
    """Calls that wait for something to happen: mail for an agent, an answer to a task. Waiting costs no connection."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, ...], set[asyncio.Event]] = {}

    @contextmanager
    def waiting_for(self, *whats: tuple[str, ...]) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of these may have happened; who waits looks for itself and clears it."""
        event = asyncio.Event()
        for what in whats:
            self._events.setdefault(what, set()).add(event)
        try:
            yield event
        finally:
            for what in whats:
                self._events[what].discard(event)
                if not self._events[what]:
                    del self._events[what]

    def wake(self, what: tuple[str, ...]) -> None:
        for event in self._events.get(what, ()):
            event.set()

    def wake_all(self) -> None:
        for what in list(self._events):
            self.wake(what)


class Hub:
    """One per instance. Wakes ring sessions; a look every `recheck_s` finds what a lost wake left."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self.store = store
        self.metrics = metrics
        self.settings: Settings = store.settings
        self.topics = Topics()
        self.waiters = Waiters()
        self.lease_ms = int(self.settings.heartbeat_s * 1_000)  # how long a dead instance is believed to be alive
        self.draining = False
        self.problem: str | None = "the store has not been looked at yet"  # why this instance is not ready
        self.buffered_bytes = 0  # waiting in the sockets of slow readers
        self._sessions: dict[str, Session] = {}
        self._sockets: dict[str, Socket] = {}
        self._by_address: dict[str, set[Session]] = {}
        self._to_leave: list[tuple[str, str, str, int | None]] = []  # departures that the store has not heard of
        self._open: set[Socket] = set()  # every socket, also before it has authenticated
        self._all_closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._wakeups = Wakeups(
            store.pool, store.keys, store.instance, self._heard, self.topics.published, self._resubscribed
        )
        self.topics.attach(self._wakeups)
        store.line.batch_sizes = metrics.batch_calls.observe
        store.line.exchange_s = metrics.exchange_s.observe

    # -- sessions

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something to its end, whatever becomes of the one who asked for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task_failed", exc_info=error)

    def opened(self, socket: Socket) -> bool:
        """A socket is there. False when it is one too many."""
        self._open.add(socket)
        self.metrics.connections = len(self._open)
        return len(self._open) <= self.settings.max_connections

    def closed(self, socket: Socket) -> None:
        self._open.discard(socket)
        self.metrics.connections = len(self._open)
        if not self._open:
            self._all_closed.set()

    def new_name(self) -> str:
        """A name for whoever begins to serve a mailbox; it tells which instance it is on."""
        return f"{self.store.instance}.{next(self._numbers)}"

    def begin(self, identity: Identity, auth: Auth, outlet: Outlet, socket: Socket) -> Session:
        """A session for who has authenticated; its frames may be handled from now on."""
        name = self.new_name()
        session = Session(name, identity, auth, self.store, outlet, self.topics, self.metrics, self.spawn)
        self._sessions[name] = session
        self._sockets[name] = socket
        self._by_address.setdefault(session.address, set()).add(session)
        self.metrics.sessions = len(self._sessions)
        return session

    async def join(self, session: Session) -> None:
        """Puts the session in charge of its mailbox. Raises StoreUnavailable."""
        joined = await self._join(session)
        if session.receives:
            session.begin(joined)
        else:
            session.begin_without_mailbox()

    async def _join(self, session: Session) -> Joined:
        return await self.store.presence.join(
            session.address, session.name, session.mode, self.lease_ms, session.next_active_at_ms
        )

    async def end(self, session: Session, reason: str) -> None:
        """A session is over. What it held goes back."""
        if self._sessions.pop(session.name, None) is None:
            return
        del self._sockets[session.name]
        others = self._by_address[session.address]
        others.discard(session)
        if not others:
            del self._by_address[session.address]
        self.metrics.sessions = len(self._sessions)
        session.closing = True
        session.end()
        await self.leave(session.address, session.name, reason, session.next_active_at_ms)

    async def leave(self, address: str, name: str, reason: str, next_active_at_ms: int | None = None) -> None:
        """Whoever served a mailbox does so no more. If the store is away, it is told when it is back."""
        try:
            await self.store.presence.leave(address, name, reason, next_active_at_ms)
        except RelayError as error:
            log.warning("leave_failed", extra={"session": name, "error": error.message})
            self._to_leave.append((address, name, reason, next_active_at_ms))

    # -- wakes

    def _heard(self, lines: list[list[str]]) -> None:
        for word, *rest in lines:
            if word == "mail":
                for session in self._by_address.get(rest[0], ()):
                    if session.name not in rest[1:]:
                        session.ring()
                self.waiters.wake(("mail", rest[0]))
            elif word == "receipts":
                for session in self._by_address.get(rest[0], ()):
                    session.read_receipts()
            elif word in ("lost", "overdue") and rest[0] in self._sessions:
                self._sessions[rest[0]].lose(rest[1], others_first=word == "overdue")
            elif word == "replaced":
                self._replaced(rest[0])
                self.waiters.wake(("replaced", rest[0]))
            elif word == "task":
                self.waiters.wake(("task", rest[0], rest[1]))

    def _replaced(self, name: str) -> None:
        if name in self._sockets:
            self._sessions[name].closing = True
            self._sockets[name].close("replaced", 4509)

    def _resubscribed(self) -> None:
        self.spawn(self._attempt(self._come_back))

    async def _look(self) -> None:
        """Looks for mail, receipts and successors that no wake told of. Raises StoreUnavailable."""
        by_shard: dict[int, dict[str, list[Session]]] = {}
        for address, sessions in self._by_address.items():
            here = [session for session in sessions if session.joined]  # a later one is not in what the store says now
            if here:
                by_shard.setdefault(self.store.keys.shard(address), {})[address] = here
        await asyncio.gather(*(self._look_in(shard, there) for shard, there in by_shard.items()))

    async def _look_in(self, shard: int, there: dict[str, list[Session]]) -> None:
        addresses = list(there)
        registered, waiting, receipts = await asyncio.gather(
            self.store.presence.registered(shard, addresses),
            self.store.mailboxes.waiting(shard, addresses),
            self.store.receipts.waiting(addresses),
        )
        for address, modes, has_mail, has_receipts in zip(addresses, registered, waiting, receipts, strict=True):
            for session in there[address]:
                if session.closing or session.name not in self._sessions:
                    continue
                if session.name in modes:
                    if has_mail:
                        session.look()
                    if has_receipts:
                        session.read_receipts()
                elif session.mode == "exclusive" and "exclusive" in modes.values():
                    self._replaced(session.name)
                else:
                    await self._rejoin(session)

    async def _rejoin(self, session: Session) -> None:
        """The store does not know this session any more: it was wiped, or thought this instance dead."""
        joined = await self._join(session)
        log.info("session_rejoined", extra={"agent": session.address, "session": session.name})
        session.rejoined(joined)

    # -- clockwork

    async def run(self) -> None:
        """Everything that an instance does by itself. A part that fails takes the instance down."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._wakeups.run(), name="wakeups")
            parts.create_task(self._every(self.settings.recheck_s, self._recheck), name="recheck")
            parts.create_task(self._every(self.settings.heartbeat_s / LEASES_PER_HEARTBEAT, self._renew), name="lease")
            parts.create_task(self._every(DEPTH_EVERY_S, self._measure), name="depth")
            parts.create_task(self._tick_for_ever(), name="tick")

    async def _every(self, seconds: float, step: Step) -> None:
        while True:
            await self._attempt(step)
            await asyncio.sleep(seconds)

    @staticmethod
    async def _attempt(step: Step) -> None:
        """A step that fails because of the store is tried again in its next turn."""
        try:
            await step()
        except RelayError as error:
            log.warning("step_failed", extra={"step": step.__name__, "error": error.message})

    async def _come_back(self) -> None:
        """The store is within reach again: first say that we are alive, or our sessions are given up for dead."""
        await self._renew()
        await self._recheck()

    async def _recheck(self) -> None:
        """Looks at the store, then for what was missed."""
        try:
            before = self.store.meta.epoch
            if await self.store.inspect() and before:
                log.warning("store_was_wiped", extra={"epoch": self.store.meta.epoch})
                await self._renew()
            self.problem = self.store.safety.reason if self.store.safety else None
        except RelayError as error:
            self.problem = error.message
            raise
        departures, self._to_leave = self._to_leave, []
        await asyncio.gather(*(self.leave(*departure) for departure in departures))
        await self._look()

    async def _renew(self) -> None:
        await self.store.presence.renew(self.lease_ms)

    async def _measure(self) -> None:
        now_ms = self.store.clock.now_ms()
        depths = await asyncio.gather(*(self.store.duties.depth(shard) for shard in range(self.store.keys.shards)))
        self.metrics.expired = sum(depth.expired for depth in depths)
        self.metrics.dead = sum(depth.dead for depth in depths)
        for shard, depth in enumerate(depths):
            age_s = 0 if depth.oldest_ms is None else max(0, now_ms - depth.oldest_ms) // 1_000
            self.metrics.depth[shard] = (depth.messages, age_s)

    async def _tick_for_ever(self) -> None:
        while True:
            now = time.monotonic()
            self.buffered_bytes = sum(socket.buffered_bytes() for socket in self._open)
            self.metrics.buffered_bytes = self.buffered_bytes
            self.metrics.wakes["sent"] = self.store.mailboxes.wakes_sent
            self.metrics.wakes["unheard"] = self.store.mailboxes.wakes_unheard
            for socket in list(self._open):
                socket.tick(now)
            await asyncio.sleep(TICK_S)

    def not_ready(self) -> str | None:
        """Why this instance should get no traffic, or None."""
        if self.draining:
            return "draining"
        if not self.store.line.healthy:
            return "the store does not answer"
        if not self._wakeups.healthy:
            return "the subscription for wakes is down"
        return self.problem

    # -- the end

    async def drain(self) -> None:
        """Stops without losing anything: clients are told when to come back, settle what they can, and are let go."""
        self.draining = True
        self.waiters.wake_all()
        for name, session in list(self._sessions.items()):
            session.closing = True
            self._sockets[name].close("draining", 4001, random.randrange(COMEBACK_MS))
        for socket in self._open - set(self._sockets.values()):
            socket.close("draining", 4001, random.randrange(COMEBACK_MS))
        if self._open:
            self._all_closed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.drain_s):
                    await self._all_closed.wait()
        log.info("drained", extra={"sessions_left": len(self._sessions)})

    def may_close(self, session: Session, asked_s: float) -> bool:
        """Whether a session that was told to close so long ago has finished, or has had its time."""
        patience_s = min(FINISH_S, self.settings.drain_s) if self.draining else 0.0
        return session.is_idle() or asked_s >= patience_s

    def is_over_budget(self) -> bool:
        """Whether slow readers keep more bytes waiting than this instance has for them."""
        return self.buffered_bytes > self.settings.max_buffer_bytes
