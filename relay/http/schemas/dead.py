"""The dead-letter box, as operations answer with it."""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType, field

from relay.http.schemas import fields
from relay.http.schemas.fields import DeadEntry, MessageId, Payload, Recipient, Sender, doc


class Failure(Struct):
    """One delivery that failed."""

    attempt: fields.Attempt
    at_ms: fields.AtMs
    holder: fields.Holder
    reason: Annotated[str, doc("Why it failed, in the words of the holder or the relay.", "cannot parse the order")]


class DeadLetterShown(Struct, kw_only=True):
    """A message that failed too often; the payload only with the scope `inspect`.

    Of a record that cannot be read, `id` and `from` are empty, and there is no payload."""

    entry: DeadEntry
    id: MessageId
    to: Recipient
    sender: Sender = field(name="from")
    priority: fields.Priority
    bytes: fields.Bytes
    reason: Annotated[str, doc("Why the message is here.", "cannot parse the order")]
    attempts: Annotated[int, doc("How many deliveries it had.", 5)]
    at_ms: fields.AtMs
    history: Annotated[list[Failure], doc("The deliveries that failed, oldest first.")]
    type: fields.Type | UnsetType = UNSET
    thread: fields.Thread | UnsetType = UNSET
    payload: Payload | UnsetType = UNSET


class DeadPage(Struct):
    """A page of a dead-letter box, oldest first."""

    messages: Annotated[list[DeadLetterShown], doc("The dead letters of this page.")]
    cursor: fields.Cursor | UnsetType = UNSET


class RevivedEntry(Struct):
    """A dead letter that is in its mailbox again."""

    entry: DeadEntry
    new_entry: Annotated[str, doc("Its handle in the mailbox.", "1800000000789-0")]


class RefusedLetter(Struct):
    """A dead letter that stays where it is."""

    entry: DeadEntry
    code: Annotated[Literal["queue_full", "duplicate", "not_found", "unreadable"], doc("Why it stays.", "queue_full")]


class Revived(Struct):
    """Every dead letter of the call is in one of the two lists."""

    revived: Annotated[list[RevivedEntry], doc("Those that are in their mailbox again.")]
    refused: Annotated[list[RefusedLetter], doc("Those that are not.")]


class Dropped(Struct):
    """A dead letter that was removed for good."""

    entry: DeadEntry
    dropped: Annotated[bool, doc("Always true.", True)] = True
