"""Frames from the relay, one type each. Payloads stay the bytes that the sender wrote."""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import msgspec
from msgspec import Raw, Struct

log = logging.getLogger(__name__)

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Hello(Struct, tag_field="op", tag="hello"):
    instance: str
    nonce: str
    server_time_ms: int = 0


class Welcome(Struct, tag_field="op", tag="welcome"):
    agent: str
    session: str
    epoch: str
    window: int = 50


class Epoch(Struct, tag_field="op", tag="epoch"):
    epoch: str


class QueueStatus(Struct, tag_field="op", tag="queue_status"):
    pending: int


class Drained(Struct, tag_field="op", tag="drained"):
    delivered: int


class Delivery(Struct, gc=False):
    """One message of a `deliver` frame."""

    entry: str
    id: str
    sender: str = msgspec.field(name="from")
    payload: Raw = msgspec.field(default=Raw(b"null"))
    type: str | None = None
    thread: str | None = None
    seq: Count = 0
    priority: int = 0
    sent_at_ms: Milliseconds = 0
    expires_at_ms: Milliseconds = 0
    attempt: Count = 1
    was_stored: bool = False
    reply_to: str | None = None
    request: bool = False
    more: bool = False
    headers: dict[str, str] | None = None
    signature: str | None = None


class Deliver(Struct, tag_field="op", tag="deliver"):
    messages: list[Delivery]


class Refusal(Struct):
    """Of a message (`id`, `to`) or of an entry (`entry`)."""

    code: str
    message: str = ""
    id: str | None = None
    to: str | None = None
    entry: str | None = None
    retryable: bool = False
    retry_after_ms: Milliseconds | None = None


class Refusals(Struct, tag_field="op", tag="refused"):
    refusals: list[Refusal]


class Receipt(Struct):
    id: str
    to: str
    state: str
    was_stored: bool = False
    attempt: Count = 1
    reason: str = ""


class Accepted(Struct, tag_field="op", tag="accepted"):
    ids: list[str]
    duplicate_ids: list[str]
    durability: str = "memory"
    ended: list[Receipt] | None = None  # those of the duplicates that have ended; an older relay does not say


class Receipts(Struct, tag_field="op", tag="receipts"):
    cursor: str
    receipts: list[Receipt]
    dropped: int = 0


class Settled(Struct, tag_field="op", tag="settled"):
    entries: list[str]


class Closing(Struct, tag_field="op", tag="closing"):
    code: str
    message: str = ""
    retry_after_ms: Milliseconds | None = None


class Error(Struct, tag_field="op", tag="error"):
    code: str
    message: str = ""
    entry: str | None = None


class Subscribed(Struct, tag_field="op", tag="subscribed"):
    topics: list[str]


class TopicEvent(Struct, tag_field="op", tag="event"):
    topic: str
    sender: str = msgspec.field(name="from")
    payload: Raw = msgspec.field(default=Raw(b"null"))


class Blocks(Struct, tag_field="op", tag="blocks"):
    agents: list[str]


class PresenceInfo(Struct, frozen=True):
    """Whether an agent is online, when it was last seen, and when it expects to be back.

    >>> seen = await alice.presence("bob")
    >>> seen["acme/bob"].online
    True
    """

    online: bool
    last_seen_ms: int | None = None
    next_active_at_ms: int | None = None


class Presence(Struct, tag_field="op", tag="presence"):
    agents: dict[str, PresenceInfo]


class Side(Struct, frozen=True):
    """One direction of a thread: the last sequence number, and the one up to which all are settled.

    >>> Side(last_seq=3, settled_seq=2).last_seq
    3
    """

    last_seq: int
    settled_seq: int


class SyncState(Struct, tag_field="op", tag="sync_state", frozen=True):
    """What each side of a thread has.

    >>> await (await alice.send("carol", "hi", thread="t")).accepted()
    'memory'
    >>> state = await alice.sync("carol", "t")
    >>> state.sent.last_seq, state.sent.settled_seq, state.pending
    (1, 0, 1)
    """

    peer: str
    sent: Side
    received: Side
    pending: int = 0
    thread: str = ""


class Pong(Struct, tag_field="op", tag="pong"):
    server_time_ms: int = 0


Frame = (
    Hello
    | Welcome
    | Epoch
    | QueueStatus
    | Drained
    | Deliver
    | Accepted
    | Refusals
    | Receipts
    | Settled
    | Closing
    | Error
    | Subscribed
    | TopicEvent
    | Blocks
    | Presence
    | SyncState
    | Pong
)
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Frame)


def parse(data: bytes | str) -> Frame | None:
    """A frame of the relay; None for what this client does not know, which it may ignore."""
    try:
        return _read(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # one payload must not end an agent
        log.error("a frame of the relay cannot be read: %s", type(error).__name__)
        return None


def _read(data: bytes | str) -> Frame:
    """How deep a reader can go depends on the calls that it is in. A thread begins without any, so it reads whatever
    the relay could, and one deep payload does not take the rest of its frame along."""
    try:
        found: Frame = _decoder.decode(data)
    except RecursionError:
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(_decoder.decode, data).result()
    return found


def frame(op: str, **fields: Any) -> bytes:
    """A frame to the relay."""
    return msgspec.json.encode({"op": op, **fields})
