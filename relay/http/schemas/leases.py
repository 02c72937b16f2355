"""Leases and what settles them, as operations answer with them."""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType, field

from relay.http.schemas import fields
from relay.http.schemas.fields import Entry, MessageId, Payload, Sender, doc


class Leased(Struct, kw_only=True):
    """A delivery, with the token that settles it."""

    entry: Entry
    lock_token: fields.LockToken
    id: MessageId
    sender: Sender = field(name="from")
    seq: fields.Seq
    attempt: fields.Attempt
    was_stored: Annotated[bool, doc("Whether the message waited before the call was made.", True)]
    priority: fields.Priority
    payload: Payload
    sent_at_ms: fields.SentAtMs
    expires_at_ms: fields.ExpiresAtMs
    request: Annotated[bool, doc("Whether the sender waits for a reply.", False)]
    type: fields.Type | UnsetType = UNSET
    thread: fields.Thread | UnsetType = UNSET
    reply_to: fields.ReplyTo | UnsetType = UNSET
    headers: fields.Headers | UnsetType = UNSET
    signature: fields.Signature | UnsetType = UNSET


class LeasedMessages(Struct):
    """What was leased; empty if nothing came in time."""

    messages: Annotated[list[Leased], doc("The messages that the caller holds now.")]


class SettledEntry(Struct):
    """An entry that is settled."""

    entry: Entry
    settled: Annotated[Literal["ack", "nack", "release", "touch", "reply"], doc("How the entry was settled.", "ack")]


class RefusedEntry(Struct):
    """An entry that could not be settled, and why."""

    entry: Entry
    code: Annotated[str, doc("What went wrong, as a word for programs.", "lock_lost")]
    message: Annotated[str, doc("What went wrong, for people.", "somebody else holds the message")]
    retryable: Annotated[bool, doc("Whether the same call can succeed later.", False)]
    retry_after_ms: Annotated[int, doc("When to try again, in milliseconds from now.", 1_000)] | UnsetType = UNSET


class SettledEntries(Struct):
    """Every entry of the call is in one of the two lists."""

    settled: Annotated[list[Entry], doc("The entries that are settled.")]
    refused: Annotated[list[RefusedEntry], doc("The entries that are not.")]
