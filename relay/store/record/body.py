"""The body of a stored message: its payload as it was sent, and behind it the fields that few messages have.

    payload ,"type":"…","thread":"…","reply_to":"…","headers":{…},"signature":"…","more":true

Head and opts have the other fields of a delivery. The payload is found by its size: to read through it would be to
depend on how deeply it is nested.
"""

import msgspec
from msgspec import Raw, Struct


class _Rest(Struct):
    """The fields behind the payload, as far as their types matter."""

    type: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    headers: dict[str, str] | None = None
    signature: str | None = None
    more: bool = False


_json = msgspec.json.Decoder(Raw)
_rest = msgspec.json.Decoder(_Rest)


def is_whole(body: bytes, size: int) -> bool:
    """Whether a client can read it: a payload of that size and what may be behind it, JSON in UTF-8."""
    try:
        payload, rest = parted(body, size)
        _json.decode(payload)
        if rest:
            _rest.decode(b"{%b}" % rest[1:])
        return rest[:1] in (b"", b",") and (body.isascii() or bool(body.decode()))
    except RecursionError:
        return True  # it was deep where it was accepted, too
    except (ValueError, msgspec.MsgspecError):
        return False


def parted(body: bytes, size: int) -> tuple[bytes, bytes]:
    """The payload of so many bytes, and what is behind it."""
    return body[:size], body[size:]


def payload_in(body: bytes, size: int) -> bytes:
    """The payload of so many bytes, as its sender wrote it."""
    return parted(body, size)[0]


def readable_payload(body: bytes, size: int) -> bytes | None:
    """The same, unless nobody can read it."""
    return payload_in(body, size) if is_whole(body, size) else None


def without_payload(body: bytes, size: int) -> bytes:
    """The rest, as a JSON object."""
    return b"{%b}" % parted(body, size)[1][1:]
