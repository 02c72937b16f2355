"""The dead-letter box: what is in it, and the ways out."""

from dataclasses import dataclass
from typing import Any

from relay.store.batches import Line
from relay.store.calls import Calls
from relay.store.events import unescape
from relay.store.keys import ALL_LANES
from relay.store.scripts import script

REVIVE_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed too often, with what happened to it."""

    entry: str
    head: str
    body: bytes
    attempts: int
    at_ms: int
    reason: str
    history: list[dict[str, Any]]


class DeadLetters:
    def __init__(self, line: Line, calls: Calls) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys

    async def page(self, address: str, after: str, limit: int) -> list[DeadLetter]:
        start = f"({after}" if after else "-"
        rows = await self._line.command("XRANGE", self._keys.dead(address), start, "+", "COUNT", limit)
        return [_letter(entry.decode(), fields) for entry, fields in rows]

    async def revive(self, address: str, entries: list[str]) -> list[tuple[str, str]]:
        """Starts messages again with no failed attempts: a word of revive.lua and the new handle for each."""
        settings = self._calls.settings
        results: list[tuple[str, str]] = []
        for start in range(0, len(entries), REVIVE_AT_ONCE):
            some = entries[start : start + REVIVE_AT_ONCE]
            packet = self._calls.packet(
                script("revive"),
                self._keys.shard(address),
                [
                    *(address, ALL_LANES, settings.mailbox_max_messages, settings.mailbox_max_bytes),
                    *(self._keys.ttl_ms, some),
                ],
                more_keys=len(ALL_LANES) + 1,
                more_chunk=self._keys.box_chunk(address, ALL_LANES) + self._keys.dead_chunk(address),
            )
            for word, *handle in await self._line.reply(packet, may_repeat=False):
                results.append((word.decode(), handle[0].decode() if handle else ""))
        return results

    async def drop(self, address: str, entry: str) -> bool:
        """Removes a dead letter for good. False if there is none."""
        removed: int = await self._line.command("XDEL", self._keys.dead(address), entry)
        return removed == 1


def _letter(entry: str, fields: list[bytes]) -> DeadLetter:
    named = {fields[n].decode(): fields[n + 1] for n in range(0, len(fields), 2)}
    return DeadLetter(
        entry,
        named["head"].decode(),
        named["body"],
        int(named["attempts"]),
        int(named["at_ms"]),
        unescape(named["reason"].decode()),
        [_failure(line) for line in named["history"].decode().split("\n") if line],
    )


def _failure(line: str) -> dict[str, Any]:
    attempt, at_ms, who, reason = line.split("\t")
    return {"attempt": int(attempt), "at_ms": int(at_ms), "holder": who, "reason": unescape(reason)}
