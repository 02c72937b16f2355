"""Events, as operations answer with them."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType, field

from relay.http.schemas import fields
from relay.http.schemas.fields import Entry, MessageId, Recipient, Sender, doc


class EventShown(Struct, kw_only=True):
    """Something that happened; what an event does not have is left out."""

    kind: Annotated[str, doc("What happened.", "acked")]
    at_ms: fields.AtMs
    to: Recipient | UnsetType = UNSET
    sender: Sender | UnsetType = field(name="from", default=UNSET)
    id: MessageId | UnsetType = UNSET
    entry: Entry | UnsetType = UNSET
    seq: fields.Seq | UnsetType = UNSET
    attempt: fields.Attempt | UnsetType = UNSET
    who: Annotated[str, doc("The session, worker or person (its address) that did it.", "5f0c2a9d1e.7")] | UnsetType = (
        UNSET
    )
    instance: fields.Instance | UnsetType = UNSET
    reason: Annotated[str, doc("Why it happened.", "cannot parse the order")] | UnsetType = UNSET
    accepted_at: fields.SentAtMs | UnsetType = UNSET
    taken_at: fields.TakenAtMs | UnsetType = UNSET
    type: fields.Type | UnsetType = UNSET
    thread: fields.Thread | UnsetType = UNSET
    priority: fields.Priority | UnsetType = UNSET
    bytes: fields.Bytes | UnsetType = UNSET


class Activity(Struct, kw_only=True):
    """A page of events, newest first."""

    events: Annotated[list[EventShown], doc("The events of this page.")]
    complete: Annotated[bool, doc("Whether there is nothing older that fits.", True)]
    looked_back_to_ms: fields.LookedBackToMs | UnsetType = UNSET
    reaches_back_to_ms: (
        Annotated[int, doc("How far back the log goes, in ms since 1970, if it lost older events.", 1_799_990_000_000)]
        | UnsetType
    ) = UNSET
    note: (
        Annotated[str, doc("What is missing, if something may be.", "the log no longer has what happened before")]
        | UnsetType
    ) = UNSET
    cursor: Annotated[str, doc("Where the next page begins, if there is one.", "1799999000000-0-3-1")] | UnsetType = (
        UNSET
    )
