"""A message as its sender writes it. The payload stays the bytes that were sent."""

from typing import Annotated, Literal

import msgspec
import orjson
from msgspec import Meta, Raw, Struct

from relay.errors import Malformed, RelayError, TooLarge
from relay.protocol.address import Address, address, is_address, is_agent
from relay.protocol.unpacking import names_of

MAX_HEADERS_BYTES = 4_096
MAX_HEADERS_WRITTEN = 4 * MAX_HEADERS_BYTES  # as they are written, with escapes: longer ones are not even read
MAX_SPAN_S = 30 * 86_400

Short = Annotated[str, Meta(max_length=128)]
Span = Annotated[float, Meta(ge=0, le=MAX_SPAN_S)]


class Message(Struct, frozen=True, gc=False):
    """A message in a `send` frame. It has no `from`: the sender is the authenticated agent."""

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


class _Headers(Struct):
    headers: Raw = Raw(b"")


_message = msgspec.json.Decoder(Message)
_headers = msgspec.json.Decoder(_Headers)


def parse_message(raw: Raw, tenant: str, max_payload_bytes: int) -> Message:
    """One message of a send, checked. Raises Malformed or TooLarge, whose details carry the id and the recipient."""
    try:
        if len(bytes(raw)) > MAX_HEADERS_WRITTEN and len(bytes(_headers.decode(raw).headers)) > MAX_HEADERS_WRITTEN:
            raise _headers_too_long()
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
    """The rules for a message that its type cannot express."""
    if not (message.id.isascii() and message.id.isprintable()):
        raise Malformed("Expected printable ASCII - at `$.id`")
    if not (is_address(message.to) or is_agent(message.to)):
        raise Malformed("Expected an address, tenant/agent - at `$.to`")
    opaque(message.payload, max_payload_bytes)
    if message.headers and len(orjson.dumps(message.headers)) > MAX_HEADERS_BYTES:
        raise _headers_too_long()


def _headers_too_long() -> Malformed:
    return Malformed(f"Expected at most {MAX_HEADERS_BYTES} bytes - at `$.headers`")


def opaque(payload: Raw, max_bytes: int) -> bytes:
    """A payload as the bytes that were sent. Raises TooLarge."""
    data = bytes(payload)
    if len(data) > max_bytes:
        raise TooLarge(f"the payload has {len(data)} bytes, {max_bytes} are allowed", max=max_bytes)
    return data
