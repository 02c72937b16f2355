"""Messages and tasks, as operations answer with them."""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType, field

from relay.http.schemas import fields
from relay.http.schemas.errors import ErrorFields
from relay.http.schemas.fields import Entry, MessageId, Payload, Recipient, Sender, doc, one_of


class Accepted(Struct, kw_only=True):
    """A message in the mailbox. The `seq` of a duplicate is unknown."""

    id: MessageId
    to: Recipient
    state: Annotated[str, one_of("queued"), doc("Where the message is now.", "queued")]
    duplicate: Annotated[bool, doc("Whether the message had been accepted before.", False)]
    durability: Annotated[str, one_of("memory", "fsync", "replica"), doc("What the message survives by now.", "fsync")]
    seq: fields.Seq | UnsetType = UNSET


class BatchAnswer(Struct):
    """Every message of a batch is in one of the two lists."""

    accepted: Annotated[list[Accepted], doc("The messages that are in the mailbox.")]
    refused: Annotated[list[ErrorFields], doc("Why the others are not, each with its `id` if it has one.")]


class Located(Struct, kw_only=True):
    """Where a message is, and why it is not delivered yet."""

    id: MessageId
    to: Recipient
    sender: Sender = field(name="from")
    state: Annotated[
        str,
        one_of("queued", "held", "delayed", "acked", "dead", "expired", "cancelled"),
        doc("Where the message is, or how it ended.", "held"),
    ]
    entry: Entry
    attempt: fields.Attempt
    at_ms: Annotated[
        int, doc("When the message was accepted, or when it ended, in milliseconds since 1970.", 1_800_000_000_123)
    ]
    max_attempts: Annotated[int, doc("After how many failed attempts it is dead.", 5)] | UnsetType = UNSET
    why: fields.Why | UnsetType = UNSET
    until_ms: fields.UntilMs | UnsetType = UNSET
    holder: fields.Holder | UnsetType = UNSET
    held_since_ms: fields.HeldSinceMs | UnsetType = UNSET


class Cancelled(Struct):
    """A message that its sender cancelled."""

    id: MessageId
    state: Annotated[Literal["cancelled"], doc("How the message ended.", "cancelled")] = "cancelled"


class MailboxMessage(Struct, kw_only=True):
    """A message in its mailbox; the payload only with the scope `inspect`.

    Of a record that cannot be read, `id` and `from` are empty, and there is no payload."""

    entry: Entry
    id: MessageId
    to: Recipient
    sender: Sender = field(name="from")
    state: Annotated[
        str, one_of("queued", "held", "delayed"), doc("Waiting, held by somebody, or not due yet.", "queued")
    ]
    attempt: Annotated[int, doc("How many deliveries it has had.", 0)]
    seq: fields.Seq
    priority: fields.Priority
    bytes: fields.Bytes
    sent_at_ms: fields.SentAtMs
    expires_at_ms: fields.ExpiresAtMs
    type: fields.Type | UnsetType = UNSET
    thread: fields.Thread | UnsetType = UNSET
    why: fields.Why
    until_ms: fields.UntilMs | UnsetType = UNSET
    holder: fields.Holder | UnsetType = UNSET
    held_since_ms: fields.HeldSinceMs | UnsetType = UNSET
    payload: Payload | UnsetType = UNSET


class MailboxPage(Struct):
    """A page of a mailbox, in the order of delivery."""

    messages: Annotated[list[MailboxMessage], doc("What is in the mailbox.")]
    cursor: Annotated[str, doc("Where the next page begins, if there is one.", "1:1800000000123-0")] | UnsetType = UNSET


class TaskState(Struct, kw_only=True):
    """A request: its parts so far, and its reply when it has one."""

    id: MessageId
    to: Recipient
    state: Annotated[
        str,
        one_of("queued", "held", "replied", "dead", "expired", "acked", "cancelled"),
        doc("Where the request is, or how it ended.", "replied"),
    ]
    parts: Annotated[list[Payload], doc("What the recipient answered before the end, in order.")] | UnsetType = UNSET
    reply: Annotated[Payload, doc("The last answer; any JSON value.", {"sum": 4})] | UnsetType = UNSET
