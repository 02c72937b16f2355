"""Who is here: sessions join and leave mailboxes, instances say that they are alive."""

import asyncio
from dataclasses import dataclass
from typing import Any

from relay.store.batches import Gatherer, Line, Outcome
from relay.store.calls import Calls
from relay.store.keys import ALL_LANES
from relay.store.receipts import Receipts
from relay.store.scripts import script


@dataclass(frozen=True, slots=True)
class Joined:
    """What a session finds in its mailbox. `began` is the last entry that was there before it."""

    pending: int
    bytes: int
    oldest_ms: int | None
    began: str


@dataclass(frozen=True, slots=True)
class Seen:
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
    done: "asyncio.Future[Joined]"


@dataclass(slots=True)
class Departure:
    address: str
    session: str
    reason: str
    next_active_at_ms: int
    done: "asyncio.Future[bool]"


class Presence:
    """A session is here while its instance is alive and it has not left. Joins and leaves are gathered too."""

    def __init__(self, line: Line, calls: Calls, receipts: Receipts) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys
        self._receipts = receipts
        self._joins = Gatherer[Arrival](line, self._encode_join, self._joined, most=20)
        self._leaves = Gatherer[Departure](line, self._encode_leave, self._left, most=20)

    async def join(self, address: str, session: str, mode: str, lease_ms: int, next_active_at_ms: int | None) -> Joined:
        """Begins to serve a mailbox; an exclusive session takes over. Raises StoreUnavailable."""
        done: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        arrival = Arrival(address, session, mode, lease_ms, next_active_at_ms or 0, done)
        self._joins.put(self._keys.shard(address), arrival)
        return await done

    async def leave(self, address: str, session: str, reason: str, next_active_at_ms: int | None = None) -> bool:
        """Ends a session and gives back what it held. False if it had been replaced. Raises StoreUnavailable."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._leaves.put(self._keys.shard(address), Departure(address, session, reason, next_active_at_ms or 0, done))
        return await done

    def _encode_join(self, shard: int, arrivals: list[Arrival]) -> bytes:
        mailboxes = [
            [one.address, ALL_LANES, one.session, one.mode, one.lease_ms, one.next_active_at_ms] for one in arrivals
        ]
        return self._calls.for_mailboxes(script("join"), shard, [], mailboxes)

    def _joined(self, arrivals: list[Arrival], outcome: Outcome, _: bool) -> None:
        if isinstance(outcome, Exception):
            for one in arrivals:
                _resolve(one.done, outcome)
            return
        outbox_entry, receipts, joined = outcome
        self._receipts.forward(self._keys.shard(arrivals[0].address), outbox_entry, receipts)
        for one, (depth, size, oldest, began) in zip(arrivals, joined, strict=True):
            _resolve(one.done, Joined(depth, size, oldest if oldest >= 0 else None, began.decode()))

    def _encode_leave(self, shard: int, departures: list[Departure]) -> bytes:
        mailboxes = [[one.address, ALL_LANES, one.session, one.reason, one.next_active_at_ms] for one in departures]
        return self._calls.for_mailboxes(script("leave"), shard, [], mailboxes)

    def _left(self, departures: list[Departure], outcome: Outcome, _: bool) -> None:
        for n, one in enumerate(departures):
            _resolve(one.done, outcome if isinstance(outcome, Exception) else outcome[n] == b"left")

    # -- instances

    async def read_time(self) -> None:
        """Sets this process's clock by the store's."""
        clock = self._calls.clock
        asked_ms = clock.own_ms()
        seconds, microseconds = await self._line.command("TIME")
        clock.heard(int(seconds) * 1_000 + int(microseconds) // 1_000, asked_ms, clock.own_ms())

    async def renew(self, lease_ms: int) -> None:
        """Says in every shard that this instance is alive."""
        await self.read_time()
        until_ms = self._calls.clock.now_ms() + lease_ms
        await asyncio.gather(
            *(
                self._line.command("HSET", self._keys.instances(shard), self._calls.instance, until_ms)
                for shard in range(self._keys.shards)
            )
        )

    async def resign(self) -> None:
        """Takes this instance off the list, when it stops."""
        await asyncio.gather(
            *(
                self._line.command("HDEL", self._keys.instances(shard), self._calls.instance)
                for shard in range(self._keys.shards)
            )
        )

    async def instances(self, shard: int) -> dict[str, int]:
        """Until when each instance is believed to be alive."""
        flat = await self._line.command("HGETALL", self._keys.instances(shard))
        return {flat[n].decode(): int(flat[n + 1]) for n in range(0, len(flat), 2)}

    async def sessions(self, shard: int) -> dict[str, list[str]]:
        """Every session that is registered in a shard, by address."""
        flat = await self._line.command("HGETALL", self._keys.presence(shard))
        return {flat[n].decode(): list(session_modes(flat[n + 1])) for n in range(0, len(flat), 2)}

    async def forget_instance(self, shard: int, instance: str) -> None:
        await self._line.command("HDEL", self._keys.instances(shard), instance)

    # -- looking

    async def registered(self, shard: int, addresses: list[str]) -> list[dict[str, str]]:
        """The sessions that the store has for these addresses of a shard, each with its mode."""
        values = await self._line.command("HMGET", self._keys.presence(shard), *addresses)
        return [session_modes(value) for value in values]

    async def expect(self, address: str, next_active_at_ms: int) -> None:
        """Notes when a part-time agent says it will be back."""
        key = self._keys.seen(self._keys.shard(address))
        seen = (await self._line.command("HGET", key, address) or b"0").decode()
        await self._line.command("HSET", key, address, f"{seen.partition(chr(9))[0]}\t{next_active_at_ms}")

    async def seen(self, addresses: list[str]) -> dict[str, Seen]:
        return dict(zip(addresses, await asyncio.gather(*map(self._seen, addresses)), strict=True))

    async def _seen(self, address: str) -> Seen:
        shard = self._keys.shard(address)
        here, seen = await asyncio.gather(
            self._line.command("HGET", self._keys.presence(shard), address),
            self._line.command("HGET", self._keys.seen(shard), address),
        )
        online = await self._any_alive(shard, list(session_modes(here)))
        last_seen, _, next_active = (seen or b"").decode().partition("\t")
        now_ms = self._calls.clock.now_ms()
        last_seen_ms = now_ms if online else int(last_seen or 0) or None
        return Seen(online, last_seen_ms, int(next_active or 0) or None)

    async def _any_alive(self, shard: int, names: list[str]) -> bool:
        if not names:
            return False
        instances = [name.partition(".")[0] for name in names]
        deadlines = await self._line.command("HMGET", self._keys.instances(shard), *instances)
        return any(deadline and int(deadline) > self._calls.clock.now_ms() for deadline in deadlines)


def session_modes(value: bytes | None) -> dict[str, str]:
    """The sessions in a presence value: a line each, session and mode."""
    lines = [line.partition("\t") for line in (value or b"").decode().split("\n") if line]
    return {name: mode for name, _, mode in lines}


def _resolve(done: "asyncio.Future[Any]", outcome: Outcome) -> None:
    if done.done():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
