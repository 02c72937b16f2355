"""CORS: which origins may call the relay, and the headers of every response."""

import logging

from aiohttp import web

from relay.errors import Forbidden
from relay.http.app_keys import INSTANCE
from relay.http.operation import Handler
from relay.settings import env_name
from relay.telemetry.logs import Seldom
from relay.telemetry.scraping import is_unmistakable

log = Seldom(logging.getLogger(__name__))

METHODS = "GET, HEAD, POST, PUT, DELETE"
HEADERS = "Authorization, Content-Type, Last-Event-ID"
EXPOSED = "Location, Retry-After"
REMEMBER_S = "600"


def check(request: web.Request) -> None:
    """Programs send no Origin; a page's must be on the list, or be the relay's own page. Raises Forbidden."""
    origin = request.headers.get("Origin")
    if origin is None or _is_allowed(request) or (_is_own(origin, request) and is_unmistakable(request.host)):
        return
    request.app[INSTANCE].metrics.connections_refused["origin"] += 1
    log.warning("origin_refused", origin=origin[:200])
    raise Forbidden(f"pages of this origin may not connect: {env_name('allowed_origins')} does not name it")


def _is_own(origin: str, request: web.Request) -> bool:
    return origin in (f"http://{request.host}", f"https://{request.host}")


def _is_allowed(request: web.Request) -> bool:
    return request.headers.get("Origin") in request.app[INSTANCE].settings.allowed_origins


@web.middleware
async def preflights(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers the question that a browser asks before a call; who is not on the list is told nothing."""
    is_preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
    response = await handler(request)
    if is_preflight and response.status == 204 and _is_allowed(request):
        response.headers["Access-Control-Allow-Methods"] = METHODS
        response.headers["Access-Control-Allow-Headers"] = HEADERS
        response.headers["Access-Control-Max-Age"] = REMEMBER_S
    return response


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Puts on every response, also on one that streams, what all of them have."""
    headers = response.headers
    headers["Server"] = "relay"
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Cache-Control", "no-store")
    if request.app[INSTANCE].settings.allowed_origins:
        headers["Vary"] = "Origin"
    if _is_allowed(request):
        headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
        headers["Access-Control-Expose-Headers"] = EXPOSED
