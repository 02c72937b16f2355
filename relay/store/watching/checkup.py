"""Checkup: everything that the doctor reads of the server and the data. It changes nothing."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from relay.errors import StoreUnavailable
from relay.protocol.entry import parse_entry
from relay.store import readable
from relay.store.agents.pauses import read_pause
from relay.store.agents.presence import read_instance, read_sessions
from relay.store.keys import ALL_LANES, Keys
from relay.store.mailbox.overdue import read_due
from relay.store.record.receipt_lines import as_json
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

PAGE = 100  # entries of a mailbox that one call looks at
NAMES_AT_ONCE = 500
FAULTS = ("ghosts", "stranded", "unindexed", "orphaned", "leaked", "unreadable")  # as examine.lua returns them


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
    unreadable: list[str] = field(default_factory=list)


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
    unreadable: int = 0  # records that were set aside since the store was made


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
        return {readable.shown(name): readable.shown(value) for name, value in readable.pairs(flat)}

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
        unreadable = await command("HGET", keys.totals(shard), "unreadable")
        flat = await command("HGETALL", keys.instances(shard))
        until = dict(readable.readable(keys.instances(shard), readable.pairs(flat), read_instance))
        return ShardFacts(
            shard=shard,
            overdue=await command("ZCOUNT", keys.due(shard), "-inf", now_ms),
            oldest_due_ms=readable.score(due[1]) if due else None,
            oldest_waiting_ms=readable.score(waiting[1]) if waiting else None,
            oldest_outbox_ms=_ms(outbox[0][0]) if outbox else None,
            dead_instances=[instance for instance, until_ms in until.items() if until_ms < now_ms],
            alive_instances=[instance for instance, until_ms in until.items() if until_ms >= now_ms],
            last_event_ms=_ms(events[0][0]) if events else None,
            archived_ms=readable.read_or(keys.archived(shard), archived, _ms, None),
            unreadable=int(unreadable or 0),
        )

    # -- mailboxes

    async def addresses(self, shard: int) -> AsyncIterator[list[str]]:
        """Every agent that is registered or has mail, some at a time, each with dead letters or without."""
        key, last = self._keys.roster(shard), b"-"
        while names := await self._pipeline.command("ZRANGE", key, last, "+", "BYLEX", "LIMIT", 0, NAMES_AT_ONCE):
            yield readable.names(key, names)
            last = b"(" + names[-1]

    async def mailbox(self, address: str) -> MailboxFaults:
        """The faults of a mailbox, in all its lanes."""
        faults = MailboxFaults(address)
        lanes = await self._pipeline.command("HGET", self._keys.lanes(self._keys.shard(address)), address)
        for priority in ("0", *(digit for digit in ALL_LANES[:-1] if lanes and digit.encode() in lanes)):
            await self._examine(address, int(priority), faults)
        return faults

    async def _examine(self, address: str, priority: int, faults: MailboxFaults) -> None:
        shard, after = self._keys.shard(address), ""
        while True:
            values = [address, priority, after, PAGE]
            keys = [self._keys.box(address, priority)]
            packet = self._encoder.packet(script("examine"), shard, values, keys=keys)
            following, *found = await self._pipeline.reply(packet)
            for kind, names in zip(FAULTS, found, strict=True):
                getattr(faults, kind).extend(map(readable.shown, names))
            if not following:
                return
            after = following.decode()

    async def dead_letters(self, address: str) -> int:
        return int(await self._pipeline.command("XLEN", self._keys.dead(address)))

    async def receipt(self, sender: str, to: str, message_id: str) -> dict[str, Any] | None:
        """The receipt that waits for a sender, if one does."""
        key = self._keys.receipts(sender)

        def read(row: list[Any]) -> list[dict[str, Any]]:
            receipts: list[dict[str, Any]] = orjson.loads(b"[%b]" % as_json(row[1][3].decode(), sender))
            return [receipt for receipt in receipts if (receipt["id"], receipt["to"]) == (message_id, to)]

        rows = await self._pipeline.command("XRANGE", key, "-", "+")
        return next((receipt for found in readable.readable(key, rows, read) for receipt in found), None)

    async def look_through(self, shard: int) -> None:
        """Reads the records that duties go by as they do, which counts those that nobody can read."""
        keys = self._keys
        async for records in self._pages("ZSCAN", keys.due(shard)):
            readable.readable(keys.due(shard), (member for member, _ in records), read_due)
        async for records in self._pages("ZSCAN", keys.waiting(shard)):
            readable.names(keys.waiting(shard), (address for address, _ in records))
        async for records in self._pages("HSCAN", keys.presence(shard)):
            readable.readable(keys.presence(shard), records, read_sessions)
        async for records in self._pages("HSCAN", keys.paused(shard)):
            readable.readable(keys.paused(shard), records, read_pause)
        async for records in self._pages("HSCAN", keys.agents(shard)):
            readable.readable(keys.agents(shard), (fields for _, fields in records), orjson.loads)

    async def lost_ids(self, shard: int) -> AsyncIterator[tuple[str, str]]:
        """Messages that are in the index but in no mailbox: sending them again would count as a duplicate."""
        name = self._keys.ids(shard)
        async for records in self._pages("HSCAN", name):
            for key, entry in readable.readable(name, records, _indexed):
                if not entry.endswith("~") and not await self._has(shard, key, entry):
                    yield key, entry

    async def _pages(self, command: str, key: str) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        cursor = b""
        while cursor != b"0":
            cursor, flat = await self._pipeline.command(command, key, cursor or b"0", "COUNT", NAMES_AT_ONCE)
            yield list(readable.pairs(flat))

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
        known = {readable.shown(name): readable.shown(value) for name, value in readable.pairs(config)}
    now_ms = int(clock[0]) * 1_000 + int(clock[1]) // 1_000
    return ServerFacts(name, info, known, now_ms, now_ms - here_ms)


def _indexed(record: tuple[bytes, bytes]) -> tuple[str, str]:
    """A message key of four columns, and the handle of its entry. Raises ValueError."""
    key, entry = record[0].decode(), record[1].decode()
    if key.count("\t") != 3 or parse_entry(entry.removesuffix("~")) is None:
        raise ValueError
    return key, entry


def _ms(entry: bytes) -> int:
    return int(entry.partition(b"-")[0])
