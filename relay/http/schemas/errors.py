"""The error body of every operation."""

from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from relay.errors import (
    Busy,
    Forbidden,
    LockLost,
    Malformed,
    NotFound,
    QueueFull,
    RateLimited,
    RelayError,
    StoreUnavailable,
    TooLarge,
    Unauthorized,
    UnknownAgent,
)
from relay.http.schemas.fields import Code, ErrorText, MessageId, Recipient, Retryable, doc

WIRE_ERRORS = (
    *(Malformed, Unauthorized, Forbidden, NotFound, UnknownAgent, LockLost, Busy, TooLarge),
    *(QueueFull, RateLimited, StoreUnavailable),
)


class ErrorFields(Struct, kw_only=True):
    """What went wrong, and whether a retry can succeed."""

    code: Code
    message: ErrorText
    retryable: Retryable
    retry_after_ms: Annotated[int, doc("When to try again, in milliseconds from now.", 1_000)] | UnsetType = UNSET
    id: MessageId | UnsetType = UNSET
    to: Recipient | UnsetType = UNSET
    max: Annotated[int, doc("How many bytes are allowed.", 262_144)] | UnsetType = UNSET
    depth: Annotated[int, doc("How many messages are in the full mailbox.", 1_000)] | UnsetType = UNSET
    limit: Annotated[int, doc("How many messages the mailbox may have.", 1_000)] | UnsetType = UNSET
    bytes: Annotated[int, doc("How many bytes are in the full mailbox.", 1_048_576)] | UnsetType = UNSET
    bytes_limit: Annotated[int, doc("How many bytes the mailbox may have.", 67_108_864)] | UnsetType = UNSET


def error_fields(error: RelayError, **where: Any) -> ErrorFields:
    """An error, with which message it is about."""
    return ErrorFields(**error.as_fields() | where)


class Error(Struct):
    """The envelope of every error."""

    error: Annotated[ErrorFields, doc("What went wrong.")]
