"""Wakes: parses what the scripts publish on an instance's channel."""

from typing import Any

import msgspec
from msgspec import Struct

from relay.store.record.taken import Taken

_decode = msgspec.msgpack.Decoder(list[Any]).decode


class Push(Struct, frozen=True):
    """Messages of which accept_plain.lua has made a session the holder."""

    session: str
    total: int  # how many have been pushed to it by now; see take.lua for where this starts
    rows: list[Taken]

    @property
    def address(self) -> str:
        return "/".join(self.rows[0].head.split("\t", 2)[:2])


OutboxPlace = tuple[int, str]  # of an outbox entry: its shard and its id


class PushedReceipts(Struct, frozen=True):
    """Receipts that ack_plain.lua has put into a shard's outbox for the session that sent the messages."""

    session: str
    shard: int
    outbox_entry: str
    sender: str
    count: int
    receipts: str  # as they are stored: receipt_lines.py

    @property
    def place(self) -> OutboxPlace:
        return self.shard, self.outbox_entry


class Wakes(Struct, frozen=True):
    """One publication. Pushes come before the lines about the same mailbox."""

    lines: list[list[str]]  # a word, and what it is about
    pushes: list[Push]
    receipts: list[PushedReceipts]


def parse_wakes(shard: int, data: bytes) -> Wakes:
    """Receipts after a 1, or lines, and behind them messages after a 0."""
    if data.startswith(b"\1"):
        return Wakes([], [], _receipts(shard, _decode(data[1:])))
    text, has_pushes, packed = data.partition(b"\0")
    return Wakes(_lines(text), _pushes(_decode(packed)) if has_pushes else [], [])


def _lines(text: bytes) -> list[list[str]]:
    return [line.split("\t") for line in text.decode().split("\n")] if text else []


def _pushes(flat: list[Any]) -> list[Push]:
    """Parses session, total, count, and for each message: handle, head, opts, body."""
    pushes = []
    n = 0
    while n < len(flat):
        session, total, count = flat[n : n + 3]
        n += 3
        rows = [
            Taken(flat[at], 1, flat[at + 1], flat[at + 2], flat[at + 3].encode()) for at in range(n, n + 4 * count, 4)
        ]
        n += 4 * count
        pushes.append(Push(session, total, rows))
    return pushes


def _receipts(shard: int, flat: list[Any]) -> list[PushedReceipts]:
    """session, outbox entry, `sender \\t count \\t receipts`, and so on."""
    pushed = []
    for session, outbox_entry, receipts in zip(*[iter(flat)] * 3, strict=True):
        sender, count, texts = receipts.split("\t", 2)
        pushed.append(PushedReceipts(session, shard, outbox_entry, sender, int(count), texts))
    return pushed
