"""A connection for exchanges: packets go out together, and as many replies come back in order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import Script
from relay.store.redis.servers.connect import Server
from relay.store.redis.servers.wire import Reply, Wire

Ask = Callable[[list[bytes]], Awaitable[list[Reply]]]  # sends packets together; their replies

REACH_TIMEOUT_S = 2.0  # a server that a new connection does not reach by then is treated as gone
EXCHANGE_TIMEOUT_S = 3.0  # and so is one that has not answered by then


class Link:
    """Connects on demand and loads the scripts. One exchange at a time."""

    def __init__(self, server: Server, scripts: Sequence[Script]) -> None:
        self._server = server
        self._scripts = scripts
        self._wire: Wire | None = None
        self._connected_at = 0.0
        self._replies: list[Reply] = []  # of the exchange under way
        self._missing = 0  # and how many have not come yet
        self._answered: asyncio.Future[None] | None = None
        self._reaching: asyncio.Timeout | None = None  # the limit of a connection that is being made

    def connected_s(self) -> float:
        """For how long the server has been within reach, on one connection."""
        return time.monotonic() - self._connected_at if self.is_open else 0.0

    @property
    def is_open(self) -> bool:
        return self._wire is not None and self._wire.is_open

    async def open(self) -> None:
        """Raises OSError or RedisError."""
        await self.close()
        wire = self._wire = Wire(self._heard, self._fail)
        try:
            async with asyncio.timeout(REACH_TIMEOUT_S) as self._reaching:
                await wire.open(self._server)
        finally:
            self._reaching = None
        self._connected_at = time.monotonic()
        if self._scripts:
            await self._ask([encode_command("SCRIPT", "LOAD", one.text) for one in self._scripts], REACH_TIMEOUT_S)

    async def exchange(self, packets: list[bytes]) -> list[Reply]:
        """The replies to all packets. Raises OSError or RedisError when not all came in time."""
        return await self._ask(packets, EXCHANGE_TIMEOUT_S)

    def abort(self, why: str) -> None:
        """Waits no longer for the server."""
        self._fail(ConnectionResetError(why))
        if self._reaching is not None:
            self._reaching.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def _ask(self, packets: list[bytes], within_s: float) -> list[Reply]:
        assert self._wire is not None
        loop = asyncio.get_running_loop()
        self._replies, self._missing = [], len(packets)
        self._answered = loop.create_future()
        timer = loop.call_later(within_s, self._fail, TimeoutError("the server did not answer in time"))
        try:
            self._wire.write(packets[0] if len(packets) == 1 else b"".join(packets))
            await self._answered
        finally:
            timer.cancel()
        return self._replies

    def _heard(self, reply: Reply) -> None:
        self._replies.append(reply)
        self._missing -= 1
        if self._missing == 0 and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
