"""The dead-letter box: list, revive, drop."""

from dataclasses import dataclass
from typing import Any

from relay.protocol.columns import unescape
from relay.store.keys import ALL_LANES
from relay.store.record.head import Head
from relay.store.record.taken import came_at_ms
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

UNREADABLE = "unreadable"  # the reason for which a record is here that cannot be read; the same is in records.lua
LARGEST = 2**53  # number that every reader of JSON can hold
REVIVE_AT_ONCE = 20  # whole messages that one call moves


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    attempt: int
    at_ms: int
    holder: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed too often, with what happened to it. Of a record that cannot be read only that is known."""

    entry: str
    head: Head
    body: bytes
    attempts: int
    at_ms: int
    reason: str
    history: list[FailedAttempt]


class DeadLetters:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

    async def page(
        self, address: str, after: str, limit: int, with_body: bool = False
    ) -> tuple[str | None, list[DeadLetter]]:
        """The next page of the box: the entry to continue after, or None at the end, and the letters. A page of
        large ones is short."""
        packet = self._packet("dead", address, [after, limit, with_body])
        following, rows = await self._pipeline.reply(packet)
        return following.decode() or None, [_letter(address, entry.decode(), fields) for entry, fields in rows]

    def _packet(self, name: str, address: str, values: list[Any]) -> bytes:
        """A call whose only key besides the shard's is the dead-letter box."""
        keys = [self._keys.dead(address)]
        return self._encoder.packet(script(name), self._keys.shard(address), values, keys=keys)

    async def revive(self, address: str, entries: list[str], by: str = "") -> list[tuple[str, str]]:
        """Starts messages again with no failed attempts: a word of revive.lua and the new handle for each."""
        settings = self._encoder.settings
        results: list[tuple[str, str]] = []
        for start in range(0, len(entries), REVIVE_AT_ONCE):
            batch = entries[start : start + REVIVE_AT_ONCE]
            packet = self._encoder.packet(
                script("revive"),
                self._keys.shard(address),
                [
                    *(address, ALL_LANES, settings.mailbox_max_messages, settings.mailbox_max_bytes),
                    *(self._keys.ttl_ms, by, batch),
                ],
                keys=[*self._keys.boxes(address), self._keys.dead(address)],
            )
            for word, *handle in await self._pipeline.reply(packet, may_repeat=False, needs_replicas=True):
                results.append((word.decode(), handle[0].decode() if handle else ""))
        return results

    async def drop(self, address: str, entries: list[str], by: str = "") -> list[bool]:
        """Removes dead letters for good. False for each that is not there."""
        dropped: list[bool] = []
        for start in range(0, len(entries), REVIVE_AT_ONCE):
            values = [address, by, entries[start : start + REVIVE_AT_ONCE]]
            words = await self._pipeline.reply(self._packet("drop", address, values), needs_replicas=True)
            dropped += [word == b"dropped" for word in words]
        return dropped


def _letter(address: str, entry: str, fields: list[bytes]) -> DeadLetter:
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    body = named.get(b"body", b"")
    try:
        head = Head.parse(named[b"head"].decode()) if named[b"head"] else Head.unknown(address, len(body))
        letter = DeadLetter(
            entry,
            head,
            body,
            int(named[b"attempts"]),
            int(named[b"at_ms"]),
            unescape(named[b"reason"].decode()),
            [_failure(line) for line in named[b"history"].decode().split("\n") if line.count("\t") == 3],
        )
    except (ValueError, KeyError):
        letter = None
    if letter is None or max(head.bytes, letter.attempts, letter.at_ms) > LARGEST:
        return DeadLetter(entry, Head.unknown(address, len(body)), body, 0, came_at_ms(entry), UNREADABLE, [])
    return letter


def _failure(line: str) -> FailedAttempt:
    attempt, at_ms, holder, reason = line.split("\t")
    return FailedAttempt(int(attempt), int(at_ms), unescape(holder), unescape(reason))
