"""Sockets: every WebSocket of this instance, also before its client has authenticated."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from relay.telemetry.metrics import Metrics

TURNS = 16  # 10,000 idle sockets must cost next to nothing


class Socket(Protocol):
    """A WebSocket, as the core may use it."""

    def write(self, text: bytes) -> None: ...
    def tick(self, now: float) -> None: ...
    def close(self, word: str, retry_after_ms: int | None = None, message: str | None = None) -> None: ...


class Sockets:
    def __init__(self, max_connections: int, metrics: Metrics) -> None:
        self._max_connections = max_connections
        self._metrics = metrics
        self._open: set[Socket] = set()
        self._hurried: set[Socket] = set()
        self._round: list[Socket] = []  # those that have not had their turn yet
        self._each_time = 0
        self._all_closed = asyncio.Event()

    def opened(self, socket: Socket) -> bool:
        """Registers a socket. False if there are too many."""
        self._open.add(socket)
        self._metrics.connections = len(self._open)
        return len(self._open) <= self._max_connections

    def closed(self, socket: Socket) -> None:
        self._open.discard(socket)
        self._hurried.discard(socket)
        self._metrics.connections = len(self._open)
        if not self._open:
            self._all_closed.set()

    async def wait_until_closed(self, at_most_s: float) -> None:
        """Returns when no socket is open, or when the time is over."""
        if self._open:
            self._all_closed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(at_most_s):
                    await self._all_closed.wait()

    def hurry(self, socket: Socket) -> None:
        """This socket is ticked every time until it is closed."""
        self._hurried.add(socket)

    def in_turn(self) -> list[Socket]:
        """The sockets to tick now: each once in TURNS, and hurried ones every time."""
        if not self._round:
            self._round = list(self._open)
            self._each_time = -(-len(self._round) // TURNS)
        now = self._round[-self._each_time :]
        del self._round[-self._each_time :]
        return [*now, *(self._hurried - set(now))]

    def __iter__(self) -> Iterator[Socket]:
        return iter(list(self._open))
