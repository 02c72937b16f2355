"""Browsers: which pages of other origins may call the relay, and what every response says of itself."""

from aiohttp import web

from relay.http.calls import Handler
from relay.http.door import HUB

METHODS = "GET, HEAD, POST, PUT, DELETE"
HEADERS = "Authorization, Content-Type, Last-Event-ID"
EXPOSED = "Location, Retry-After"
REMEMBER_S = "600"


def _is_allowed(request: web.Request) -> bool:
    return request.headers.get("Origin") in request.app[HUB].settings.allowed_origins


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


async def say(request: web.Request, response: web.StreamResponse) -> None:
    """Puts on every response, also on one that streams, what all of them have."""
    headers = response.headers
    headers["Server"] = "relay"
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Cache-Control", "no-store")
    if request.app[HUB].settings.allowed_origins:
        headers["Vary"] = "Origin"
    if _is_allowed(request):
        headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
        headers["Access-Control-Expose-Headers"] = EXPOSED
