"""The store as a whole: opened once per process; its parts share one pipeline."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

from relay.errors import StoreUnavailable
from relay.settings import Settings
from relay.store import readable
from relay.store.agents.agents import Agents
from relay.store.agents.limits import Limits
from relay.store.agents.pauses import Pauses
from relay.store.agents.presence import Presence
from relay.store.agents.rates import Rates
from relay.store.agents.reaping import Reaping
from relay.store.agents.roster import Roster
from relay.store.clock import Clock
from relay.store.keys import Keys
from relay.store.mailbox.accept import Accepting
from relay.store.mailbox.deadletters import DeadLetters
from relay.store.mailbox.expiry import Expiry
from relay.store.mailbox.lanes import Lanes
from relay.store.mailbox.leases import Leases
from relay.store.mailbox.lookup import MessageLookup
from relay.store.mailbox.overdue import Overdue
from relay.store.mailbox.settle import Settling
from relay.store.mailbox.take import Taking
from relay.store.memory import Memory
from relay.store.meta import Meta, Safety
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.servers.connect import Server, home_at
from relay.store.redis.servers.slots import slot_of
from relay.store.redis.servers.topology import Topology
from relay.store.redis.subscriber import WakeSubscriber
from relay.store.replies.receipts import Receipts
from relay.store.replies.replies import Replies
from relay.store.replies.tasks import Tasks
from relay.store.topics import TopicChannels
from relay.store.unreadable import Unreadable
from relay.store.wakes import Wakes, parse_wakes
from relay.store.watching.anomalies import Anomalies
from relay.store.watching.checkup import Checkup
from relay.store.watching.depth import Depths
from relay.store.watching.history import History
from relay.store.watching.holds import Holds
from relay.store.watching.observing import Observing
from relay.store.watching.snapshots import Snapshots
from relay.store.watching.trimming import Trimming
from relay.store.witness import Witness
from relay.store.worker_leases import WorkerLeases

log = logging.getLogger(__name__)

SCRIPTS = (
    *("accept_plain", "ack_plain", "accept", "take", "ack", "nack", "release", "touch", "reply", "cancel", "forward"),
    *("join", "leave", "register", "block", "thread", "spend", "expire", "overdue", "reap"),
    *("where", "peek", "watch", "describe", "remove", "revive", "answer"),
    *("lease", "renew", "follow", "cut", "drop", "claim", "appear"),
    *("dead", "history", "reach", "record", "keep", "examine"),
    *("raise", "count", "holds", "probe", "pause", "limit", "unread"),
    *("kept", "regress", "tell"),
)


class Store:
    """Everything that the relay does in Redis."""

    def __init__(self, settings: Settings, home: Server | Topology, clock: Clock, prefix: str = "relay") -> None:
        self.settings = settings
        self.home = home  # where the keys are
        self.clock = clock
        self.instance = secrets.token_hex(5)
        self.keys = Keys(settings.shards, settings.dedup_window_s * 1_000, settings.message_ttl_s * 1_000, prefix)
        slots = [slot_of(self.keys.tag(shard)) for shard in range(settings.shards)]
        self.pipeline = CommandPipeline(home, SCRIPTS, settings.durability == "replica", slots)
        encoder = ScriptEncoder(self.keys, clock, settings, self.instance, self.pipeline.publish_word)
        self.witness = Witness(encoder)
        self.pipeline.on_reached = self.witness.compare
        self.meta = Meta(self.pipeline, self.keys, settings, self.witness)
        self.receipts = Receipts(self.pipeline, encoder)
        self.memory = Memory(self.pipeline, settings.store_max_memory_share)
        lanes = Lanes()
        self.accepting = Accepting(self.pipeline, encoder, self.memory, lanes, self.witness)
        self.tasks = Tasks(self.pipeline, encoder)
        self.witness.on_regress.append(self.receipts.went_back)
        self.settling = Settling(self.pipeline, encoder, self.receipts, self.witness)
        sift = Unreadable(self.pipeline, encoder, self.settling).sift
        self.taking = Taking(self.pipeline, encoder, self.receipts, lanes, sift)
        self.replies = Replies(self.pipeline, encoder, self.accepting, self.receipts, self.tasks)
        self.leases = Leases(self.pipeline, encoder, self.taking)
        self.lookup = MessageLookup(self.pipeline, encoder)
        self.dead_letters = DeadLetters(self.pipeline, encoder)
        self.history = History(self.pipeline, self.keys)
        self.observing = Observing(self.pipeline, self.keys, settings)
        self.limits = Limits(self.pipeline, encoder)
        self.pauses = Pauses(self.pipeline, encoder)
        self.holds = Holds(self.pipeline, encoder)
        self.anomalies = Anomalies(self.pipeline, self.keys, settings)
        self.snapshots = Snapshots(self.pipeline, self.keys, settings)
        self.presence = Presence(self.pipeline, encoder, self.receipts)
        self.agents = Agents(self.pipeline, encoder, self.receipts)
        self.roster = Roster(self.pipeline, self.keys)
        self.rates = Rates(self.pipeline, encoder)
        self.expiry = Expiry(self.pipeline, encoder, self.receipts)
        self.overdue = Overdue(self.pipeline, encoder, self.receipts)
        self.reaping = Reaping(self.pipeline, encoder)
        self.workers = WorkerLeases(self.pipeline, encoder)
        self.depths = Depths(self.pipeline, self.keys)
        self.trimming = Trimming(self.pipeline, encoder)
        self.checkup = Checkup(self.pipeline, encoder)
        self.topics = TopicChannels(self.pipeline, self.keys)
        self.safety: Safety | None = None  # what the server was last seen to do

    def subscriber(
        self,
        heard: Callable[[Wakes], None],
        published: Callable[[str, bytes], None],
        resubscribed: Callable[[], None],
    ) -> WakeSubscriber:
        """Hears who has mail on this instance, and what is published, while it runs."""

        def parse(shard: int, data: bytes) -> None:
            channel = self.keys.wake_prefix(shard) + self.instance
            for wakes in readable.readable(channel, [data], partial(parse_wakes, shard)):
                heard(wakes)

        return WakeSubscriber(self.home, self.keys, self.instance, parse, published, resubscribed)

    def level(self) -> str:
        """How durably what is accepted is stored. What would be stored less durably than promised is refused."""
        return self.safety.level if self.safety else "memory"

    def silent_s(self, shard: int) -> float:
        """For how long the master of a shard has not answered anything, although it was asked."""
        return self.pipeline.masters.of_shard(shard).silent_s()

    def connected_s(self, shard: int) -> float:
        """For how long the master of a shard has been within reach."""
        return self.pipeline.masters.of_shard(shard).connected_s()

    def reached_share(self) -> float:
        """Of how many of the shards the master answers."""
        masters, shards = self.pipeline.masters, self.keys.shards
        return sum(masters.of_shard(shard).healthy for shard in range(shards)) / shards

    def by_master(self, shards: Iterable[int]) -> list[list[int]]:
        """These shards, those of one master together."""
        together: dict[str, list[int]] = {}
        for shard in shards:
            together.setdefault(self.pipeline.masters.of_shard(shard).name, []).append(shard)
        return list(together.values())

    def masters_away(self) -> list[str]:
        """The masters that do not answer."""
        return [master.name for master in self.pipeline.masters.all if not master.healthy]

    async def ping(self) -> None:
        """Raises StoreUnavailable if the server does not answer."""
        await self.pipeline.command("PING")

    async def inspect(self) -> bool:
        """Looks at what the server is and does. True if its epoch is new. Raises ConfigurationError."""
        safety = await self.meta.safety()
        for warning in set(safety.warnings) - set(self.safety.warnings if self.safety else ()):
            log.warning("store_is_risky", extra={"reason": warning})
        self.safety = safety
        return await self.meta.check()

    async def check(self) -> None:
        """Raises ConfigurationError if the store is not for this relay. One that is away is waited for."""
        try:
            await self.inspect()
        except StoreUnavailable as error:
            log.warning("store_is_away", extra={"error": error.message})


@asynccontextmanager
async def open_store(
    settings: Settings, url: str, *, prefix: str = "relay", clock: Clock | None = None
) -> AsyncIterator[Store]:
    """A store whose calls are carried out while the context lasts. The server need not be there yet."""
    store = Store(settings, home_at(url), clock or Clock(), prefix)
    pipeline = asyncio.create_task(store.pipeline.run(), name="pipeline")
    watch = asyncio.create_task(store.home.watch(), name="watch")
    owner = asyncio.current_task()

    def stop_owner(part: "asyncio.Task[None]") -> None:
        """Stops the owner of the store if a part has failed, so that it does not wait forever."""
        if not part.cancelled() and part.exception() is not None and owner is not None:
            log.critical("store_failed", extra={"part": part.get_name()}, exc_info=part.exception())
            owner.cancel()

    pipeline.add_done_callback(stop_owner)
    watch.add_done_callback(stop_owner)
    try:
        yield store
    finally:
        if not pipeline.done():
            await store.pipeline.finish()
        pipeline.cancel()
        watch.cancel()
        await asyncio.wait((pipeline, watch))
