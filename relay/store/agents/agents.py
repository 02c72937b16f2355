"""Agents: registration, blocks, and the state of a thread between two of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import orjson

from relay.auth import same_key
from relay.errors import Malformed, StoreUnavailable
from relay.protocol.address import tenant_of
from relay.protocol.columns import escape
from relay.store import readable
from relay.store.agents.pauses import Pause
from relay.store.agents.presence import seen_times
from relay.store.agents.rates import LIST
from relay.store.keys import ALL_LANES, pair_key
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import Command, CommandPipeline, Outcome
from relay.store.redis.scripts import script
from relay.store.replies.receipts import Receipts

MAX_BLOCKS = 1_000
MAX_REMEMBERED = 100_000  # agents that are known to be known; forgetting one costs a call
REMEMBERED_S = 60.0  # and for so long, so that an agent that was removed or wiped is registered again
MAX_WALKS = 4  # looks through mailboxes, a page after the other, that an instance makes at a time
DESCRIBE_AT_ONCE = 50  # agents of a shard in one call: about a millisecond of Redis


@dataclass(frozen=True, slots=True)
class ThreadState:
    """One direction of a thread: all messages up to settled_seq are settled."""

    last_seq: int
    settled_seq: int
    pending: int

    def as_fields(self) -> dict[str, int]:
        return {"last_seq": self.last_seq, "settled_seq": self.settled_seq}


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Who serves a mailbox, or sends for its agent."""

    name: str
    mode: str  # exclusive, shared, puller or sender
    window: int | None  # how many unconfirmed messages it will hold, if it has said
    holds: int
    alive: bool  # whether its instance is believed to be


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
    held: int = 0
    delayed: int = 0
    why: str = ""  # why what waits is not delivered, in the words of states.lua; empty if nothing waits
    pause: Pause | None = None
    sessions: tuple[SessionInfo, ...] = ()

    @property
    def waiting(self) -> int:
        return max(0, self.depth - self.held - self.delayed)


def _description(address: str, row: list[Any]) -> Description:
    registration, depth, size, oldest, online, seen, caps, dead, held, delayed, why, pause, whose, sessions = row
    last_seen_ms, next_active_at_ms = seen_times(seen)
    max_messages, _, max_bytes = caps.partition(b"\t")
    return Description(
        address,
        _registration_shown(registration),
        depth,
        size,
        oldest if oldest >= 0 else None,
        online == 1,
        last_seen_ms,
        next_active_at_ms,
        readable.whole(max_messages) or None,
        readable.whole(max_bytes) or None,
        dead,
        held,
        delayed,
        why.decode(),
        Pause.parse(pause, "agent" if whose == b"agent" else "tenant") if pause else None,
        tuple(_session(*sessions[n : n + 5]) for n in range(0, len(sessions), 5)),
    )


def _registration_shown(value: bytes) -> dict[str, Any] | None:
    """None if there is none. One that cannot be read shows nothing but that there is one."""
    try:
        return _read_registration(value) if value else None
    except readable.UNREADABLE:
        return {}


def _read_registration(value: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    registration = orjson.loads(value)
    if not isinstance(registration, dict):
        raise TypeError
    return registration


def _session(name: bytes, mode: bytes, window: int, holds: int, alive: int) -> SessionInfo:
    return SessionInfo(readable.shown(name), readable.shown(mode), window if window >= 0 else None, holds, alive == 1)


Pay = Callable[[int], Awaitable[None]]


class Agents:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder, receipts: Receipts) -> None:
        self._pipeline = pipeline
        self._receipts = receipts
        self._encoder = encoder
        self._keys = encoder.keys
        self._known_until: dict[str, float] = {}  # agents that need not be made known again before that time
        self._walks = asyncio.Semaphore(MAX_WALKS)

    async def registration(self, address: str) -> dict[str, Any] | None:
        """The registration of an agent, or None. Raises StoreUnavailable, also if there is one that nobody can read."""
        key = self._keys.agents(self._keys.shard(address))
        value = await self._pipeline.command("HGET", key, address)
        found = readable.read_or(key, value, _read_registration, None)
        if value and found is None:
            raise StoreUnavailable(f"the registration of {address} cannot be read; relay doctor tells where it is")
        return found

    async def register(self, address: str, **changes: Any) -> dict[str, Any]:
        """Makes an agent known, or changes what is known of it. Returns the whole registration."""
        shard = self._keys.shard(address)
        now_ms = self._encoder.clock.now_ms()
        packet = self._encoder.packet(
            script("register"), shard, [address, orjson.dumps(changes).decode(), f'{{"registered_at_ms":{now_ms}}}']
        )
        registration: dict[str, Any] = orjson.loads(await self._pipeline.reply(packet, needs_replicas=True))
        return registration

    async def is_key_of(self, key: str, address: str, new_agent: Callable[[], None] = lambda: None) -> bool:
        """Whether an agent may authenticate with a key. An unknown agent of an open tenant may with the first one.

        `new_agent` is called before one is registered, and may raise.
        """
        known = await self.registration(address)
        if known is None and self._encoder.settings.is_open(tenant_of(address)):
            new_agent()
            known = await self._claim(address, key)
        return known is not None and same_key(known.get("key", ""), key)

    async def _claim(self, address: str, key: str) -> dict[str, Any] | None:
        """Registers a key at a free address: the first wins. None if the address has data, perhaps of another agent."""
        registration = orjson.dumps({"key": key, "registered_at_ms": self._encoder.clock.now_ms()}).decode()
        packet = self._with_streams("claim", address, [address, registration])
        value = await self._pipeline.reply(packet, needs_replicas=True)
        return orjson.loads(value) if value else None

    async def keys_of(self, shard: int, addresses: list[str]) -> list[str | None]:
        """The keys that these agents of a shard are registered with."""
        key = self._keys.agents(shard)
        values = await self._pipeline.command("HMGET", key, *addresses)
        nothing: dict[str, Any] = {}
        return [readable.read_or(key, value, _read_registration, nothing).get("key") for value in values]

    def appear(self, address: str) -> None:
        """An agent has proved who it is, so it is known from now on. Nobody waits for this, and it is rarely said."""
        now = time.monotonic()
        if now < self._known_until.get(address, 0.0):
            return
        if len(self._known_until) >= MAX_REMEMBERED:
            self._known_until.clear()
        self._known_until[address] = now + REMEMBERED_S

        def appeared(outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                self._known_until.pop(address, None)

        self._pipeline.submit(
            Command(self._encoder.packet(script("appear"), self._keys.shard(address), [address]), appeared)
        )

    async def register_card(self, address: str, card: bytes) -> None:
        """Keeps the agent's card, as it was written."""
        await self.register(address, card=card.decode())

    async def describe(self, addresses: list[str], viewer: str = "", most_sessions: int = 0) -> list[Description]:
        """Describes each agent, registered or not. A blocked viewer sees no sign of the block."""
        by_shard: dict[int, list[str]] = {}
        for address in addresses:
            by_shard.setdefault(self._keys.shard(address), []).append(address)
        pages = await asyncio.gather(
            *(
                self._describe(shard, names[start : start + DESCRIBE_AT_ONCE], viewer, most_sessions)
                for shard, names in by_shard.items()
                for start in range(0, len(names), DESCRIBE_AT_ONCE)
            )
        )
        by_address = {described.address: described for page in pages for described in page}
        return [by_address[address] for address in addresses]

    async def _describe(self, shard: int, addresses: list[str], viewer: str, most_sessions: int) -> list[Description]:
        packet = self._encoder.for_mailboxes(
            script("describe"),
            shard,
            [viewer, most_sessions],
            [[address, ALL_LANES] for address in addresses],
            with_dead=True,
            keys=self._keys.state_keys(shard),
        )
        rows = await self._pipeline.reply(packet)
        return [_description(address, row) for address, row in zip(addresses, rows, strict=True)]

    async def remove(self, address: str, force: bool, by: str = "") -> str:
        """Forgets an agent; the word is remove.lua's."""
        packet = self._with_streams("remove", address, [address, ALL_LANES, force, by])
        while True:
            outbox_entry, fields, word = await self._pipeline.reply(packet, needs_replicas=True)
            self._receipts.forward(self._keys.shard(address), outbox_entry, fields)
            if word != b"more":
                return str(word.decode())

    def _with_streams(self, name: str, address: str, values: list[Any]) -> bytes:
        """A call on everything that waits for an agent: its lanes, its dead letters, its receipts."""
        names = [self._keys.dead(address), self._keys.receipts(address)]
        return self._encoder.packet(
            script(name),
            self._keys.shard(address),
            values,
            keys=self._keys.boxes(address) + names,
        )

    async def blocked(self, address: str) -> list[str]:
        value = await self._pipeline.command("HGET", self._keys.blocks(self._keys.shard(address)), address)
        return sorted(value.decode().split("\n")) if value else []

    async def change_blocks(self, address: str, add: list[str], remove: list[str]) -> list[str]:
        """Blocks and unblocks senders. Returns all blocked now; raises Malformed if too many."""
        packet = self._encoder.packet(script("block"), self._keys.shard(address), [address, MAX_BLOCKS, add, remove])
        word, value = await self._pipeline.reply(packet, needs_replicas=True)
        if word == b"too_many":
            raise Malformed(f"an agent can block at most {MAX_BLOCKS} others")
        return sorted(value.decode().split("\n")) if value else []

    async def thread_state(
        self, sender: str, recipient: str, thread: str, *, for_sender: bool = True, pay: Pay | None = None
    ) -> ThreadState:
        """What was accepted and what is settled of a thread, for the sender or the recipient.

        Messages without a thread are looked for in the mailbox; `pay` is for each further page of it, and may raise."""
        key = f"{pair_key(sender, recipient)}\t{escape(thread)}"
        async with nullcontext() if thread else self._walks:
            return await self._thread_state(key, recipient, for_sender, pay)

    async def _thread_state(self, key: str, recipient: str, for_sender: bool, pay: Pay | None) -> ThreadState:
        lane, after, pages = 1, "", 0
        last, pending, firsts = 0, 0, []
        while lane:
            if pages and pay is not None:
                await pay(LIST)
            pages += 1
            packet = self._encoder.packet(
                script("thread"),
                self._keys.shard(recipient),
                [key, lane, after, for_sender],
                keys=self._keys.boxes(recipient),
            )
            last, first, waiting, lane, behind = await self._pipeline.reply(packet)
            after = behind.decode()
            pending += waiting
            firsts += [first] if first else []
        return ThreadState(last, min(firsts) - 1 if firsts else last, pending)
