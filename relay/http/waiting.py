"""Waiting: until something may have happened, as long as somebody is there to be told."""

import asyncio
import time

from aiohttp import web

from relay.http.door import has_gone

LOOK_AGAIN_S = 5.0  # a lost wake delays an answer by at most this
GLANCE_S = 0.25  # how soon it is noticed that a caller has gone


async def wait_for(event: asyncio.Event, request: web.Request, until: float) -> None:
    """Returns when the event is set, the caller has gone, that time has come, or it is time to look again."""
    until = min(until, time.monotonic() + LOOK_AGAIN_S)
    while not event.is_set() and not has_gone(request) and (left_s := until - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(min(left_s, GLANCE_S)):
                await event.wait()
        except TimeoutError:
            continue
