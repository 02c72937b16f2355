"""Event logs as the relay writes them, filled by hand."""

from typing import Any

import redis

from relay.protocol.columns import escape
from spark.sources.store import Place

NOON_MS = 1_800_000_000_000  # 2027-01-15 08:00 UTC
DAY_MS = 86_400_000
SHARDS = 4
INSTANCE = "c0ffee1234"
MESSAGE = {"tenant": "acme", "to": "bob", "from": "alice", "id": "m-1"}
LINE = (
    *("kind", "entry", "seq", "attempt", "who", "reason", "held_ms"),
    *("tenant", "to", "from", "id", "type", "thread", "priority", "bytes"),
)


def an_event(kind: str = "accepted", **columns: Any) -> str:
    """One event as shard.lua writes it."""
    values = MESSAGE | columns | {"kind": kind}
    return "\t".join(escape(str(values.get(name, ""))) for name in LINE).rstrip("\t")


def lines_of(at_ms: int, *events: str) -> str:
    return "\n".join((f"{at_ms}\t{INSTANCE}", *events))


class EventLog:
    """The logs of a store under a prefix of its own."""

    def __init__(self, url: str, client: "redis.Redis | redis.RedisCluster", prefix: str, shards: int = SHARDS) -> None:
        self.url = url
        self.prefix = prefix
        self.shards = shards
        self.redis = client
        self.meta(epoch="one")

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "prefix": self.prefix}

    @property
    def place(self) -> Place:
        epoch = self.redis.hget(f"{self.prefix}:meta", "epoch")
        return Place(self.url, self.prefix, self.shards, str(epoch))

    def meta(self, epoch: str) -> None:
        self.redis.hset(f"{self.prefix}:meta", mapping={"schema": "1", "shards": self.shards, "epoch": epoch})

    def key(self, shard: int, name: str = "events") -> str:
        return f"{self.prefix}:{{s{shard:02d}}}:{name}"

    def add(self, shard: int, *events: str, at_ms: int = NOON_MS) -> str:
        """One entry with these events; its number in the millisecond is the next one."""
        return str(self.redis.execute_command("XADD", self.key(shard), f"{at_ms}-*", "e1", lines_of(at_ms, *events)))

    def fill(self, entries: int, events_per_entry: int = 3, days: int = 1) -> int:
        """Entries over all shards and that many days, ids all different. Returns how many events there are."""
        with self.redis.pipeline(transaction=False) as pipeline:
            for n in range(entries):
                at_ms = NOON_MS + n * days * DAY_MS // entries
                events = [an_event(id=f"m-{n}-{place}", seq=n) for place in range(events_per_entry)]
                pipeline.execute_command(
                    "XADD", self.key(n % self.shards), f"{at_ms}-{n}", "e1", lines_of(at_ms, *events)
                )
            pipeline.execute()
        return entries * events_per_entry

    def length(self, shard: int) -> int:
        return int(self.redis.xlen(self.key(shard)))

    def trim_to(self, shard: int, length: int) -> None:
        self.redis.xtrim(self.key(shard), maxlen=length, approximate=False)

    def wipe(self) -> None:
        self.redis.delete(*(self.key(shard) for shard in range(self.shards)))

    def back_up(self) -> dict[str, bytes]:
        """All that the store has."""
        with self._raw() as raw:
            return {key.decode(): raw.dump(key) for key in raw.scan_iter(match=f"{self.prefix}:*")}

    def go_back(self, backup: dict[str, bytes]) -> None:
        """The store has that again, and nothing else."""
        with self._raw() as raw:
            raw.delete(*raw.scan_iter(match=f"{self.prefix}:*"))
            for key, dumped in backup.items():
                raw.restore(key, 0, dumped)

    def _raw(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def archived(self) -> list[str | None]:
        return [self.redis.get(self.key(shard, "archived")) for shard in range(self.shards)]
