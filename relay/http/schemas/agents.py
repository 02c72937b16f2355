"""Agents and their blocks, as operations answer with them."""

from typing import Annotated, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from relay.http.schemas import fields
from relay.http.schemas.fields import AgentAddress, doc


class PresenceShown(Struct):
    """Whether an agent is online, and when it was last seen."""

    online: fields.Online
    last_seen_ms: fields.LastSeenMs
    next_active_at_ms: fields.NextActiveAtMs | UnsetType = UNSET


class PauseShown(Struct):
    """A pause: who stopped delivery, when and why."""

    by: Annotated[str, doc("Who paused it.", "acme/root")]
    since_ms: Annotated[int, doc("Since when, in milliseconds since 1970.", 1_800_000_000_000)]
    scope: Annotated[Literal["agent", "tenant"], doc("Whether the agent is paused or its whole tenant.", "agent")]
    reason: Annotated[str, doc("Why, if it was said.", "its database is being moved")] | UnsetType = UNSET


class SessionShown(Struct):
    """A session or a waiting call of an agent."""

    session: fields.Holder
    mode: Annotated[
        str,
        fields.one_of("exclusive", "shared", "puller", "sender"),
        doc("How it serves the mailbox; a sender does not.", "exclusive"),
    ]
    window: Annotated[int | None, doc("How many unconfirmed messages it will hold; null: not known.", 50)]
    holds: Annotated[int, doc("How many messages it holds.", 3)]
    alive: Annotated[bool, doc("Whether its instance is believed to be alive.", True)]


class AgentShown(Struct, kw_only=True):
    """An agent and its mailbox."""

    agent: AgentAddress
    registered: Annotated[bool, doc("Whether somebody has registered the agent.", True)]
    presence: Annotated[PresenceShown, doc("Whether the agent is there, in one object.")]
    online: fields.Online
    last_seen_ms: fields.LastSeenMs
    depth: fields.Depth
    waiting: Annotated[int, doc("How many of them wait to be taken.", 2)]
    held: Annotated[int, doc("How many of them are held, unconfirmed.", 1)]
    delayed: Annotated[int, doc("How many of them must wait until a time has come.", 0)]
    bytes: fields.MailboxBytes
    oldest_ms: fields.OldestMs
    oldest_age_s: Annotated[float | None, doc("How old the oldest message is, in seconds; null: none is there.", 1.5)]
    dead: fields.DeadCount
    mode: fields.Mode
    key: Annotated[
        str | None,
        doc(
            "The agent's Ed25519 public key in base64; null: it has none.",
            fields.KEY_EXAMPLE,
        ),
    ]
    why: (
        Annotated[
            str,
            fields.one_of("paused", "nobody connected", "window of its session full", "next in line"),
            doc("Why what waits is not delivered yet, if something waits.", "nobody connected"),
        ]
        | UnsetType
    ) = UNSET
    paused: Annotated[PauseShown, doc("The pause, if delivery is paused.")] | UnsetType = UNSET
    sessions: Annotated[list[SessionShown], doc("Who serves the mailbox, 100 at most; not in lists.")] | UnsetType = (
        UNSET
    )
    card: Annotated[Raw, doc("What the agent says of itself: a JSON object.", {"name": "Bob"})] | UnsetType = UNSET
    next_active_at_ms: fields.NextActiveAtMs | UnsetType = UNSET
    max_messages: Annotated[int, doc("How many messages it may have, if an admin said.", 50)] | UnsetType = UNSET
    max_bytes: Annotated[int, doc("How many bytes it may have, if an admin said.", 65_536)] | UnsetType = UNSET
    accepted_per_s: (
        Annotated[float, doc("How many messages a second it gets, in sorted lists, if that is known.", 1.2)] | UnsetType
    ) = UNSET
    acked_per_s: (
        Annotated[float, doc("How many messages a second it acks, in sorted lists, if that is known.", 1.1)] | UnsetType
    ) = UNSET
    rate_per_s: (
        Annotated[int, doc("How many messages a second it may send, if an admin said; not in lists.", 10)] | UnsetType
    ) = UNSET
    rate_burst: Annotated[int, doc("How many it may send at once, if an admin said; not in lists.", 20)] | UnsetType = (
        UNSET
    )


class AgentPage(Struct):
    """A page of the agents of a tenant."""

    agents: Annotated[list[AgentShown], doc("The agents of this page.")]
    cursor: fields.AgentCursor | UnsetType = UNSET


class Removed(Struct):
    """An agent that is forgotten."""

    agent: AgentAddress
    removed: Annotated[bool, doc("Always true.", True)] = True


class Blocks(Struct):
    """The senders that an agent has blocked."""

    agents: Annotated[
        list[Annotated[str, doc("A sender that is not heard.", "acme/mallory")]], doc("All that are blocked.")
    ]


class Blocked(Struct):
    """A sender that is blocked."""

    agent: fields.BlockedSender
    blocked: Annotated[bool, doc("Always true.", True)] = True
