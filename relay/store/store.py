"""The store as a whole: opened once per process, its parts share one connection for calls."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import ConnectionPool

from relay.settings import Settings
from relay.store.agents import Agents
from relay.store.batches import Line
from relay.store.calls import Calls
from relay.store.clock import Clock
from relay.store.connect import connection_pool
from relay.store.deadletters import DeadLetters
from relay.store.duties import Duties
from relay.store.events import Events
from relay.store.keys import Keys
from relay.store.leases import Leases
from relay.store.mailboxes import Mailboxes
from relay.store.meta import Meta, Safety
from relay.store.presence import Presence
from relay.store.rates import Rates
from relay.store.receipts import Receipts
from relay.store.replies import Replies
from relay.store.tasks import Tasks
from relay.store.whereabouts import Looks

log = logging.getLogger(__name__)

SCRIPTS = (
    *("accept", "take", "ack", "nack", "release", "touch", "reply", "cancel", "forward"),
    *("join", "leave", "register", "block", "thread", "spend", "expire", "overdue", "reap"),
    *("where", "peek", "watch", "describe", "remove", "revive", "answer"),
)


class Store:
    """Everything the relay asks of Redis."""

    def __init__(self, settings: Settings, pool: ConnectionPool, clock: Clock, prefix: str = "relay") -> None:
        self.settings = settings
        self.pool = pool
        self.clock = clock
        self.instance = secrets.token_hex(5)
        self.keys = Keys(settings.shards, settings.dedup_window_s * 1_000, settings.message_ttl_s * 1_000, prefix)
        self.line = Line(pool, SCRIPTS, wait_for_replica=settings.durability == "replica")
        calls = Calls(self.keys, clock, settings, self.instance)
        self.meta = Meta(self.line, self.keys, settings)
        self.receipts = Receipts(self.line, calls)
        self.mailboxes = Mailboxes(self.line, calls, self.receipts)
        self.tasks = Tasks(self.line, calls)
        self.replies = Replies(self.line, calls, self.mailboxes, self.receipts, self.tasks)
        self.leases = Leases(self.line, calls, self.mailboxes)
        self.looks = Looks(self.line, calls)
        self.dead_letters = DeadLetters(self.line, calls)
        self.events = Events(self.line, self.keys)
        self.presence = Presence(self.line, calls, self.receipts)
        self.agents = Agents(self.line, calls, self.receipts)
        self.rates = Rates(self.line, calls)
        self.duties = Duties(self.line, calls, self.receipts)
        self.safety: Safety | None = None  # what the server was last seen to do

    def level(self) -> str:
        """How durably the last exchange was stored."""
        if self.safety is None:
            return "memory"
        if self.safety.level == "replica" and self.line.replicas_reached == 0:
            return self.safety.without_replica
        return self.safety.level

    async def inspect(self) -> bool:
        """Looks at what the store is and does. True if its epoch is new. Raises ConfigurationError."""
        self.safety = await self.meta.safety()
        return await self.meta.check()


@asynccontextmanager
async def open_store(
    settings: Settings, url: str, *, prefix: str = "relay", clock: Clock | None = None
) -> AsyncIterator[Store]:
    """A store whose calls are carried out while the context lasts. The server need not be there yet."""
    store = Store(settings, connection_pool(url), clock or Clock(), prefix)
    running = asyncio.create_task(store.line.run(), name="store line")
    owner = asyncio.current_task()

    def stop_owner(line: "asyncio.Task[None]") -> None:
        """Without its line nothing works: whoever uses the store ends, rather than wait for ever."""
        if not line.cancelled() and line.exception() is not None and owner is not None:
            log.critical("store_line_failed", exc_info=line.exception())
            owner.cancel()

    running.add_done_callback(stop_owner)
    try:
        yield store
    finally:
        if not running.done():
            await store.line.finish()
        running.cancel()
        await asyncio.wait((running,))
