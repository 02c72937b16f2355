"""What the HTTP door answers: the shape of every body, which the OpenAPI document shows and tests hold it to."""

from typing import Any, Literal, NotRequired, TypedDict

from relay.errors import (
    Busy,
    Forbidden,
    LockLost,
    Malformed,
    NotFound,
    QueueFull,
    RateLimited,
    StoreUnavailable,
    TooLarge,
    Unauthorized,
    UnknownAgent,
)

WIRE_ERRORS = (
    *(Malformed, Unauthorized, Forbidden, NotFound, UnknownAgent, LockLost, Busy, TooLarge),
    *(QueueFull, RateLimited, StoreUnavailable),
)
State = Literal["queued", "held", "delayed"]
Mode = Literal["exclusive", "shared"]


class ErrorFields(TypedDict):
    """What went wrong, and whether the same again can help."""

    code: str
    message: str
    retryable: bool
    retry_after_ms: NotRequired[int]
    id: NotRequired[str | None]
    to: NotRequired[str | None]
    max: NotRequired[int]
    depth: NotRequired[int]
    limit: NotRequired[int]
    bytes: NotRequired[int]
    bytes_limit: NotRequired[int]


class Error(TypedDict):
    """The envelope of every error."""

    error: ErrorFields


# -- messages


class Accepted(TypedDict):
    """A message that is in the mailbox; `seq` is not known of a duplicate."""

    id: str
    to: str
    state: Literal["queued"]
    duplicate: bool
    durability: Literal["memory", "fsync", "replica"]
    seq: NotRequired[int]


class BatchAnswer(TypedDict):
    """Every message of a batch is in one of the two."""

    accepted: list[Accepted]
    refused: list[ErrorFields]


Located = TypedDict(
    "Located",
    {
        "id": str,
        "to": str,
        "from": str,
        "state": Literal["queued", "held", "delayed", "acked", "dead", "expired", "cancelled"],
        "entry": str,
        "attempt": int,
        "at_ms": int,
    },
)
Located.__doc__ = "Where a message is; `at_ms` is when it was accepted, or when it ended."


class Cancelled(TypedDict):
    id: str
    state: Literal["cancelled"]


Seen = TypedDict(
    "Seen",
    {
        "entry": str,
        "id": str,
        "to": str,
        "from": str,
        "state": State,
        "attempt": int,
        "seq": int,
        "priority": int,
        "bytes": int,
        "sent_at_ms": int,
        "expires_at_ms": int,
        "type": NotRequired[str],
        "thread": NotRequired[str],
        "holder": NotRequired[str],
        "payload": NotRequired[Any],
    },
)
Seen.__doc__ = "A message in its mailbox; the payload only with the scope `inspect`."


class SeenPage(TypedDict):
    messages: list[Seen]
    cursor: NotRequired[str]


class TaskState(TypedDict):
    """A request: its parts so far, and its reply when it has one."""

    id: str
    to: str
    state: Literal["queued", "held", "replied", "dead", "expired", "acked", "cancelled"]
    parts: NotRequired[list[Any]]
    reply: NotRequired[Any]


# -- leases

Leased = TypedDict(
    "Leased",
    {
        "entry": str,
        "lock_token": str,
        "id": str,
        "from": str,
        "seq": int,
        "attempt": int,
        "was_stored": bool,
        "priority": int,
        "payload": Any,
        "sent_at_ms": int,
        "expires_at_ms": int,
        "request": bool,
        "type": NotRequired[str],
        "thread": NotRequired[str],
        "reply_to": NotRequired[str],
        "headers": NotRequired[dict[str, str]],
        "signature": NotRequired[str],
    },
)
Leased.__doc__ = "A delivery, with the token that settles it."


class LeasedMessages(TypedDict):
    messages: list[Leased]


class SettledEntry(TypedDict):
    entry: str
    settled: Literal["ack", "nack", "release", "touch", "reply"]


class RefusedEntry(TypedDict):
    entry: str
    code: str
    message: str
    retryable: bool


class SettledEntries(TypedDict):
    settled: list[str]
    refused: list[RefusedEntry]


# -- agents


class PresenceShown(TypedDict):
    online: bool
    last_seen_ms: int | None
    next_active_at_ms: NotRequired[int]


class AgentShown(TypedDict):
    """An agent and its mailbox."""

    agent: str
    registered: bool
    presence: PresenceShown
    online: bool
    last_seen_ms: int | None
    depth: int
    bytes: int
    oldest_ms: int | None
    oldest_age_s: float | None
    dead: int
    mode: Mode | None
    key: str | None
    card: NotRequired[Any]
    next_active_at_ms: NotRequired[int]
    max_messages: NotRequired[int]
    max_bytes: NotRequired[int]


class AgentPage(TypedDict):
    agents: list[AgentShown]
    cursor: NotRequired[str]


class Removed(TypedDict):
    agent: str
    removed: bool


class Blocks(TypedDict):
    agents: list[str]


class Blocked(TypedDict):
    agent: str
    blocked: bool


# -- the dead-letter box


class Failure(TypedDict):
    attempt: int
    at_ms: int
    holder: str
    reason: str


DeadLetterShown = TypedDict(
    "DeadLetterShown",
    {
        "entry": str,
        "id": str,
        "to": str,
        "from": str,
        "priority": int,
        "bytes": int,
        "reason": str,
        "attempts": int,
        "at_ms": int,
        "history": list[Failure],
        "type": NotRequired[str],
        "thread": NotRequired[str],
        "payload": NotRequired[Any],
    },
)


class DeadPage(TypedDict):
    messages: list[DeadLetterShown]
    cursor: NotRequired[str]


class RevivedEntry(TypedDict):
    entry: str
    new_entry: str


class RefusedLetter(TypedDict):
    entry: str
    code: Literal["queue_full", "duplicate", "not_found"]


class Revived(TypedDict):
    revived: list[RevivedEntry]
    refused: list[RefusedLetter]


class Dropped(TypedDict):
    entry: str
    dropped: bool


# -- what happens

EventShown = TypedDict(
    "EventShown",
    {
        "kind": str,
        "at_ms": int,
        "to": NotRequired[str],
        "from": NotRequired[str],
        "id": NotRequired[str],
        "entry": NotRequired[str],
        "seq": NotRequired[int],
        "attempt": NotRequired[int],
        "who": NotRequired[str],
        "instance": NotRequired[str],
        "reason": NotRequired[str],
        "accepted_at": NotRequired[int],
        "taken_at": NotRequired[int],
        "type": NotRequired[str],
        "thread": NotRequired[str],
        "priority": NotRequired[int],
        "bytes": NotRequired[int],
    },
)


class Activity(TypedDict):
    events: list[EventShown]


class Counters(TypedDict):
    """What one instance has counted since it began."""

    instance: str
    sessions: int
    accepted: int
    delivered: int
    acked: int
    refused: int
    waiting: int


class Stats(TypedDict):
    tenant: str
    agents: int
    online: int
    messages: int
    bytes: int
    dead: int
    oldest_ms: int | None
    instance: NotRequired[Counters]


class Anomaly(TypedDict):
    agent: str
    kind: Literal["nearly_full", "stale", "dead_letters"]
    depth: NotRequired[int]
    limit: NotRequired[int]
    oldest_ms: NotRequired[int]
    online: NotRequired[bool]
    dead: NotRequired[int]


class Anomalies(TypedDict):
    anomalies: list[Anomaly]


# -- health


class Alive(TypedDict):
    status: Literal["alive"]


class Readiness(TypedDict):
    """503 has the same fields, and says why."""

    status: Literal["ready", "not_ready"]
    instance: str
    sessions: int
    messages: int
    depth_by_shard: dict[str, int]
    durability: str | None
    reason: NotRequired[str]
    workers: NotRequired[dict[str, Any]]
