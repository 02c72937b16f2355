"""Lookup: where a message is, and what is in a mailbox. Only cancel changes anything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relay.protocol.columns import escape, unescape
from relay.protocol.entry import parse_entry
from relay.store import readable
from relay.store.keys import GROUP, pair_key
from relay.store.record.head import Head
from relay.store.record.taken import came_at_ms
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a message that is in its mailbox is not delivered yet."""

    why: str  # in the words of states.lua
    until_ms: int | None = None  # when its delay or its hold ends, if a time is set
    holder: str = ""
    held_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """`at_ms` is when it was accepted, or when it ended."""

    state: str  # queued, held, delayed, acked, dead, expired or cancelled
    entry: str
    attempt: int
    at_ms: int
    waiting: Waiting | None = None  # None when it has ended
    max_attempts: int = 0  # 0: no limit, or it has ended


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message in the list of a mailbox. Of a record that cannot be read only the entry is known."""

    entry: str
    state: str
    attempt: int
    waiting: Waiting
    head: Head
    seq: int
    accepted_at_ms: int
    expires_at_ms: int
    body: bytes


def message_key(sender: str, recipient: str, message_id: str) -> str:
    """How the store names a message: tenant, to, from, id."""
    return f"{pair_key(sender, recipient)}\t{message_id}"


class MessageLookup:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

    def _packet(self, name: str, address: str, values: Sequence[object], keys: Sequence[str] = ()) -> bytes:
        return self._encoder.packet(
            script(name),
            self._keys.shard(address),
            values,
            keys=[*keys, *self._keys.boxes(address)],
        )

    async def holder(self, recipient: str, entry: str) -> tuple[str, int] | None:
        """The holder of a held entry, and since when; None if it is no longer held."""
        parsed = parse_entry(entry)
        assert parsed is not None
        stream_id, priority = parsed
        box = self._keys.box(recipient, priority)
        rows = await self._pipeline.command("XPENDING", box, GROUP, stream_id, stream_id, 1)
        if not rows:
            return None
        _, consumer, idle_ms, _ = rows[0]
        return unescape(readable.shown(consumer)), self._encoder.clock.now_ms() - idle_ms

    async def stored(self, recipient: str, entries: Iterable[str]) -> dict[str, tuple[str, bytes]]:
        """Head and body of those entries that are in the mailbox."""
        found: dict[str, tuple[str, bytes]] = {}
        for entry in entries:
            parsed = parse_entry(entry)
            if parsed is not None:
                box = self._keys.box(recipient, parsed[1])
                for _, fields in await self._pipeline.command("XRANGE", box, parsed[0], parsed[0]):
                    found[entry] = fields[1].decode(), fields[5]
        return found

    async def where(self, sender: str, recipient: str, message_id: str) -> MessageStatus | None:
        """None if nothing is known of it, or not any more."""
        key = message_key(sender, recipient, message_id)
        reply = await self._pipeline.reply(self._packet("where", recipient, [key], self._state_keys(recipient)))
        if reply[0] == b"unknown":
            return None
        state, entry, attempt, at_ms, *rest = reply
        status = MessageStatus(state.decode(), entry.decode(), attempt, at_ms)
        return replace(status, waiting=_waiting(*rest[:4]), max_attempts=rest[4]) if rest else status

    def _state_keys(self, address: str) -> list[str]:
        return self._keys.state_keys(self._keys.shard(address))

    async def cancel(self, sender: str, recipient: str, message_id: str, by: str = "") -> str:
        """Takes a message back; the word is cancel.lua's."""
        key = message_key(sender, recipient, message_id)
        packet = self._packet("cancel", recipient, [recipient, key, by])
        word: bytes = await self._pipeline.reply(packet, needs_replicas=True)
        return word.decode()

    async def peek(
        self,
        address: str,
        cursor: tuple[int, str],
        limit: int,
        state: str,
        kind: str | None,
        with_body: bool = True,
        sender: str | None = None,
    ) -> tuple[tuple[int, str] | None, list[PeekedMessage]]:
        """A page of a mailbox, highest priority first: where to go on, or None at the end, and what is there. A page of
        large messages is short."""
        wanted = (escape(kind) if kind is not None else False, sender.partition("/")[2] if sender else False)
        values = [address, *cursor, limit, state, *wanted, with_body]
        packet = self._packet("peek", address, values, self._state_keys(address))
        lane, after, rows = await self._pipeline.reply(packet)
        return ((lane, after.decode()) if lane else None), [_peeked(address, *row) for row in rows]


def _waiting(why: bytes, until_ms: int, holder: bytes, held_since_ms: int) -> Waiting:
    return Waiting(why.decode(), _time(until_ms), unescape(readable.shown(holder)), _time(held_since_ms))


def _time(at_ms: int) -> int | None:
    return at_ms if at_ms >= 0 else None


def _peeked(address: str, entry: bytes, state: bytes, attempt: int, *rest: Any) -> PeekedMessage:
    *waiting, head, opts, body = rest
    seq, accepted_at_ms, expires_at_ms, *_ = opts.split(b"\t") if head else (0, came_at_ms(entry.decode()), 0)
    return PeekedMessage(
        entry.decode(),
        state.decode(),
        attempt,
        _waiting(*waiting),
        Head.parse(head.decode()) if head else Head.unknown(address),
        int(seq),
        int(accepted_at_ms),
        int(expires_at_ms),
        body,
    )
