"""Replies to one client: counts those it still expects, and sends those of one turn together."""

import asyncio
from collections.abc import Callable
from typing import Any

from relay.errors import RelayError
from relay.protocol.frames import frame

MAX_EXPECTED = 5_000  # answers under way: a client that sends faster is read more slowly
MAX_EXPECTED_BYTES = 16 * 2**20  # the same, in the frames that wait for their answers


class AnswerBuffer:
    """Every message and settlement gets one reply. Those of one turn of the event loop share two frames at most."""

    __slots__ = (
        "_accepted",
        "_bytes",
        "_duplicates",
        "_ended",
        "_flush_asked",
        "_level",
        "_refusals",
        "_resume_at",
        "_send",
        "_waiter",
        "expected",
    )

    def __init__(self, send: Callable[[bytes], None], level: Callable[[], str]) -> None:
        self.expected = 0
        self._bytes = 0  # of frames that came since nothing was expected
        self._send = send
        self._level = level  # how durably the last exchange was stored
        self._accepted: list[str] = []
        self._duplicates: list[str] = []
        self._ended: list[dict[str, Any]] = []  # how those ended that are not in their mailbox any more
        self._refusals: list[dict[str, Any]] = []
        self._flush_asked = False
        self._waiter: asyncio.Future[None] | None = None  # who reads the client waits here while it floods us
        self._resume_at = 0  # when so few are expected

    def received(self, size: int) -> None:
        """A frame of this size has arrived."""
        self._bytes += size

    def expect(self, count: int) -> None:
        self.expected += count

    def done(self, count: int) -> None:
        self.expected -= count
        if self._waiter is not None and self.expected <= self._resume_at:
            self._waiter.set_result(None)
            self._waiter = None

    def has_capacity(self) -> bool:
        """Whether the client may be read on: not too many answers are under way."""
        if self.expected == 0:
            self._bytes = 0
        return self.expected <= MAX_EXPECTED and self._bytes <= MAX_EXPECTED_BYTES

    async def wait_for_capacity(self) -> None:
        """Returns when it may."""
        if not self.has_capacity():
            self._resume_at = 0 if self._bytes > MAX_EXPECTED_BYTES else MAX_EXPECTED // 2
            await self._wait()

    async def wait_for_rest(self) -> None:
        """Returns when nothing is expected any more."""
        while self.expected:
            self._resume_at = 0
            await self._wait()

    async def _wait(self) -> None:
        """Shielded: the reader of the client may wait for the same future, and be cancelled."""
        if self._waiter is None:
            self._waiter = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._waiter)

    def accept(self, id: str) -> None:
        """A message is stored."""
        self.done(1)
        self._accepted.append(id)
        self._ask_flush()

    def accept_again(self, id: str, ended: dict[str, Any] | None) -> None:
        """A message was stored already, and may have ended since."""
        self.done(1)
        self._duplicates.append(id)
        if ended is not None:
            self._ended.append(ended)
        self._ask_flush()

    def refuse(self, error: RelayError, **names: Any) -> None:
        """A message is not stored."""
        self.done(1)
        self._refusals.append({**names, **error.as_fields()})
        self._ask_flush()

    def refuse_entry(self, error: RelayError, entry: str) -> None:
        """An entry is not settled. The caller counts all its entries as done at once."""
        self._refusals.append({"entry": entry, **error.as_fields()})
        self._ask_flush()

    def _ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_asked = False
        if self._accepted or self._duplicates:
            ids, self._accepted = self._accepted, []
            duplicates, self._duplicates = self._duplicates, []
            ended, self._ended = self._ended, []
            ends = {"ended": ended} if duplicates else {}
            self._send(frame("accepted", ids=ids, duplicate_ids=duplicates, **ends, durability=self._level()))
        if self._refusals:
            refusals, self._refusals = self._refusals, []
            self._send(frame("refused", refusals=refusals))
