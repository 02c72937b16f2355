"""Responses in JSON."""

import msgspec
from aiohttp import web


def json_response(body: object, status: int = 200, **headers: str) -> web.Response:
    """What msgspec can write: Structs, and plain values with Raw ones among them."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json", headers=headers)
