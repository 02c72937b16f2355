"""Every key the relay has in Redis: the only place that spells one."""

from binascii import crc32
from collections.abc import Iterable, Sequence
from functools import lru_cache

SCHEMA = "1"
_SHARD_NAMES = (
    *("bytes", "lanes", "waiting", "due", "presence", "instances", "blocks", "agents"),
    *("outbox", "failures", "drain", "seen", "caps", "totals"),
)
ALL_LANES = "9876543210"  # priorities, highest first
FORWARDED_BUCKET_MS = 3_600_000  # how long a forwarded outbox entry is remembered, at least


@lru_cache(maxsize=65_536)
def _crc(address: str) -> int:
    return crc32(address.encode())


@lru_cache(maxsize=65_536)
def pair_key(sender: str, recipient: str) -> str:
    """How message keys and thread keys begin: tenant, to, from."""
    tenant, _, to = recipient.partition("/")
    return f"{tenant}\t{to}\t{sender.partition('/')[2]}"


def bulk(data: bytes) -> bytes:
    """One argument of a command as it goes over the wire."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


class Keys:
    """Names keys. All keys of a shard share a hash tag, so that one script may use them."""

    def __init__(self, shards: int, dedup_window_ms: int, ttl_ms: int, prefix: str = "relay") -> None:
        self.shards = shards
        self.prefix = prefix
        self.dedup_window_ms = dedup_window_ms
        self.ttl_ms = ttl_ms
        self.meta = f"{prefix}:meta"  # HASH: schema, shards, epoch
        self.workers = f"{prefix}:workers"  # HASH: worker -> at_ms, why it cannot do its duty
        self._boxes: dict[tuple[str, str], bytes] = {}
        self._shard_chunks: dict[int, tuple[tuple[int, int], bytes]] = {}

    def lease(self, duty: str) -> str:
        """STRING: which worker process does a duty now."""
        return f"{self.prefix}:lease:{duty}"

    def shard(self, address: str) -> int:
        return _crc(address) % self.shards

    def tag(self, shard: int) -> str:
        return f"{self.prefix}:{{s{shard:02d}}}:"

    def box(self, address: str, priority: int = 0) -> str:
        """STREAM: the mailbox, one per priority."""
        lane = f":p{priority}" if priority else ""
        return f"{self.tag(self.shard(address))}box:{address}{lane}"

    def dead(self, address: str) -> str:
        """STREAM: the dead-letter box."""
        return f"{self.tag(self.shard(address))}dead:{address}"

    def receipts(self, address: str) -> str:
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

    def totals(self, shard: int) -> str:
        """HASH: how -> how many messages have ended so, other than by ack."""
        return self.tag(shard) + "totals"

    def task(self, requester: str, task_id: str) -> str:
        """HASH: one request: to whom, its thread, its parts, its reply or how else it ended, who waits for it."""
        return f"{self.tag(self.shard(requester))}task:{requester}:{task_id}"

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

    def shard_chunk(self, shard: int, now_ms: int) -> bytes:
        """shard_keys as wire bytes, kept until a bucket changes."""
        buckets = (now_ms // self.dedup_window_ms, now_ms // self.ttl_ms)
        kept = self._shard_chunks.get(shard)
        if kept and kept[0] == buckets:
            return kept[1]
        chunk = as_chunk(self.shard_keys(shard, now_ms))
        self._shard_chunks[shard] = (buckets, chunk)
        return chunk

    def box_chunk(self, address: str, priorities: str) -> bytes:
        """The lanes of a mailbox as wire bytes."""
        chunk = self._boxes.get((address, priorities))
        if chunk is None:
            if len(self._boxes) > 200_000:
                self._boxes.clear()
            chunk = as_chunk(self.box(address, int(digit)) for digit in priorities)
            self._boxes[address, priorities] = chunk
        return chunk

    def dead_chunk(self, address: str) -> bytes:
        """The dead-letter box as wire bytes."""
        return bulk(self.dead(address).encode())


SHARD_KEYS = 20  # how many names shard_keys has


def as_chunk(names: Iterable[str]) -> bytes:
    return b"".join(bulk(name.encode()) for name in names)


def as_packet(*parts: str | bytes | int) -> bytes:
    """A whole command as wire bytes."""
    encoded: Sequence[bytes] = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(map(bulk, encoded))
