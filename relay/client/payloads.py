"""Payloads as Python values: msgspec's types and dataclasses, pydantic's models, or plain JSON."""

import json
import sys
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

Decode = Callable[[bytes], Any]

MAX_DEPTH = 500  # so many brackets are within what any reader takes
WRAPPED = 50  # a payload is inside a message, inside a frame, and its reader may be deep in its own calls


class WrongPayload(ValueError):
    """A payload that is not of the type that a handler names."""


def encode(value: Any) -> bytes:
    """A payload as JSON. Raises TypeError or ValueError for what cannot be: the relay could not say whose it was."""
    data = msgspec.json.encode(value, enc_hook=_encode_other)
    if isinstance(value, msgspec.Raw) or (len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH):
        _check(data)
    return data


def _check(data: bytes) -> None:
    """Numbers are not parsed: the recipient decides which are too large."""
    try:
        data.decode()
        msgspec.json.decode(b'{"":' * WRAPPED + data + b"}" * WRAPPED, type=msgspec.Raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"a payload must be JSON that a relay can read: {error}") from None


def is_json(data: bytes) -> bool:
    """Whether a relay would have taken it as a payload."""
    try:
        _check(data)
    except ValueError:
        return False
    return True


def _encode_other(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"a payload must be JSON, not {type(value).__name__}")


def _is_pydantic(kind: Any) -> bool:
    """Whether it is a model. Nobody has one who has not imported pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def plain(data: bytes) -> Any:
    """Any JSON, also numbers that are beyond what most readers take. Raises WrongPayload for what no reader takes."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        value = json.loads(data)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text that anybody could write
    except (ValueError, RecursionError) as error:
        raise WrongPayload(str(error)[:300]) from None
    return value


@lru_cache(maxsize=1_024)
def decoder(kind: Any) -> Decode:
    """How a payload of this type is read. The reader raises WrongPayload."""
    if kind is Any or isinstance(kind, typing.TypeVar):
        return plain
    if _is_pydantic(kind):
        return _wrapped(kind.model_validate_json)
    return _wrapped(msgspec.json.Decoder(kind).decode)


def _wrapped(read: Decode) -> Decode:
    def decode(data: bytes) -> Any:
        try:
            return read(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise WrongPayload(str(error)[:300]) from None

    return decode


def as_raw(data: bytes) -> msgspec.Raw:
    """JSON that goes into a frame unchanged."""
    return msgspec.Raw(data)
