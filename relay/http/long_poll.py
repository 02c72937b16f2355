"""Long polls: wait until something may have happened, while the caller is connected."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

from aiohttp import web

from relay.auth import Identity
from relay.errors import RateLimited
from relay.server.connections import ServerConnection

LOOK_AGAIN_S = 5.0  # a lost wake delays an answer by at most this
MAX_LONG_POLLS = 100  # calls that wait, and streams, of one identity on one instance
WAIT_AGAIN_MS = 1_000


async def wait_for(event: asyncio.Event, request: web.Request, until: float) -> None:
    """Returns when the event is set, the caller has gone, that time has come, or it is time to look again."""
    if has_gone(request):
        return
    connection = cast(ServerConnection, request.protocol)
    connection.on_lost = event.set  # a handler is not cancelled as such: what it has leased meanwhile is given back
    with suppress(TimeoutError):
        async with asyncio.timeout(min(until - time.monotonic(), LOOK_AGAIN_S)):
            await event.wait()
    connection.on_lost = None


def has_gone(request: web.Request) -> bool:
    """Whether nobody reads the answer any more."""
    return request.transport is None or request.transport.is_closing()


class LongPollLimit:
    """Limits the open long polls of each identity on this instance."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def slot(self, who: Identity) -> Iterator[None]:
        """Raises RateLimited over the limit."""
        if self._open[who.address] >= MAX_LONG_POLLS:
            raise RateLimited(f"at most {MAX_LONG_POLLS} calls may wait at once", retry_after_ms=WAIT_AGAIN_MS)
        self._open[who.address] += 1
        try:
            yield
        finally:
            self._open[who.address] -= 1
            if not self._open[who.address]:
                del self._open[who.address]
