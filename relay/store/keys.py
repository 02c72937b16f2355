"""Every key the relay has in Redis: the only place that spells one."""

from binascii import crc32
from functools import lru_cache

SCHEMA = 1  # of what is stored; a release that stores something else has the next number


def may_share(schema: str) -> bool:
    """Whether this relay may use such a store: its own schema, or one apart, so that relays are replaced one by one."""
    return schema.isdecimal() and abs(int(schema) - SCHEMA) <= 1


_SHARD_NAMES = (
    *("bytes", "lanes", "waiting", "due", "presence", "instances", "blocks", "agents"),
    *("outbox", "failures", "drain", "seen", "caps", "totals", "roster", "threads", "sums", "shadows", "shadowed"),
    "pushes",
)
_PLAIN_ACCEPT_NAMES = (
    *("bytes", "waiting", "due", "presence", "pushes", "threads", "sums"),
    *("lanes", "blocks", "caps", "paused"),
)
_PLAIN_ACK_NAMES = (*("bytes", "waiting", "due", "pushes", "threads", "sums", "lanes", "failures", "drain", "outbox"),)
ALL_LANES = "9876543210"  # priorities, highest first
GROUP = "agent"  # the consumer group of every mailbox; see shard.lua
FORWARDED_BUCKET_MS = 600_000  # how long a forwarded outbox entry is remembered, at least


@lru_cache(maxsize=65_536)
def _crc(address: str) -> int:
    return crc32(address.encode())


@lru_cache(maxsize=65_536)
def pair_key(sender: str, recipient: str) -> str:
    """How message keys and thread keys begin: tenant, to, from."""
    tenant, _, to = recipient.partition("/")
    return f"{tenant}\t{to}\t{sender.partition('/')[2]}"


class Keys:
    """Names of keys. All keys of a shard share a hash tag, so that one script may use them."""

    def __init__(self, shards: int, dedup_window_ms: int, ttl_ms: int, prefix: str = "relay") -> None:
        self.shards = shards
        self.prefix = prefix
        self.dedup_window_ms = dedup_window_ms
        self.ttl_ms = ttl_ms
        self.meta = f"{prefix}:meta"  # HASH: schema, shards, epoch
        self.workers = f"{prefix}:workers"  # HASH: worker -> at_ms, why it cannot do its duty
        self.rounds = f"{prefix}:rounds"  # HASH: worker -> its last round: at_ms, process, done, took_ms, every_s
        self.anomaly_totals = f"{prefix}:anomaly_totals"  # HASH: kind -> how many anomalies were raised
        self.first_lane = lru_cache(maxsize=65_536)(self._first_lane)
        self.receipts = lru_cache(maxsize=65_536)(self._receipts)
        self.observed = f"{prefix}:observed"  # STRING: up to where the observer has read each event log (JSON)

    def lease(self, duty: str) -> str:
        """STRING: which worker process does a duty now."""
        return f"{self.prefix}:lease:{duty}"

    def history(self, tenant: str) -> str:
        """STREAM: the latest snapshots of a tenant."""
        return f"{self.prefix}:history:{tenant}"

    def anomalies(self, tenant: str) -> str:
        """HASH: id -> what looks wrong in a tenant (JSON)."""
        return f"{self.prefix}:anomalies:{tenant}"

    def probe(self, instance: str) -> str:
        """STRING: what an instance answered to the latest probe that it heard."""
        return f"{self.prefix}:probe:{instance}"

    def ranking(self, tenant: str) -> str:
        """STRING: the busiest agents of a tenant (JSON)."""
        return f"{self.prefix}:ranking:{tenant}"

    def shard(self, address: str) -> int:
        return _crc(address) % self.shards

    def tag(self, shard: int) -> str:
        return f"{self.prefix}:{{s{shard:02d}}}:"

    def box(self, address: str, priority: int = 0) -> str:
        """STREAM: the mailbox, one per priority."""
        return f"{self.first_lane(address)}:p{priority}" if priority else self.first_lane(address)

    def _first_lane(self, address: str) -> str:
        return f"{self.tag(self.shard(address))}box:{address}"

    def boxes(self, address: str, priorities: str = ALL_LANES) -> list[str]:
        """The lanes of a mailbox, highest priority first."""
        return [self.box(address, int(digit)) for digit in priorities]

    def dead(self, address: str) -> str:
        """STREAM: the dead-letter box."""
        return f"{self.tag(self.shard(address))}dead:{address}"

    def _receipts(self, address: str) -> str:
        """STREAM: receipts waiting for a sender."""
        return f"{self.tag(self.shard(address))}receipts:{address}"

    def events(self, shard: int) -> str:
        """STREAM: every transition."""
        return self.tag(shard) + "events"

    def archived(self, shard: int) -> str:
        """STRING: up to which entry the events are archived; written by the archive job."""
        return self.tag(shard) + "archived"

    def outbox(self, shard: int) -> str:
        """STREAM: receipts and replies on their way to another shard."""
        return self.tag(shard) + "outbox"

    def waiting(self, shard: int) -> str:
        """ZSET: address by the time of its oldest entry."""
        return self.tag(shard) + "waiting"

    def due(self, shard: int) -> str:
        """ZSET: kind, address, handle by the time when something must happen to the entry."""
        return self.tag(shard) + "due"

    def presence(self, shard: int) -> str:
        """HASH: address -> its sessions."""
        return self.tag(shard) + "presence"

    def paused(self, shard: int) -> str:
        """HASH: address or tenant -> by whom, since when, why delivery is paused."""
        return self.tag(shard) + "paused"

    def state_keys(self, shard: int) -> list[str]:
        """The keys that scripts with states.lua need besides the shard's keys, in its order."""
        return [self.paused(shard)]

    def instances(self, shard: int) -> str:
        """HASH: instance -> until when it is believed to be alive."""
        return self.tag(shard) + "instances"

    def blocks(self, shard: int) -> str:
        """HASH: address -> the senders it has blocked."""
        return self.tag(shard) + "blocks"

    def agents(self, shard: int) -> str:
        """HASH: address -> registration (JSON)."""
        return self.tag(shard) + "agents"

    def ids(self, shard: int) -> str:
        """HASH: message key -> entry handle, of what is in a mailbox."""
        return self.tag(shard) + "ids"

    def caps(self, shard: int) -> str:
        """HASH: address -> max_messages, max_bytes; only of agents with caps of their own."""
        return self.tag(shard) + "caps"

    def limits(self, shard: int) -> str:
        """HASH: address -> messages per second, burst; only of agents with a rate of their own."""
        return self.tag(shard) + "limits"

    def calls(self, shard: int) -> str:
        """HASH: instance -> its last exchange in this shard and what came of it (msgpack; see fence.lua)."""
        return self.tag(shard) + "calls"

    def totals(self, shard: int) -> str:
        """HASH: how -> how many messages have ended so, other than by ack."""
        return self.tag(shard) + "totals"

    def roster(self, shard: int) -> str:
        """ZSET: address of every agent that is registered or has mail, in the order of names."""
        return self.tag(shard) + "roster"

    def threads(self, shard: int) -> str:
        """ZSET: thread key, sequence number of what waits and has a thread."""
        return self.tag(shard) + "threads"

    def shadows(self, shard: int) -> str:
        """ZSET: what blocked senders believe to wait."""
        return self.tag(shard) + "shadows"

    def sums(self, shard: int) -> str:
        """HASH: tenant, what -> how much it has: messages, bytes, dead, online. Also `regressed`."""
        return self.tag(shard) + "sums"

    def task(self, requester: str, task_id: str) -> str:
        """HASH: one request: to whom, its thread, its parts, its reply or how else it ended, who waits for it."""
        return f"{self.tag(self.shard(requester))}task:{requester}:{task_id}"

    def tasks(self, requester: str) -> str:
        """ZSET: the ids of a requester's tasks: below 0 those that have ended, above it the others."""
        return f"{self.tag(self.shard(requester))}tasks:{requester}"

    def task_sizes(self, requester: str) -> str:
        """HASH: id of a task -> bytes kept with it; "" -> of all of them."""
        return f"{self.tag(self.shard(requester))}tasksizes:{requester}"

    def parts(self, address: str, entry: str) -> str:
        """HASH: count and bytes of the parts that a request in a mailbox has been answered with."""
        return f"{self.tag(self.shard(address))}parts:{address}:{entry}"

    def owed(self, requester: str) -> str:
        """LIST: parts and replies of its tasks that did not fit into a requester's mailbox yet."""
        return f"{self.tag(self.shard(requester))}owed:{requester}"

    def owing(self, shard: int) -> str:
        """ZSET: requester by when what is owed to it is tried again."""
        return self.tag(shard) + "owing"

    def seen(self, shard: int) -> str:
        """HASH: address -> last seen, next active."""
        return self.tag(shard) + "seen"

    def seqs(self, shard: int, now_ms: int) -> tuple[str, str]:
        """HASH: thread key -> last sequence number; the current bucket and the one before."""
        bucket = now_ms // self.ttl_ms
        return f"{self.tag(shard)}seqs:{bucket}", f"{self.tag(shard)}seqs:{bucket - 1}"

    def ended(self, shard: int, now_ms: int) -> tuple[str, str]:
        """HASH: message key -> how it ended; the current bucket and the one before."""
        bucket = now_ms // self.dedup_window_ms
        return f"{self.tag(shard)}ended:{bucket}", f"{self.tag(shard)}ended:{bucket - 1}"

    def forwarded(self, shard: int, now_ms: int) -> tuple[str, str]:
        """SET: outbox entries that have arrived; the current bucket and the one before."""
        bucket = now_ms // FORWARDED_BUCKET_MS
        return f"{self.tag(shard)}forwarded:{bucket}", f"{self.tag(shard)}forwarded:{bucket - 1}"

    def rates(self, shard: int) -> str:
        """HASH: sender -> tokens left, at_ms."""
        return self.tag(shard) + "rates"

    def lanes(self, shard: int) -> str:
        """HASH: address -> the priorities above 0 that its mailbox uses."""
        return self.tag(shard) + "lanes"

    def wake_prefix(self, shard: int) -> str:
        """Channel, with an instance's name behind it: who has mail there."""
        return self.tag(shard) + "wake:"

    def topics(self, tenant: str) -> str:
        """Channel: what is published to the topics of a tenant."""
        return f"{self.tag(self.shard(tenant))}topics:{tenant}"

    def pushes(self, shard: int) -> str:
        """HASH: address -> the session that is pushed to, its credits, how many messages were pushed to it."""
        return self.tag(shard) + "pushes"

    def plain_accept_keys(self, shard: int, now_ms: int) -> list[str]:
        """Those of accept_plain.lua, in its order."""
        tag = self.tag(shard)
        return [
            *(tag + "events", tag + "ids", *self.ended(shard, now_ms), *self.seqs(shard, now_ms)),
            *(tag + name for name in _PLAIN_ACCEPT_NAMES),
        ]

    def plain_ack_keys(self, shard: int, now_ms: int) -> list[str]:
        """Those of ack_plain.lua, in its order."""
        tag = self.tag(shard)
        before = (tag + "calls", tag + "events", tag + "ids", self.ended(shard, now_ms)[0])
        return [*before, *(tag + name for name in _PLAIN_ACK_NAMES)]

    def shard_keys(self, shard: int, now_ms: int) -> list[str]:
        """The keys that every script starts with, in the order of shard.lua."""
        tag = self.tag(shard)
        return [
            tag + "events",
            tag + "ids",
            *self.ended(shard, now_ms),
            *self.seqs(shard, now_ms),
            *(tag + name for name in _SHARD_NAMES),
        ]


SHARD_KEYS = 26  # how many names shard_keys has
