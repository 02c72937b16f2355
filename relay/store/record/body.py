"""The body of a stored message: its payload as it was sent, and behind it the fields that few messages have.

    payload ,"type":"…","thread":"…","reply_to":"…","headers":{…},"signature":"…","more":true

Head and opts have the other fields of a delivery. The payload is found by its size: to read through it would be to
depend on how deeply it is nested.

The first release stored all fields of a delivery, the payload among them. Such a body begins with `"id":`, as nothing
does that begins with a payload.
"""

from typing import Any

import msgspec
import orjson

_OLD = b'"id":'
_OLD_PAYLOAD = b',"payload":'  # stands in no id before it: there a quote has a backslash
_IN_HEAD_AND_OPTS = ("id", "from", "priority", "sent_at_ms", "expires_at_ms", "request")


def parted(body: bytes, size: int) -> tuple[bytes, bytes]:
    """The payload of so many bytes, and what is behind it."""
    if body.startswith(_OLD):
        return _old_parted(body, size)
    return body[:size], body[size:]


def payload_in(body: bytes, size: int) -> bytes:
    """The payload of so many bytes, as its sender wrote it."""
    return parted(body, size)[0]


def without_payload(body: bytes, size: int) -> bytes:
    """The rest, as a JSON object."""
    return b"{%b}" % parted(body, size)[1][1:]


def _old_parted(body: bytes, size: int) -> tuple[bytes, bytes]:
    start = body.index(_OLD_PAYLOAD)
    end = start + len(_OLD_PAYLOAD) + size
    fields: dict[str, Any] = msgspec.json.decode(b"{%b%b}" % (body[:start], body[end:]))
    rare = {name: value for name, value in fields.items() if name not in _IN_HEAD_AND_OPTS}
    return body[end - size : end], b"," + orjson.dumps(rare)[1:-1] if rare else b""
