"""Holds: who holds the messages of a mailbox, and for how long; and whether instances hear their wakes."""

import secrets
from dataclasses import dataclass
from typing import Any

from relay.protocol.columns import unescape
from relay.store import readable
from relay.store.keys import ALL_LANES
from relay.store.mailbox.overdue import read_due
from relay.store.redis.encoder import ScriptEncoder, keyed_packet
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

MAILBOXES_AT_ONCE = 50
MOST_HOLDERS = 20  # of a lane
KEEP_ANSWER_MS = 4 * 3_600_000  # longer than any two rounds of the observer are apart
LATE_AT_ONCE = 20  # holds of a shard whose time is over


@dataclass(frozen=True, slots=True)
class SessionHolds:
    """What one session or lease holds of a mailbox."""

    session: str
    count: int
    idle_s: float  # since it last took something
    oldest_entry: str
    oldest_s: float  # for how long it has held that


@dataclass(frozen=True, slots=True)
class LateHold:
    """A hold whose time is over and that nobody has ended yet."""

    address: str
    entry: str
    until_ms: int


class Holds:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

    async def of(self, addresses: list[str]) -> dict[str, list[SessionHolds]]:
        """The holders of messages in these mailboxes."""
        by_shard: dict[int, list[str]] = {}
        for address in addresses:
            by_shard.setdefault(self._keys.shard(address), []).append(address)
        holds: dict[str, list[SessionHolds]] = {}
        for shard, names in by_shard.items():
            for start in range(0, len(names), MAILBOXES_AT_ONCE):
                some = names[start : start + MAILBOXES_AT_ONCE]
                rows = await self._pipeline.reply(self._packet(shard, some))
                holds |= {address: _by_session(row) for address, row in zip(some, rows, strict=True)}
        return holds

    def _packet(self, shard: int, addresses: list[str]) -> bytes:
        mailboxes: list[list[Any]] = [[address, ALL_LANES] for address in addresses]
        return self._encoder.for_mailboxes(script("holds"), shard, [MOST_HOLDERS], mailboxes)

    async def late(self, shard: int, now_ms: int) -> list[LateHold]:
        """Holds that should have ended before now, the longest overdue first."""
        key = self._keys.due(shard)
        flat = await self._pipeline.command(
            "ZRANGE", key, "-inf", now_ms, "BYSCORE", "LIMIT", 0, LATE_AT_ONCE, "WITHSCORES"
        )

        def read(record: tuple[bytes, bytes]) -> tuple[str, LateHold]:
            kind, address, entry = read_due(record[0])
            return kind, LateHold(address, entry, readable.score(record[1]))

        return [late for kind, late in readable.readable(key, readable.pairs(flat), read) if kind == "hold"]

    async def probe(self, shard: int, instance: str) -> str:
        """Tells an instance something on the way of wakes. Returns what it should answer."""
        token = secrets.token_hex(4)
        await self._pipeline.reply(self._encoder.packet(script("probe"), shard, [instance, token]))
        return token

    async def answer_probe(self, token: str) -> None:
        """This instance has heard."""
        key = self._keys.probe(self._encoder.instance)
        await self._pipeline.reply(keyed_packet(script("keep"), key, KEEP_ANSWER_MS, token))

    async def answered(self, instance: str) -> str:
        """The last answer of an instance to a probe; empty if there was none for long."""
        answer: bytes = await self._pipeline.command("GET", self._keys.probe(instance)) or b""
        return readable.shown(answer)


def _by_session(flat: list[Any]) -> list[SessionHolds]:
    """One for each, over the lanes of its mailbox."""
    found: dict[str, SessionHolds] = {}
    for n in range(0, len(flat), 5):
        session, count, idle_ms, entry, held_ms = flat[n : n + 5]
        name = unescape(readable.shown(session))
        here = SessionHolds(name, count, idle_ms / 1_000, entry.decode(), held_ms / 1_000)
        found[name] = _together(found[name], here) if name in found else here
    return list(found.values())


def _together(one: SessionHolds, other: SessionHolds) -> SessionHolds:
    older = one if one.oldest_s >= other.oldest_s else other
    idle_s = min(one.idle_s, other.idle_s)
    return SessionHolds(one.session, one.count + other.count, idle_s, older.oldest_entry, older.oldest_s)
