"""Presence: sessions join and leave mailboxes, instances renew their leases."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relay.errors import Busy
from relay.store import readable
from relay.store.callbacks import answer_or_raise
from relay.store.keys import ALL_LANES
from relay.store.redis.batcher import ShardBatcher
from relay.store.redis.encoder import ScriptEncoder, keyed_packet
from relay.store.redis.pipeline import CommandPipeline, Outcome
from relay.store.redis.scripts import script
from relay.store.replies.receipts import Receipts


@dataclass(frozen=True, slots=True)
class Joined:
    """What a session finds in its mailbox. `backlog_end` is the last entry that was there before it."""

    pending: int
    bytes: int
    oldest_ms: int | None
    backlog_end: str


@dataclass(frozen=True, slots=True)
class PresenceInfo:
    online: bool
    last_seen_ms: int | None
    next_active_at_ms: int | None

    def as_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"online": self.online, "last_seen_ms": self.last_seen_ms}
        if self.next_active_at_ms:
            fields["next_active_at_ms"] = self.next_active_at_ms
        return fields


@dataclass(slots=True)
class Arrival:
    address: str
    session: str
    mode: str
    lease_ms: int
    next_active_at_ms: int
    asked_ms: int
    window: int | str  # "" if its client has not said
    answer: Callable[[Joined | Exception], None]


@dataclass(slots=True)
class Departure:
    address: str
    session: str
    reason: str
    next_active_at_ms: int
    answer: Callable[[bool | Exception], None]


class Presence:
    """A session is present while its instance is alive and it has not left. Joins and leaves are batched."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder, receipts: Receipts) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys
        self._receipts = receipts
        self._joins = ShardBatcher[Arrival](pipeline, self._encode_join, self._joined, most=20)
        self._leaves = ShardBatcher[Departure](pipeline, self._encode_leave, self._left, most=20, needs_replicas=True)

    async def join(
        self,
        address: str,
        session: str,
        mode: str,
        lease_ms: int,
        next_active_at_ms: int | None,
        asked_ms: int | None = None,
        window: int | None = None,
    ) -> Joined:
        """Begins to serve a mailbox. An exclusive session replaces sessions that asked earlier.

        Raises StoreUnavailable, and Busy if a session that it would replace asked later."""
        asked_ms = self._encoder.clock.now_ms() if asked_ms is None else asked_ms
        shard = self._keys.shard(address)

        def ask(answer: Callable[[Joined | Exception], None]) -> None:
            since = (lease_ms, next_active_at_ms or 0, asked_ms)
            self._joins.put(shard, Arrival(address, session, mode, *since, "" if window is None else window, answer))

        return await answer_or_raise(ask)

    async def leave(self, address: str, session: str, reason: str, next_active_at_ms: int | None = None) -> bool:
        """Ends a session and gives back what it held. False if it had been replaced. Raises StoreUnavailable."""
        shard = self._keys.shard(address)

        def ask(answer: Callable[[bool | Exception], None]) -> None:
            self._leaves.put(shard, Departure(address, session, reason, next_active_at_ms or 0, answer))

        return await answer_or_raise(ask)

    def _encode_join(self, shard: int, arrivals: list[Arrival]) -> bytes:
        mailboxes = [
            [
                arrival.address,
                ALL_LANES,
                arrival.session,
                arrival.mode,
                arrival.lease_ms,
                arrival.next_active_at_ms,
                arrival.asked_ms,
                arrival.window,
            ]
            for arrival in arrivals
        ]
        return self._encoder.for_mailboxes(
            script("join"), shard, [], mailboxes, number=(self._pipeline.exchange, "join")
        )

    def _joined(self, arrivals: list[Arrival], outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            for arrival in arrivals:
                arrival.answer(outcome)
            return
        outbox_entry, receipts, joined, _ = outcome
        self._receipts.forward(self._keys.shard(arrivals[0].address), outbox_entry, receipts)
        for arrival, row in zip(arrivals, joined, strict=True):
            arrival.answer(_late() if row == b"late" else _joined(*row))

    def _encode_leave(self, shard: int, departures: list[Departure]) -> bytes:
        mailboxes = [
            [departure.address, ALL_LANES, departure.session, departure.reason, departure.next_active_at_ms]
            for departure in departures
        ]
        return self._encoder.for_mailboxes(
            script("leave"), shard, [], mailboxes, number=(self._pipeline.exchange, "leave")
        )

    def _left(self, departures: list[Departure], outcome: Outcome) -> None:
        for n, departure in enumerate(departures):
            departure.answer(outcome if isinstance(outcome, Exception) else outcome[n] == b"left")

    # -- instances

    async def read_time(self) -> None:
        """Sets this process's clock by the store's."""
        clock = self._encoder.clock
        asked_ms = clock.own_ms()
        seconds, microseconds = await self._pipeline.command("TIME")
        clock.heard(int(seconds) * 1_000 + int(microseconds) // 1_000, asked_ms, clock.own_ms())

    async def renew(self, lease_ms: int) -> None:
        """Says in every shard that this instance is alive."""
        await self.read_time()
        until_ms = self._encoder.clock.now_ms() + lease_ms
        await asyncio.gather(
            *(
                self._pipeline.reply(
                    keyed_packet(script("renew"), self._keys.instances(shard), self._encoder.instance, until_ms)
                )
                for shard in range(self._keys.shards)
            )
        )

    async def resign(self) -> None:
        """Takes this instance off the list, when it stops."""
        await asyncio.gather(
            *(
                self._pipeline.command("HDEL", self._keys.instances(shard), self._encoder.instance)
                for shard in range(self._keys.shards)
            )
        )

    async def instances(self, shard: int) -> dict[str, int]:
        """When the lease of each instance ends."""
        key = self._keys.instances(shard)
        flat = await self._pipeline.command("HGETALL", key)
        return dict(readable.readable(key, readable.pairs(flat), read_instance))

    async def sessions(self, shard: int, cursor: str, count: int) -> tuple[str, dict[str, list[str]]]:
        """A page of the sessions that are registered in a shard, by address; the cursor is "0" at the end."""
        key = self._keys.presence(shard)
        following, flat = await self._pipeline.command("HSCAN", key, cursor, "COUNT", count)
        return following.decode(), dict(readable.readable(key, readable.pairs(flat), read_sessions))

    async def forget_instance(self, shard: int, instance: str) -> None:
        await self._pipeline.command("HDEL", self._keys.instances(shard), instance)

    # -- looking

    async def registered(self, shard: int, addresses: list[str]) -> list[dict[str, str]]:
        """The sessions that the store has for these addresses of a shard, each with its mode."""
        values = await self._pipeline.command("HMGET", self._keys.presence(shard), *addresses)
        return list(map(session_modes, values))

    async def expect(self, address: str, next_active_at_ms: int) -> None:
        """Notes when a part-time agent says it will be back."""
        key = self._keys.seen(self._keys.shard(address))
        last_seen_ms, _ = seen_times(await self._pipeline.command("HGET", key, address) or b"")
        await self._pipeline.command("HSET", key, address, f"{last_seen_ms or 0}\t{next_active_at_ms}")

    async def seen(self, addresses: list[str]) -> dict[str, PresenceInfo]:
        """The presence of each agent, with three commands per shard."""
        by_shard: dict[int, list[str]] = {}
        for address in dict.fromkeys(addresses):
            by_shard.setdefault(self._keys.shard(address), []).append(address)
        pages = await asyncio.gather(*(self._seen(shard, names) for shard, names in by_shard.items()))
        by_address = {address: info for page in pages for address, info in page.items()}
        return {address: by_address[address] for address in addresses}

    async def _seen(self, shard: int, addresses: list[str]) -> dict[str, PresenceInfo]:
        here, seen, alive_until = await asyncio.gather(
            self._pipeline.command("HMGET", self._keys.presence(shard), *addresses),
            self._pipeline.command("HMGET", self._keys.seen(shard), *addresses),
            self.instances(shard),
        )
        now_ms = self._encoder.clock.now_ms()
        alive = {instance for instance, until_ms in alive_until.items() if until_ms > now_ms}
        infos = {}
        for address, sessions, times in zip(addresses, here, seen, strict=True):
            online = any(name.partition(".")[0] in alive for name in session_modes(sessions))
            last_seen_ms, next_active_at_ms = seen_times(times or b"")
            infos[address] = PresenceInfo(online, now_ms if online else last_seen_ms, next_active_at_ms)
        return infos


def _late() -> Busy:
    return Busy("a session that came later serves this mailbox", retry_after_ms=1_000)


def _joined(depth: int, size: int, oldest: int, backlog_end: bytes) -> Joined:
    return Joined(depth, size, oldest if oldest >= 0 else None, backlog_end.decode())


def seen_times(value: bytes) -> tuple[int | None, int | None]:
    """When an agent was last seen, and when it wants to be back, as far as that is known and can be read."""
    last_seen, _, next_active = value.partition(b"\t")
    return _whole(last_seen), _whole(next_active)


def _whole(digits: bytes) -> int | None:
    return int(digits) or None if digits.isdigit() else None


def session_modes(value: bytes | None) -> dict[str, str]:
    """The sessions in a presence value: a line each, session and mode. A line that is none is nobody's."""
    lines = [line.split("\t") for line in readable.shown(value or b"").split("\n")]
    return {columns[0]: columns[1] for columns in lines if len(columns) > 1}


def read_sessions(record: tuple[bytes, bytes]) -> tuple[str, list[str]]:
    """An address, and its sessions. Raises ValueError."""
    return record[0].decode(), list(session_modes(record[1]))


def read_instance(record: tuple[bytes, bytes]) -> tuple[str, int]:
    """An instance, and when its lease ends. Raises ValueError."""
    return record[0].decode(), int(record[1])
