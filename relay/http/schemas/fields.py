"""Fields that many bodies share: each has one type, one meaning and one example."""

from typing import Annotated, Literal

from msgspec import Meta, Raw


def doc(description: str, *examples: object) -> Meta:
    """Description and example of a field for the OpenAPI document."""
    return Meta(description=description, examples=list(examples) or None)


def one_of(*words: str) -> Meta:
    """A text that is one of these words."""
    return Meta(extra_json_schema={"enum": list(words)})


KEY_EXAMPLE = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="

AgentAddress = Annotated[str, doc("The address of an agent: its tenant and its name.", "acme/bob")]
BlockedSender = Annotated[str, doc("A sender that is not heard.", "acme/mallory")]
Recipient = Annotated[str, doc("The address of the recipient.", "acme/bob")]
Sender = Annotated[str, doc("The address of the sender.", "acme/alice")]
MessageId = Annotated[str, doc("The id that the sender gave the message, else one that the relay made up.", "m-1")]
Entry = Annotated[str, doc("The handle that the relay gave the message in its mailbox.", "1800000000123-0")]
DeadEntry = Annotated[str, doc("The handle of a message in the dead-letter box.", "1800000000456-0")]
Seq = Annotated[int, doc("The number of the message among those from this sender to this recipient, from 1.", 1)]
Attempt = Annotated[int, doc("Which delivery this is, from 1.", 1)]
Priority = Annotated[int, doc("0 to 9; a higher one is delivered earlier.", 0)]
Bytes = Annotated[int, doc("The size of the payload in bytes.", 17)]
SentAtMs = Annotated[int, doc("When the relay accepted the message, in milliseconds since 1970.", 1_800_000_000_123)]
TakenAtMs = Annotated[int, doc("When the message was taken, in milliseconds since 1970.", 1_800_000_000_223)]
ExpiresAtMs = Annotated[int, doc("When the message expires, in milliseconds since 1970.", 1_800_086_400_123)]
Type = Annotated[str, doc("What kind of message its sender calls it.", "job")]
Thread = Annotated[str, doc("The conversation that the message belongs to.", "order-4711")]
ReplyTo = Annotated[str, doc("The id of the message that this one answers.", "m-0")]
Headers = Annotated[dict[str, str], doc("Names and values that the sender added.", {"traceparent": "00-4bf9-00f0-01"})]
Signature = Annotated[str, doc("The sender's signature of the message, as the sender wrote it.", "c2lnbmVk")]
Payload = Annotated[Raw, doc("Any JSON value, as its writer wrote it.", {"sum": [2, 2]})]
LockToken = Annotated[
    str, doc("Proves the lease; every settling needs it.", "1.1800000000200.1800000000123-0.http.w1.5f0c2a9d")
]
Holder = Annotated[str, doc("The session or lease that holds the message.", "5f0c2a9d1e.7")]
HeldSinceMs = Annotated[int, doc("Since when it is held, in milliseconds since 1970.", 1_800_000_000_223)]
Why = Annotated[
    str,
    one_of(
        *("paused", "nobody connected", "window of its session full", "next in line"),
        *("delayed by its sender", "backing off after a nack", "the dead-letter box is full"),
        *("held by its session", "held by a lease"),
    ),
    doc("Why the message is not delivered yet.", "backing off after a nack"),
]
UntilMs = Annotated[
    int,
    doc("When its delay or its hold ends, in milliseconds since 1970, if a time is set.", 1_800_000_010_123),
]
Instance = Annotated[str, doc("The instance of the relay.", "5f0c2a9d1e")]
AgentCursor = Annotated[str, doc("Where the next page begins, if there is one.", "3:acme/bob")]
Cursor = Annotated[str, doc("Where the next page begins, if there is one.", "1800000000123-0")]
LookedBackToMs = Annotated[int, doc("How far back this page looked, in ms since 1970.", 1_799_999_000_000)]
Mode = Annotated[
    Literal["exclusive", "shared"] | None,
    doc("Whether one session serves the mailbox or several do; null: the agent has not said.", "shared"),
]
Online = Annotated[bool, doc("Whether a session or a waiting call serves the mailbox.", True)]
LastSeenMs = Annotated[
    int | None,
    doc("When the agent was last online, in milliseconds since 1970; null: not known.", 1_800_000_000_000),
]
NextActiveAtMs = Annotated[
    int, doc("When the agent says it will be back, in milliseconds since 1970.", 1_800_003_600_000)
]
Depth = Annotated[int, doc("How many messages are in the mailbox.", 3)]
MailboxBytes = Annotated[int, doc("How many bytes of payload are in the mailbox.", 512)]
OldestMs = Annotated[
    int | None,
    doc("When the oldest message was accepted, in milliseconds since 1970; null: none is there.", 1_800_000_000_123),
]
DeadCount = Annotated[int, doc("How many messages are in the dead-letter box.", 0)]
AtMs = Annotated[int, doc("When it happened, in milliseconds since 1970.", 1_800_000_000_456)]
Code = Annotated[str, doc("What went wrong, as a word for programs.", "queue_full")]
ErrorText = Annotated[str, doc("What went wrong, for people.", "the recipient's mailbox is full")]
Retryable = Annotated[bool, doc("Whether the same call can succeed later.", True)]
