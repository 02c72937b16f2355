"""Acts on many messages, as operations take them and answer with them."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from relay.http.body import RequestBody
from relay.http.schemas import fields
from relay.http.schemas.fields import MessageId, Sender, doc

MOST_MATCHES = 1_000  # of one call

ActName = Literal["revive", "drop", "cancel", "resend"]
Seconds = Annotated[float, Meta(ge=0, le=315_360_000)]


class Choice(RequestBody, kw_only=True):
    """Selects messages: all given conditions must hold."""

    type: Annotated[Annotated[str, Meta(max_length=128)] | None, doc("Of this type.", "job")] = None
    sender: Annotated[Annotated[str, Meta(max_length=129)] | None, doc("From this agent.", "alice")] = field(
        name="from", default=None
    )
    reason: Annotated[
        Annotated[str, Meta(max_length=500)] | None, doc("Whose reason contains this; of dead letters.", "cannot parse")
    ] = None
    older_than_s: Annotated[Seconds | None, doc("That died, or were accepted, longer ago than this.", 3_600)] = None
    newer_than_s: Annotated[Seconds | None, doc("That died, or were accepted, less long ago.", 86_400)] = None
    entries: Annotated[
        Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=MOST_MATCHES)] | None,
        doc("Those with these handles.", ["1800000000456-0"]),
    ] = None


class Edit(RequestBody, kw_only=True):
    """The fields of a copy that differ from the dead letter."""

    payload: Annotated[Raw, doc("Another payload: any JSON value.", {"sum": [2, 2]})] | UnsetType = UNSET
    type: Annotated[str, Meta(max_length=128), doc("Another type.", "job")] | UnsetType = UNSET
    headers: Annotated[dict[str, str], doc("Other headers.", {"tried": "twice"})] | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=0, le=9), doc("Another priority.", 3)] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=0, le=100), doc("Its attempts; 0: no limit.", 5)] | UnsetType = UNSET
    delay_s: Annotated[Seconds, doc("How long it waits before its first delivery.", 60)] | UnsetType = UNSET


class Act(RequestBody, kw_only=True):
    """An act, and the messages of an agent that it selects."""

    act: Annotated[
        ActName,
        doc("Revive, drop or resend dead letters, or cancel what waits in the mailbox.", "revive"),
    ]
    where: Annotated[Choice, doc("Which messages; left out: all of them.")] = field(default_factory=Choice)
    dry_run: Annotated[bool, doc("Whether only to say what would be done: nothing changes.", True)] = True
    limit: Annotated[int, Meta(ge=1, le=MOST_MATCHES), doc("How many messages at most in this call.", 100)] = 100
    cursor: Annotated[Annotated[str, Meta(max_length=100)] | None, doc("Where to go on.", "1800000000456-0")] = None
    edit: Annotated[Edit | None, doc("What is another in the copies; for resend.", {"type": "job"})] = None


class ActedOn(Struct, kw_only=True):
    """A selected message, and the outcome."""

    entry: fields.Entry
    id: MessageId
    sender: Sender = field(name="from")
    attempts: Annotated[int, doc("How many deliveries it had.", 5)]
    at_ms: Annotated[int, doc("When it died, or was accepted, in milliseconds since 1970.", 1_800_000_000_456)]
    outcome: Annotated[str, doc("What was done, would be done, or why not: a word or a code.", "done")]
    type: fields.Type | UnsetType = UNSET
    reason: Annotated[str, doc("Why it died.", "cannot parse the order")] | UnsetType = UNSET
    new_entry: Annotated[str, doc("Its new handle, if it was revived.", "1800000000789-0")] | UnsetType = UNSET
    new_id: Annotated[str, doc("The id of its copy, if it was sent again.", "m-1~1800000000456-0")] | UnsetType = UNSET


class Acted(Struct, kw_only=True):
    """What was done, or what would be done in a dry run."""

    act: Annotated[ActName, doc("What was asked for.", "revive")]
    dry_run: Annotated[bool, doc("Whether nothing was changed.", True)]
    matched: Annotated[int, doc("How many messages were chosen.", 1)]
    done: Annotated[int, doc("How many of them it was done to.", 0)]
    looked_at: Annotated[int, doc("How many messages were looked at.", 200)]
    messages: Annotated[list[ActedOn], doc("The messages that were chosen.")]
    cursor: Annotated[str, doc("Where to go on, if there is more to look at.", "1800000000456-0")] | UnsetType = UNSET
