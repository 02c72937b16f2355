"""Checkup: everything that the doctor reads of the server and the data. It changes nothing."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from relay.errors import StoreUnavailable
from relay.store.keys import ALL_LANES, Keys
from relay.store.record.receipt_lines import as_json
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

PAGE = 100  # entries of a mailbox that one call looks at
NAMES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server reports. `config` is missing if it does not allow CONFIG."""

    name: str
    info: dict[str, str]
    config: dict[str, str] | None
    now_ms: int  # by its clock
    skew_ms: int  # how far that is ahead of ours


@dataclass(slots=True)
class MailboxFaults:
    """Inconsistencies in a mailbox, by stream id; `leaked` has names of consumers."""

    address: str
    ghosts: list[str] = field(default_factory=list)
    stranded: list[str] = field(default_factory=list)
    unindexed: list[str] = field(default_factory=list)
    orphaned: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What is overdue in a shard."""

    shard: int
    overdue: int  # entries to which something was to happen at a time that is past
    oldest_due_ms: int | None
    oldest_waiting_ms: int | None
    oldest_outbox_ms: int | None
    dead_instances: list[str]
    alive_instances: list[str]
    last_event_ms: int | None
    archived_ms: int | None  # None: no archive has read this log


class Checkup:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys: Keys = encoder.keys

    # -- the server

    async def servers(self) -> list[ServerFacts]:
        """Of every master that answers: one, unless there is a Cluster. Raises StoreUnavailable if none does."""
        infos = await self._pipeline.info_of_each()
        configs = await self._pipeline.of_each("CONFIG", "GET", "*")
        asked = time.time()
        clocks = await self._pipeline.of_each("TIME")
        here_ms = int((asked + time.time()) * 500)
        return [
            _facts(master.name, infos[master], configs.get(master), clocks[master], here_ms)
            for master in infos
            if not isinstance(clocks.get(master, StoreUnavailable("gone")), Exception)
        ]

    async def meta(self) -> dict[str, str]:
        """Schema, shards and epoch of the data; empty if the relay was never there."""
        flat = await self._pipeline.command("HGETALL", self._keys.meta)
        return {flat[n].decode(): flat[n + 1].decode() for n in range(0, len(flat), 2)}

    async def deaf(self, instances: set[str]) -> list[str]:
        """Of these instances, those that do not listen on all of their channels."""
        word = "SHARDNUMSUB" if self._pipeline.is_cluster else "NUMSUB"
        deaf = []
        for instance in sorted(instances):
            channels = [self._keys.wake_prefix(shard) + instance for shard in range(self._keys.shards)]
            heard: Counter[bytes] = Counter()
            for flat in (await self._pipeline.of_each("PUBSUB", word, *channels)).values():
                if not isinstance(flat, Exception):
                    heard.update(dict(zip(flat[::2], flat[1::2], strict=True)))
            if not all(heard[channel.encode()] for channel in channels):
                deaf.append(instance)
        return deaf

    @property
    def is_cluster(self) -> bool:
        return self._pipeline.is_cluster

    # -- a shard

    async def shard(self, shard: int, now_ms: int) -> ShardFacts:
        command, keys = self._pipeline.command, self._keys
        due = await command("ZRANGE", keys.due(shard), 0, 0, "WITHSCORES")
        waiting = await command("ZRANGE", keys.waiting(shard), 0, 0, "WITHSCORES")
        outbox = await command("XRANGE", keys.outbox(shard), "-", "+", "COUNT", 1)
        events = await command("XREVRANGE", keys.events(shard), "+", "-", "COUNT", 1)
        archived = await command("GET", keys.archived(shard))
        flat = await command("HGETALL", keys.instances(shard))
        until = {flat[n].decode(): int(float(flat[n + 1])) for n in range(0, len(flat), 2)}
        return ShardFacts(
            shard=shard,
            overdue=await command("ZCOUNT", keys.due(shard), "-inf", now_ms),
            oldest_due_ms=int(float(due[1])) if due else None,
            oldest_waiting_ms=int(float(waiting[1])) if waiting else None,
            oldest_outbox_ms=_ms(outbox[0][0]) if outbox else None,
            dead_instances=[instance for instance, until_ms in until.items() if until_ms < now_ms],
            alive_instances=[instance for instance, until_ms in until.items() if until_ms >= now_ms],
            last_event_ms=_ms(events[0][0]) if events else None,
            archived_ms=_ms(archived) if archived else None,
        )

    # -- mailboxes

    async def addresses(self, shard: int) -> AsyncIterator[list[str]]:
        """Every agent that is registered or has mail, some at a time, each with dead letters or without."""
        last = "-"
        while names := await self._pipeline.command(
            "ZRANGE", self._keys.roster(shard), last, "+", "BYLEX", "LIMIT", 0, NAMES_AT_ONCE
        ):
            yield [name.decode() for name in names]
            last = f"({names[-1].decode()}"

    async def mailbox(self, address: str) -> MailboxFaults:
        """The faults of a mailbox, in all its lanes."""
        faults = MailboxFaults(address)
        lanes = await self._pipeline.command("HGET", self._keys.lanes(self._keys.shard(address)), address)
        for priority in ("0", *(digit for digit in ALL_LANES[:-1] if lanes and digit in lanes.decode())):
            await self._examine(address, int(priority), faults)
        return faults

    async def _examine(self, address: str, priority: int, faults: MailboxFaults) -> None:
        shard, after = self._keys.shard(address), ""
        while True:
            values = [address, priority, after, PAGE]
            keys = [self._keys.box(address, priority)]
            packet = self._encoder.packet(script("examine"), shard, values, keys=keys)
            following, *found = await self._pipeline.reply(packet)
            for kind, names in zip(("ghosts", "stranded", "unindexed", "orphaned", "leaked"), found, strict=True):
                getattr(faults, kind).extend(name.decode() for name in names)
            if not following:
                return
            after = following.decode()

    async def dead_letters(self, address: str) -> int:
        return int(await self._pipeline.command("XLEN", self._keys.dead(address)))

    async def receipt(self, sender: str, to: str, message_id: str) -> dict[str, Any] | None:
        """The receipt that waits for a sender, if one does."""
        for _, fields in await self._pipeline.command("XRANGE", self._keys.receipts(sender), "-", "+"):
            for receipt in orjson.loads(b"[%b]" % as_json(fields[3].decode(), sender)):
                if (receipt["id"], receipt["to"]) == (message_id, to):
                    return dict(receipt)
        return None

    async def lost_ids(self, shard: int) -> AsyncIterator[tuple[str, str]]:
        """Messages that are in the index but in no mailbox: sending them again would count as a duplicate."""
        cursor = b"0"
        while True:
            cursor, flat = await self._pipeline.command("HSCAN", self._keys.ids(shard), cursor, "COUNT", NAMES_AT_ONCE)
            for n in range(0, len(flat), 2):
                key, entry = flat[n].decode(), flat[n + 1].decode()
                if not entry.endswith("~") and not await self._has(shard, key, entry):
                    yield key, entry
            if cursor == b"0":
                return

    async def _has(self, shard: int, key: str, entry: str) -> bool:
        tenant, to, _, _ = key.split("\t")
        stream_id, _, priority = entry.partition("p")
        box = self._keys.box(f"{tenant}/{to}", int(priority or 0))
        if await self._pipeline.command("XRANGE", box, stream_id, stream_id):
            return True
        # It may have ended between the two looks.
        return bool(await self._pipeline.command("HGET", self._keys.ids(shard), key) != entry.encode())


def _facts(name: str, info: dict[str, str], config: Any, clock: Any, here_ms: int) -> ServerFacts:
    known = None
    if isinstance(config, list):
        known = {config[n].decode(): config[n + 1].decode() for n in range(0, len(config), 2)}
    now_ms = int(clock[0]) * 1_000 + int(clock[1]) // 1_000
    return ServerFacts(name, info, known, now_ms, now_ms - here_ms)


def _ms(entry: bytes) -> int:
    return int(entry.partition(b"-")[0])
