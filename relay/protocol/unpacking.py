"""Unpacking: splits a send frame into its messages as written, at a cost that no sender can inflate."""

import json
import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

MAX_MESSAGES_PER_FRAME = 500
MAX_SALVAGED = 256 * 1024  # characters, some 20 ms in the worst case; of a longer frame nothing is salvaged
MAX_NESTED = 32 * 1024  # characters in which brackets are counted, some 10 ms
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

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*")
# Values are only passed over: neither long numbers nor odd strings are looked at.
_scan = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len, strict=False).raw_decode
_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}


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
    except ValueError:
        return None
    return [Raw(piece.encode()) for piece in pieces] if pieces else None


def _messages(text: str) -> list[str] | None:
    members, end = _members(text)
    is_send = members.get("op") == '"send"' and end == len(text)
    return _elements(members["messages"]) if is_send and "messages" in members else None


def _members(text: str) -> tuple[dict[str, str], int]:
    """The members of an object as they are written, and where it ends. Raises ValueError."""
    members: dict[str, str] = {}
    at, more = _past(text, 0, "{"), True
    for _ in range(MAX_MEMBERS):
        end = _value_end(text, at)
        name = text[at + 1 : end - 1]
        at = _past(text, _past(text, end), ":")
        end = _value_end(text, at)
        members[name] = text[at:end]
        more, at = _goes_on(text, end, "}")
        if not more:
            return members, at
    raise ValueError("too many")


def _elements(text: str) -> list[str]:
    """The elements of an array as they are written. Raises ValueError."""
    pieces: list[str] = []
    more, at = True, _past(text, 0, "[")
    while more and len(pieces) < MAX_MESSAGES_PER_FRAME:
        end = _value_end(text, at)
        pieces.append(text[at:end])
        more, at = _goes_on(text, end, "]")
    if more:
        raise ValueError("too many")
    return pieces


def _value_end(text: str, at: int) -> int:
    """Where the value that begins there ends. Raises ValueError."""
    try:
        return _scan(text, at)[1]
    except RecursionError:
        return _nested_end(text, at)


def _nested_end(text: str, at: int) -> int:
    """Where a value ends that is nested too deeply to be read, by its brackets alone. Raises ValueError."""
    depth = 0
    for mark in _MARK.finditer(text, at, at + MAX_NESTED):
        depth += _DEEPER.get(mark[0], 0)
        if depth == 0:
            return mark.end()
    raise ValueError("no end")


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
    """Id and recipient of a message that msgspec cannot read. Its frame was salvaged, so it is not large."""
    try:
        members, _ = _members(raw.decode())
        return {name: _string(members.get(name, "")) for name in ("id", "to")}
    except ValueError:
        return {"id": None, "to": None}


def _string(written: str) -> Any:
    return json.loads(written) if written.startswith('"') else None


def _is_text(value: Any) -> bool:
    """Whether a value is a string that can be written into a frame."""
    return isinstance(value, str) and len(value) <= MAX_NAME and not _SURROGATE.search(value)
