"""Agents: registration, blocks, and what two of them have of a thread."""

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson

from relay.errors import Malformed
from relay.protocol import escape
from relay.store.batches import Line
from relay.store.calls import Calls
from relay.store.keys import ALL_LANES, as_chunk, pair_key
from relay.store.receipts import Receipts
from relay.store.scripts import script

MAX_BLOCKS = 1_000


@dataclass(frozen=True, slots=True)
class ThreadState:
    """One direction of a thread: settled_seq is the number up to which nothing waits any more."""

    last_seq: int
    settled_seq: int
    pending: int

    def as_fields(self) -> dict[str, int]:
        return {"last_seq": self.last_seq, "settled_seq": self.settled_seq}


@dataclass(frozen=True, slots=True)
class Description:
    """An agent and its mailbox as an operator sees them."""

    address: str
    registration: dict[str, Any] | None
    depth: int
    bytes: int
    oldest_ms: int | None
    online: bool
    last_seen_ms: int | None
    next_active_at_ms: int | None
    max_messages: int | None  # caps of its own, if it has any
    max_bytes: int | None
    dead: int


def _description(address: str, row: list[Any]) -> Description:
    registration, depth, size, oldest, online, seen, caps, dead = row
    last_seen, _, next_active = seen.decode().partition("\t")
    max_messages, _, max_bytes = caps.decode().partition("\t")
    return Description(
        address,
        orjson.loads(registration) if registration else None,
        depth,
        size,
        oldest if oldest >= 0 else None,
        online == 1,
        int(last_seen or 0) or None,
        int(next_active or 0) or None,
        int(max_messages) if max_messages else None,
        int(max_bytes) if max_bytes else None,
        dead,
    )


class Agents:
    def __init__(self, line: Line, calls: Calls, receipts: Receipts) -> None:
        self._line = line
        self._receipts = receipts
        self._calls = calls
        self._keys = calls.keys

    async def registration(self, address: str) -> dict[str, Any] | None:
        """What is known of an agent, or None."""
        value = await self._line.command("HGET", self._keys.agents(self._keys.shard(address)), address)
        return orjson.loads(value) if value else None

    async def register(self, address: str, **changes: Any) -> dict[str, Any]:
        """Makes an agent known, or changes what is known of it. Returns the whole registration."""
        shard = self._keys.shard(address)
        now_ms = self._calls.clock.now_ms()
        packet = self._calls.packet(
            script("register"), shard, [address, orjson.dumps(changes).decode(), f'{{"registered_at_ms":{now_ms}}}']
        )
        registration: dict[str, Any] = orjson.loads(await self._line.reply(packet))
        return registration

    async def claim(self, address: str, key: str) -> dict[str, Any] | None:
        """Registers an agent by first use of its key. Returns what is registered then: the first wins."""
        registration = orjson.dumps({"key": key, "registered_at_ms": self._calls.clock.now_ms()})
        await self._line.command("HSETNX", self._keys.agents(self._keys.shard(address)), address, registration)
        return await self.registration(address)

    async def register_card(self, address: str, card: bytes) -> None:
        """Keeps the agent's card, as it was written."""
        await self.register(address, card=card.decode())

    async def set_caps(self, address: str, max_messages: int | None, max_bytes: int | None) -> None:
        """Caps of its own for one mailbox; without either, the relay's count again."""
        key, settings = self._keys.caps(self._keys.shard(address)), self._calls.settings
        if max_messages is None and max_bytes is None:
            await self._line.command("HDEL", key, address)
            return
        messages = settings.mailbox_max_messages if max_messages is None else max_messages
        size = settings.mailbox_max_bytes if max_bytes is None else max_bytes
        await self._line.command("HSET", key, address, f"{messages}\t{size}")

    async def describe(self, addresses: list[str]) -> list[Description]:
        """What there is to say of each agent, known or not."""
        by_shard: dict[int, list[str]] = {}
        for address in addresses:
            by_shard.setdefault(self._keys.shard(address), []).append(address)
        found = await asyncio.gather(*(self._describe(shard, some) for shard, some in by_shard.items()))
        by_address = {one.address: one for some in found for one in some}
        return [by_address[address] for address in addresses]

    async def _describe(self, shard: int, addresses: list[str]) -> list[Description]:
        packet = self._calls.for_mailboxes(
            script("describe"), shard, [], [[address, ALL_LANES] for address in addresses], with_dead=True
        )
        rows = await self._line.reply(packet)
        return [_description(address, row) for address, row in zip(addresses, rows, strict=True)]

    async def names(self, shard: int, tenant: str) -> list[str]:
        """The agents of a tenant in one shard that are registered or have mail, sorted."""
        known, waiting = await asyncio.gather(
            self._line.command("HKEYS", self._keys.agents(shard)),
            self._line.command("ZRANGE", self._keys.waiting(shard), 0, -1),
        )
        prefix = f"{tenant}/"
        return sorted({name.decode() for name in known + waiting if name.decode().startswith(prefix)})

    async def remove(self, address: str, force: bool) -> str:
        """Forgets an agent; the word is remove.lua's."""
        names = [self._keys.dead(address), self._keys.receipts(address)]
        packet = self._calls.packet(
            script("remove"),
            self._keys.shard(address),
            [address, ALL_LANES, force],
            more_keys=len(ALL_LANES) + 2,
            more_chunk=self._keys.box_chunk(address, ALL_LANES) + as_chunk(names),
        )
        while True:
            outbox_entry, fields, word = await self._line.reply(packet)
            self._receipts.forward(self._keys.shard(address), outbox_entry, fields)
            if word != b"more":
                return str(word.decode())

    async def blocked(self, address: str) -> list[str]:
        value = await self._line.command("HGET", self._keys.blocks(self._keys.shard(address)), address)
        return sorted(value.decode().split("\n")) if value else []

    async def change_blocks(self, address: str, add: list[str], remove: list[str]) -> list[str]:
        """Blocks and unblocks senders. Returns all blocked now; raises Malformed if too many."""
        packet = self._calls.packet(script("block"), self._keys.shard(address), [address, MAX_BLOCKS, add, remove])
        word, value = await self._line.reply(packet)
        if word == b"too_many":
            raise Malformed(f"an agent can block at most {MAX_BLOCKS} others")
        return sorted(value.decode().split("\n")) if value else []

    async def thread_state(self, sender: str, recipient: str, thread: str) -> ThreadState:
        """What of a thread was accepted and what of it is settled."""
        key = f"{pair_key(sender, recipient)}\t{escape(thread)}"
        packet = self._calls.packet(
            script("thread"),
            self._keys.shard(recipient),
            [key],
            more_keys=len(ALL_LANES),
            more_chunk=self._keys.box_chunk(recipient, ALL_LANES),
        )
        return ThreadState(*await self._line.reply(packet))
