"""Unpacking: splits a send frame into its messages as written, at a cost that no sender can inflate."""

import json
import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

MAX_MESSAGES_PER_FRAME = 500
MAX_SALVAGED = 256 * 1024  # characters, some 20 ms in the worst case; of a longer frame nothing is salvaged
MAX_MEMBERS = 50
MAX_NAME = 4_096  # a longer id or recipient is not repeated in a refusal

_NONE = Raw(b"")
# A list would be read to its end before its length is checked; an array of fields is not.
_Few = msgspec.defstruct(
    "_Few", [(f"m{n}", Raw, _NONE) for n in range(MAX_MESSAGES_PER_FRAME)], array_like=True, forbid_unknown_fields=True
)


class _Send(Struct):
    messages: _Few  # type: ignore[valid-type]


class _Names(Struct):
    """The id and recipient of a message that is invalid otherwise."""

    id: Raw = Raw(b"")
    to: Raw = Raw(b"")


_send = msgspec.json.Decoder(_Send)
_names = msgspec.json.Decoder(_Names)

# Values are only passed over: neither long numbers nor odd strings are looked at.
_scan = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len, strict=False).raw_decode
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*")


def unpack(text: str) -> list[Raw]:
    """The messages of a send frame that may be large. Raises msgspec's errors."""
    messages = [message for message in msgspec.structs.astuple(_send.decode(text).messages) if message is not _NONE]
    if not messages:
        raise msgspec.ValidationError("Expected `array` of length >= 1 - at `$.messages`")
    return messages


def salvage(text: str) -> list[Raw] | None:
    """The messages of a send frame that is not valid as a whole; None if it is no such frame, or too large."""
    if len(text) > MAX_SALVAGED:
        return None
    try:
        pieces = _messages(text)
    except (ValueError, RecursionError):
        return None
    return [Raw(piece.encode()) for piece in pieces] if pieces else None


def _messages(text: str) -> list[str] | None:
    messages: list[str] | None = None
    op, at, more = None, _past(text, 0, "{"), True
    for _ in range(MAX_MEMBERS):
        name, at = _scan(text, at)
        at = _past(text, _past(text, at), ":")
        if name == "messages":
            messages, at = _elements(text, at)
        else:
            value, at = _scan(text, at)
            op = value if name == "op" else op
        more, at = _goes_on(text, at, "}")
        if not more:
            break
    return messages if op == "send" and not more and at == len(text) else None


def _elements(text: str, at: int) -> tuple[list[str], int]:
    """The elements of an array, and where it ends."""
    pieces: list[str] = []
    more, at = True, _past(text, at, "[")
    while more and len(pieces) < MAX_MESSAGES_PER_FRAME:
        start = at
        _, at = _scan(text, at)
        pieces.append(text[start:at])
        more, at = _goes_on(text, at, "]")
    if more:
        raise ValueError("too many")
    return pieces, at


def _goes_on(text: str, at: int, end: str) -> tuple[bool, int]:
    """Whether a comma follows, else the end does; and what comes after it."""
    at = _past(text, at)
    more = text.startswith(",", at)
    return more, _past(text, at, "," if more else end)


def _past(text: str, at: int, mark: str = "") -> int:
    """The place behind a mark and the space that follows it. Raises ValueError when it is not there."""
    if not text.startswith(mark, at):
        raise ValueError(f"expected {mark}")
    space = _SPACE.match(text, at + len(mark))
    return space.end() if space else at


def names_of(raw: Raw) -> dict[str, str | None]:
    """Id and recipient of a message for its refusal, as far as they are readable."""
    try:
        written = _names.decode(raw)
        names = {"id": _text(bytes(written.id)), "to": _text(bytes(written.to))}
    except (msgspec.DecodeError, RecursionError):
        names = _names_apart(bytes(raw))
    return {name: value if _is_text(value) else None for name, value in names.items()}


def _text(written: bytes) -> Any:
    return msgspec.json.decode(written) if written.startswith(b'"') else None


def _names_apart(raw: bytes) -> dict[str, Any]:
    """The same for a message that msgspec cannot read. Its frame was salvaged, so it is not large."""
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):
        message = None
    known = message if isinstance(message, dict) else {}
    return {"id": known.get("id"), "to": known.get("to")}


def _is_text(value: Any) -> bool:
    """Whether a value is a string that can be written into a frame."""
    return isinstance(value, str) and len(value) <= MAX_NAME and not _SURROGATE.search(value)
