"""Frames: each frame from a client is a type. Parsing does no I/O. Payloads stay the bytes that the sender wrote."""

from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import Meta, Raw, Struct

from relay.errors import Malformed, RelayError, UnknownOp
from relay.protocol.address import Address
from relay.protocol.message import Short, Span
from relay.protocol.unpacking import MAX_MESSAGES_PER_FRAME, salvage, unpack

PROTOCOL = 1
MAX_ENTRIES_PER_FRAME = 1_000
LARGE = 512 * 1024  # a frame of this size is read with care
MAX_CARD_BYTES = 16_384

Addresses = Annotated[list[Address], Meta(max_length=MAX_ENTRIES_PER_FRAME)]
Entries = Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=MAX_ENTRIES_PER_FRAME)]
Topics = Annotated[list[Annotated[str, Meta(min_length=1, max_length=128)]], Meta(max_length=MAX_ENTRIES_PER_FRAME)]
TimeMs = Annotated[int, Meta(ge=0, le=2**52)]


class Frame(Struct, tag_field="op"):
    """Every frame from a client is one of the classes below, by its `op`."""


class Auth(Frame, tag="auth"):
    token: str | None = None
    agent: Address | None = None
    key: str | None = None
    signature: str | None = None
    window: Annotated[int, Meta(ge=1, le=1_000)] = 50
    mode: Literal["exclusive", "shared"] | None = None  # left out: as the agent is registered, else exclusive
    ack_timeout_s: Span | None = None
    card: Raw = Raw(b"null")
    next_active_at_ms: TimeMs | None = None

    def __post_init__(self) -> None:
        card = bytes(self.card)
        if (not card.startswith(b"{") and card != b"null") or len(card) > MAX_CARD_BYTES:
            raise ValueError(f"Expected an object of at most {MAX_CARD_BYTES} bytes - at `$.card`")


class Send(Frame, tag="send"):
    messages: Annotated[list[Raw], Meta(min_length=1, max_length=MAX_MESSAGES_PER_FRAME)]


class Ack(Frame, tag="ack"):
    entries: Entries
    confirm: bool = False


class Nack(Frame, tag="nack"):
    entries: Entries
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    retry: bool = True
    delay_s: Span | None = None
    confirm: bool = False


class Release(Frame, tag="release"):
    entries: Entries
    confirm: bool = False


class Touch(Frame, tag="touch"):
    entries: Entries
    extend_s: Span = 30
    confirm: bool = False


class Reply(Frame, tag="reply"):
    entry: Annotated[str, Meta(max_length=64)]
    payload: Raw
    more: bool = False
    confirm: bool = False


class ReceiptsAck(Frame, tag="receipts_ack"):
    cursor: Annotated[str, Meta(max_length=64)]


class Subscribe(Frame, tag="subscribe"):
    topics: Topics


class Unsubscribe(Frame, tag="unsubscribe"):
    topics: Topics


class Publish(Frame, tag="publish"):
    topic: Annotated[str, Meta(min_length=1, max_length=128)]
    payload: Raw


class Block(Frame, tag="block"):
    agents: Addresses


class Unblock(Frame, tag="unblock"):
    agents: Addresses


class Presence(Frame, tag="presence"):
    agents: Addresses


class Sync(Frame, tag="sync"):
    peer: Address
    thread: Short = ""


class Ping(Frame, tag="ping"):
    pass


AnyFrame = (
    Auth
    | Send
    | Ack
    | Nack
    | Release
    | Touch
    | Reply
    | ReceiptsAck
    | Subscribe
    | Unsubscribe
    | Publish
    | Block
    | Unblock
    | Presence
    | Sync
    | Ping
)


class _Op(Struct):
    op: str


_OPS = {frame.__struct_config__.tag for frame in AnyFrame.__args__}
_frame = msgspec.json.Decoder(AnyFrame)
_op = msgspec.json.Decoder(_Op)
_auth = msgspec.json.Decoder(Auth)


def parse(data: bytes) -> AnyFrame:
    """The frame in these bytes. Raises Malformed or UnknownOp, with a message that names the field."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Malformed("the frame is not UTF-8") from None
    try:
        return _decode(text) if len(text) < LARGE else _decode_large(text)
    except msgspec.ValidationError as error:
        raise _explain(text, error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        # One message may hold what cannot be read, such as half a surrogate pair; its neighbours are not to blame.
        pieces = salvage(text)
        if pieces is None:
            raise _explain(text, error) from None
        return Send(pieces)


def _decode(text: str) -> AnyFrame:
    decoded: AnyFrame = _frame.decode(text)
    return decoded


def _decode_large(text: str) -> AnyFrame:
    """Only what carries payloads is so large, and only a send has many parts."""
    op = _op.decode(text).op
    if op == "send":
        return Send(unpack(text))
    if op in _OPS - {"reply", "publish"}:
        raise Malformed(f"a frame with the op {op[:64]!r} has at most {LARGE} bytes")
    return _decode(text)


def parse_auth(data: bytes) -> Auth | None:
    """The auth frame in these bytes, None if it is another frame. Raises Malformed or UnknownOp.

    A stranger sent it, so nothing is tried that costs more than one look."""
    try:
        op = _op.decode(data).op
        if op == "auth":
            return _auth.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"the first frame is auth: {error}"[:300]) from None
    if op not in _OPS:
        raise UnknownOp(f"unknown op {op[:64]!r}")
    return None


def _explain(text: str, error: Exception) -> RelayError:
    try:
        op = _op.decode(text).op
    except (msgspec.DecodeError, RecursionError):
        return Malformed(f"a frame is one JSON object with an op: {error}"[:300])
    if op not in _OPS:
        return UnknownOp(f"unknown op {op[:64]!r}")
    return Malformed(str(error)[:300])


def frame(op: str, **fields: Any) -> bytes:
    """A frame to a client."""
    return orjson.dumps({"op": op, **fields})
