"""Settling: tells the relay that a message is done, failed, released, answered or still in work."""

import asyncio
from collections.abc import Iterable
from typing import Any

from relay.client import payloads
from relay.client.connection.frames import frame
from relay.client.connection.link import Output

MAX_ENTRIES = 1_000


class Settling:
    """An entry can only be settled in the session that delivered it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._acks: list[str] = []
        self._flush_asked = False

    def session_began(self) -> None:
        self._acks.clear()

    def ack(self, entry: str) -> None:
        self._acks.append(entry)
        if not self._flush_asked:
            self._flush_asked = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """The acks of one turn share a frame."""
        self._flush_asked = False
        acks, self._acks = self._acks, []
        self._say("ack", acks)

    def nack(self, entry: str, why: str, retry: bool, delay_s: float | None) -> None:
        delay = {} if delay_s is None else {"delay_s": delay_s}
        self._say("nack", [entry], reason=why[:1_000], retry=retry, **delay)

    def release(self, entry: str) -> None:
        self._say("release", [entry])

    def touch(self, entries: Iterable[str], extend_s: float) -> None:
        self._say("touch", list(entries), extend_s=extend_s)

    def reply(self, entry: str, payload: bytes, more: bool = False) -> None:
        fields = {"more": True} if more else {}
        self._output.say(frame("reply", entry=entry, payload=payloads.as_raw(payload), **fields))

    def _say(self, op: str, entries: list[str], **fields: Any) -> None:
        for start in range(0, len(entries), MAX_ENTRIES):
            self._output.say(frame(op, entries=entries[start : start + MAX_ENTRIES], **fields))
