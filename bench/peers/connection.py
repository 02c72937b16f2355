"""A bare connection of a load program: bytes in, bytes out, and one answer to wait for while it opens."""

import asyncio
from typing import Self, cast

from bench.servers import HOST

ANSWERED_WITHIN_S = 60.0


class Connection(asyncio.Protocol):
    """What a peer's own connection is made of: `_take` reads what is complete and says how many bytes that was."""

    def __init__(self) -> None:
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[None] | None = None  # while somebody waits for one

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        waiting = self._rest + data if self._rest else data
        self._rest = waiting[self._take(waiting) :]

    def _take(self, data: bytes) -> int:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def ask(self, data: bytes) -> None:
        """Writes, and returns when `_answered` was called: only while nothing else is under way."""
        self._answer = asyncio.get_running_loop().create_future()
        self.write(data)
        await asyncio.wait_for(self._answer, ANSWERED_WITHIN_S)

    def _answered(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Closes when everything is written."""
        assert self._transport is not None
        self._transport.close()

    async def connect(self, port: int) -> Self:
        await asyncio.get_running_loop().create_connection(lambda: self, HOST, port)
        return self
