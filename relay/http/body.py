"""Request bodies: read within a time limit, decoded and checked."""

import asyncio
import re
import traceback
from typing import TypeVar

import msgspec
from aiohttp import web

from relay.errors import Malformed
from relay.http.did_you_mean import hint
from relay.http.errors import SlowBody

BODY_WITHIN_S = 15.0  # a body that trickles in more slowly is not waited for

_UNKNOWN = re.compile(r"unknown field `(.+?)`")

Body = TypeVar("Body")


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """The allowed fields of a body. Unknown names are refused."""


def _explain(error: str) -> str:
    """The error of a body, with a suggestion for an unknown name."""
    unknown = _UNKNOWN.search(error)
    if unknown is None:
        return error
    names = {name for kind in RequestBody.__subclasses__() for name in kind.__struct_fields__}
    return error + hint(unknown[1], sorted(names))


async def read_body(request: web.Request, kind: type[Body]) -> Body:
    """The body, decoded and checked; an empty one is an empty object. Raises Malformed, TooLarge or SlowBody."""
    text = await read_text(request)
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Malformed(_explain(str(error))[:300]) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}"[:300]) from None


async def read_no_fields(request: web.Request) -> None:
    """For a call that has none, so that no field is silently ignored. Raises as read_body does."""
    await read_body(request, RequestBody)


async def read_text(request: web.Request) -> str:
    """The body as text. Raises Malformed, TooLarge or SlowBody."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Malformed("bodies are not compressed: leave out Content-Encoding")
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            data = await request.read()
    except TimeoutError:
        raise SlowBody(f"the body did not come within {BODY_WITHIN_S:.0f} s") from None
    except OSError as error:  # the client has gone, and the error and what has come know each other
        traceback.clear_frames(error.__traceback__)
        raise
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed("the body is not UTF-8") from None
