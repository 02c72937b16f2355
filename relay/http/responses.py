"""Responses in JSON."""

import msgspec
from aiohttp import web


def json_response(body: object, status: int = 200, **headers: str) -> web.Response:
    """A response of anything that msgspec can encode: Structs, plain values, Raw."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json", headers=headers)
