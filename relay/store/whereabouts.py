"""Whereabouts: where a message is, and what is in a mailbox, without touching either."""

from dataclasses import dataclass

from relay.protocol import escape
from relay.store.batches import Line
from relay.store.calls import Calls
from relay.store.keys import ALL_LANES, pair_key
from relay.store.scripts import script


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """`at_ms` is when it was accepted, or when it ended."""

    state: str  # queued, held, delayed, acked, dead, expired or cancelled
    entry: str
    attempt: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as a look into its mailbox shows it."""

    entry: str
    state: str
    attempt: int
    holder: str
    head: str
    opts: str
    body: bytes


def message_key(sender: str, recipient: str, message_id: str) -> str:
    """How the store names a message: tenant, to, from, id."""
    return f"{pair_key(sender, recipient)}\t{message_id}"


class Looks:
    def __init__(self, line: Line, calls: Calls) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys

    def _packet(self, name: str, address: str, values: list[object]) -> bytes:
        return self._calls.packet(
            script(name),
            self._keys.shard(address),
            values,
            more_keys=len(ALL_LANES),
            more_chunk=self._keys.box_chunk(address, ALL_LANES),
        )

    async def where(self, sender: str, recipient: str, message_id: str) -> Whereabouts | None:
        """None if nothing is known of it, or not any more."""
        reply = await self._line.reply(self._packet("where", recipient, [message_key(sender, recipient, message_id)]))
        if reply[0] == b"unknown":
            return None
        return Whereabouts(reply[0].decode(), reply[1].decode(), reply[2], reply[3])

    async def cancel(self, sender: str, recipient: str, message_id: str) -> str:
        """Takes a message back; the word is cancel.lua's."""
        key = message_key(sender, recipient, message_id)
        word: bytes = await self._line.reply(self._packet("cancel", recipient, [recipient, key]))
        return word.decode()

    async def peek(
        self, address: str, cursor: tuple[int, str], limit: int, state: str, kind: str | None
    ) -> tuple[tuple[int, str] | None, list[Seen]]:
        """A page of a mailbox, highest priority first: where to go on, or None at the end, and what is there."""
        wanted = escape(kind) if kind is not None else False
        packet = self._packet("peek", address, [cursor[0], cursor[1], limit, state, wanted])
        lane, after, rows = await self._line.reply(packet)
        seen = [
            Seen(entry.decode(), its_state.decode(), attempt, holder.decode(), head.decode(), opts.decode(), body)
            for entry, its_state, attempt, holder, head, opts, body in rows
        ]
        return ((lane, after.decode()) if lane else None), seen
