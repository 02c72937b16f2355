"""Metrics of requests: number, route, status and duration."""

import time

from aiohttp import web

from relay.http.app_keys import INSTANCE
from relay.http.operation import Handler

NOWHERE = "none"  # the route of a path that there is not: what strangers try makes no series of its own


@web.middleware
async def requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts a request when its answer is ready. One whose caller has left is not counted."""
    began = time.perf_counter()
    response = await handler(request)
    took_s = time.perf_counter() - began if isinstance(response, web.Response) else None
    request.app[INSTANCE].metrics.answered(_method(request), route(request), response.status, took_s)
    return response


def route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource else NOWHERE


def _method(request: web.Request) -> str:
    return request.method if request.match_info.route.resource else NOWHERE
