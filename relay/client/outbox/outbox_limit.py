"""The limit of the outbox, and the senders that wait for room."""

import asyncio
from collections import deque

from relay.client.errors import ClientError, OutboxFull

MAX_BYTES = 256 * 2**20


class OutboxLimit:
    """Waiting senders are admitted in order."""

    def __init__(self, limit: int, waits: bool) -> None:
        self._limit = limit
        self._waits = waits  # whether a full outbox is waited for
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def is_full(self) -> bool:
        return self._messages >= self._limit or self._bytes >= MAX_BYTES

    async def wait(self) -> None:
        """Returns when a message fits. Raises OutboxFull if that is not waited for."""
        while self.is_full():
            if not self._waits:
                raise OutboxFull(f"the outbox holds {self._messages} messages ({self._limit} at most)")
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                self._let_in()  # the place that it was given is the next one's
                raise

    def enter(self, size: int) -> None:
        self._messages += 1
        self._bytes += size

    def leave(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size
        if self._waiting:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and not self.is_full():
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def close(self, error: ClientError) -> None:
        """Wakes all waiting senders."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(error)
