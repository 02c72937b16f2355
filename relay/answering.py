"""Answers to one client: what it is owed, and what goes out together at the end of a turn."""

import asyncio
from collections.abc import Callable
from typing import Any

from relay.errors import RelayError
from relay.protocol import frame

MAX_OWED = 5_000  # answers under way: a client that sends faster is read more slowly
MAX_OWED_BYTES = 16 * 2**20  # the same, in the frames that wait for their answers


class Answers:
    """Every message and settlement is owed one answer. Those of one turn of the event loop share two frames at most."""

    __slots__ = (
        "_accepted",
        "_bytes",
        "_calm",
        "_calm_at",
        "_duplicates",
        "_flush_asked",
        "_level",
        "_refusals",
        "_send",
        "owed",
    )

    def __init__(self, send: Callable[[bytes], None], level: Callable[[], str]) -> None:
        self.owed = 0
        self._bytes = 0  # of frames that came since nothing was owed
        self._send = send
        self._level = level  # how durably the last exchange was stored
        self._accepted: list[str] = []
        self._duplicates: list[str] = []
        self._refusals: list[dict[str, Any]] = []
        self._flush_asked = False
        self._calm: asyncio.Future[None] | None = None  # who reads the client waits here while it floods us
        self._calm_at = 0  # until so much is owed

    def received(self, size: int) -> None:
        """A frame of so many bytes has come."""
        self._bytes += size

    def owe(self, count: int) -> None:
        self.owed += count

    def paid(self, count: int) -> None:
        self.owed -= count
        if self._calm is not None and self.owed <= self._calm_at:
            self._calm.set_result(None)
            self._calm = None

    async def calm(self) -> None:
        """Returns when not too much is owed."""
        if self.owed == 0:
            self._bytes = 0
        if self.owed > MAX_OWED or self._bytes > MAX_OWED_BYTES:
            self._calm_at = 0 if self._bytes > MAX_OWED_BYTES else MAX_OWED // 2
            self._calm = asyncio.get_running_loop().create_future()
            await self._calm

    def accept(self, id: str, is_duplicate: bool) -> None:
        """A message is stored, or was already."""
        self.paid(1)
        (self._duplicates if is_duplicate else self._accepted).append(id)
        self._ask_flush()

    def refuse(self, error: RelayError, **names: Any) -> None:
        """A message is not stored."""
        self.paid(1)
        self._refusals.append({**names, **error.as_fields()})
        self._ask_flush()

    def refuse_entry(self, error: RelayError, entry: str) -> None:
        """An entry is not settled; whoever settles pays for all its entries at once."""
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
            self._send(frame("accepted", ids=ids, duplicate_ids=duplicates, durability=self._level()))
        if self._refusals:
            refusals, self._refusals = self._refusals, []
            self._send(frame("refused", refusals=refusals))
