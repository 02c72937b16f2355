"""The wire: every frame as a type. Parsing does no I/O; payloads stay the bytes that the sender wrote."""

import json
import re
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import orjson
from msgspec import Meta, Raw, Struct

from relay.errors import Malformed, RelayError, TooLarge, UnknownOp

PROTOCOL = 1
MAX_MESSAGES_PER_FRAME = 500
MAX_ENTRIES_PER_FRAME = 1_000
MAX_HEADERS_BYTES = 4_096
MAX_CARD_BYTES = 16_384
MAX_SPAN_S = 30 * 86_400

_PART = r"[a-zA-Z0-9._-]{1,64}"
_ADDRESS = re.compile(rf"{_PART}/{_PART}")
_AGENT = re.compile(_PART)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]')
_MEMBER = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:(.*)', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ENTRY = re.compile(r"((?:0|[1-9][0-9]{0,17})-(?:0|[1-9][0-9]{0,17}))(?:p([1-9]))?")  # one spelling per entry

Short = Annotated[str, Meta(max_length=128)]
Span = Annotated[float, Meta(ge=0, le=MAX_SPAN_S)]
Address = Annotated[str, Meta(max_length=129)]
Addresses = Annotated[list[Address], Meta(max_length=MAX_ENTRIES_PER_FRAME)]
Entries = Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=MAX_ENTRIES_PER_FRAME)]
Topics = Annotated[list[Annotated[str, Meta(min_length=1, max_length=128)]], Meta(max_length=MAX_ENTRIES_PER_FRAME)]
TimeMs = Annotated[int, Meta(ge=0, le=2**52)]


class Message(Struct, frozen=True):
    """What a sender hands over (1.2). `from` is not a field: the sender is who authenticated."""

    id: Annotated[str, Meta(min_length=1, max_length=128)]
    to: Address
    payload: Raw
    type: Short | None = None
    thread: Short | None = None
    reply_to: Short | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] = 0
    ttl_s: Annotated[float, Meta(gt=0)] | None = None
    delay_s: Span = 0
    max_attempts: Annotated[int, Meta(ge=0, le=100)] = 0
    ack_timeout_s: Span | None = None
    receipt: bool | Literal["all"] = True
    request: bool = False
    signature: Annotated[str, Meta(max_length=4_096)] | None = None
    headers: dict[str, str] | None = None


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


class _Names(Struct):
    """What can still be said of a message that is wrong elsewhere."""

    id: Any = None
    to: Any = None


_OPS = {frame.__struct_config__.tag for frame in AnyFrame.__args__}
_frame = msgspec.json.Decoder(AnyFrame)
_op = msgspec.json.Decoder(_Op)
_message = msgspec.json.Decoder(Message)
_names = msgspec.json.Decoder(_Names)

Kind = TypeVar("Kind")


def parse(data: bytes) -> AnyFrame:
    """The frame in these bytes. Raises Malformed or UnknownOp, with a message that names the field."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Malformed("the frame is not UTF-8") from None
    try:
        found: AnyFrame = _frame.decode(text)
        return found
    except (msgspec.DecodeError, RecursionError) as error:
        apart = _parse_apart(text)
        if apart is None:
            raise _explain(text, error) from None
        return apart


def _parse_apart(text: str) -> Send | None:
    """A send that is JSON but for what one of its messages holds, such as half a surrogate pair: each message is then
    judged for itself, so that it does not hurt its neighbours. None if it is not that."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("op") != "send" or not isinstance(found.get("messages"), list):
        return None
    if not 1 <= len(found["messages"]) <= MAX_MESSAGES_PER_FRAME:
        return None
    members = [_MEMBER.match(piece) for piece in _pieces(text)]
    array = next(member[2] for member in reversed(members) if member and json.loads(member[1]) == "messages")
    return Send([Raw(piece.encode()) for piece in _pieces(array)])


def _pieces(text: str) -> list[str]:
    """What stands between the commas of an array or object, as it was written."""
    pieces, depth, start = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            start = token.end() if depth == 1 else start
        elif token[0] in "]}":
            depth -= 1
        if depth == 0 or (depth == 1 and token[0] == ","):
            pieces.append(text[start : token.start()])
            start = token.end()
        if depth == 0:
            break
    return pieces


def _explain(text: str, error: Exception) -> RelayError:
    try:
        op = _op.decode(text).op
    except (msgspec.DecodeError, RecursionError):
        return Malformed(f"a frame is one JSON object with an op: {error}"[:300])
    if op not in _OPS:
        return UnknownOp(f"unknown op {op[:64]!r}")
    return Malformed(str(error)[:300])


def parse_message(raw: Raw, tenant: str, max_payload_bytes: int) -> Message:
    """One message of a send, checked. Raises Malformed or TooLarge, whose details carry the id and the recipient."""
    try:
        message = _message.decode(raw)
        check_message(message, max_payload_bytes)
        if "/" not in message.to:
            message = msgspec.structs.replace(message, to=address(message.to, tenant))
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(str(error)[:300], **names_of(raw)) from None
    except RelayError as error:
        error.details = names_of(raw) | error.details
        raise
    return message


def check_message(message: Message, max_payload_bytes: int) -> None:
    """The rules of 1.2 that a type cannot say."""
    if not (message.id.isascii() and message.id.isprintable()):
        raise Malformed("Expected printable ASCII - at `$.id`")
    if not (is_address(message.to) or is_agent(message.to)):
        raise Malformed("Expected an address, tenant/agent - at `$.to`")
    opaque(message.payload, max_payload_bytes)
    if message.headers and len(orjson.dumps(message.headers)) > MAX_HEADERS_BYTES:
        raise Malformed(f"Expected at most {MAX_HEADERS_BYTES} bytes - at `$.headers`")


def opaque(payload: Raw, max_bytes: int) -> bytes:
    """A payload as the bytes that were sent. Raises TooLarge."""
    data = bytes(payload)
    if len(data) > max_bytes:
        raise TooLarge(f"the payload has {len(data)} bytes, {max_bytes} are allowed", max=max_bytes)
    return data


def names_of(raw: Raw) -> dict[str, str | None]:
    """Id and recipient of a message, as far as they can be made out, for its refusal."""
    try:
        names = _names.decode(raw)
        found = {"id": names.id, "to": names.to}
    except (msgspec.DecodeError, RecursionError):
        found = _names_apart(bytes(raw))
    return {name: found[name] if _is_text(found[name]) else None for name in ("id", "to")}


def _names_apart(raw: bytes) -> dict[str, Any]:
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):
        message = None
    known = message if isinstance(message, dict) else {}
    return {"id": known.get("id"), "to": known.get("to")}


def _is_text(value: Any) -> bool:
    """Whether a value is a string that can be written into a frame."""
    return isinstance(value, str) and not _SURROGATE.search(value)


@lru_cache(maxsize=65_536)
def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


def is_agent(text: str) -> bool:
    return _AGENT.fullmatch(text) is not None


def address(name: str, tenant: str) -> str:
    """The full address of a name that may leave out its tenant. Raises Malformed."""
    if is_agent(name):
        return f"{tenant}/{name}"
    if is_address(name):
        return name
    raise Malformed(f"{name[:140]!r} is not an address: tenant/agent, each 1–64 of a-z A-Z 0-9 . _ -")


def tenant_of(an_address: str) -> str:
    return an_address.partition("/")[0]


def parse_entry(handle: str) -> tuple[str, int] | None:
    """Stream id and priority of an entry's handle; None if the relay never made such a handle."""
    match = _ENTRY.fullmatch(handle)
    if match is None:
        return None
    return match[1], int(match[2] or 0)


def frame(op: str, **fields: Any) -> bytes:
    """A frame to a client."""
    return orjson.dumps({"op": op, **fields})


def escape(text: str) -> str:
    """Text that can stand in a tab-separated column."""
    if "\\" in text or "\t" in text or "\n" in text or "\r" in text:
        return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text
