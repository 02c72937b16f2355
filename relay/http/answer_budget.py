"""Room for answers: data requested from the store counts as output before it is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from aiohttp import web

from relay.core.output_budget import LARGEST_SHARE
from relay.errors import RateLimited
from relay.http.operation import Handler, operation_of
from relay.http.query import Page
from relay.server.connections import ServerConnection

COME_BACK_MS = 1_000


@contextmanager
def reserved(request: web.Request, size: int = 0) -> Iterator[int]:
    """About how many bytes an answer may have; they are kept for it meanwhile. Raises RateLimited if there are none.

    One that cannot be cut has its own size, and is given as soon as there is any room.
    """
    output = cast(ServerConnection, request.protocol).output
    room = output.room()
    if room == 0:
        raise RateLimited("too many answers wait to be read", retry_after_ms=COME_BACK_MS)
    kept = max(room, size)
    output.reserve(kept)
    try:
        yield min(room, LARGEST_SHARE)
    finally:
        output.reserve(-kept)


@web.middleware
async def pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A call that answers with a page of a list is made when there is room for it."""
    described = operation_of(request.match_info.handler)
    if described is None or not issubclass(described.query, Page):
        return await handler(request)
    with reserved(request):
        return await handler(request)
