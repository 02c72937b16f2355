"""Totals, snapshots and counters of an instance, as operations answer with them."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from relay.http.schemas import fields
from relay.http.schemas.agents import PauseShown
from relay.http.schemas.fields import AgentAddress, doc

OldestAgeS = Annotated[float | None, doc("How old the oldest message is, in seconds; null: none is there.", 1.5)]
AcceptedPerS = Annotated[float, doc("How many messages were accepted in a second.", 12.0)]
AckedPerS = Annotated[float, doc("How many messages were acked in a second, which is delivered.", 11.8)]


class Counters(Struct, kw_only=True):
    """What one instance has counted since it began."""

    instance: fields.Instance
    sessions: Annotated[int, doc("How many sessions are open now.", 12)]
    accepted: Annotated[int, doc("How many messages were accepted.", 1_000)]
    taken: Annotated[int, doc("How many times a message was handed to a holder.", 990)]
    acked: Annotated[int, doc("How many messages were acked, which is delivered; by a reply or by itself.", 985)]
    refused: Annotated[int, doc("How many messages were refused.", 3)]
    store_messages: Annotated[int, doc("How many messages are in the mailboxes of all tenants.", 15)]
    events_cut: Annotated[int, doc("How many events the store has dropped unread.", 2)] | UnsetType = UNSET


class PercentilesShown(Struct):
    """Percentiles in milliseconds."""

    p50: Annotated[int, doc("Half of them took no longer.", 2)]
    p95: Annotated[int, doc("95 of 100 took no longer.", 5)]
    p99: Annotated[int, doc("99 of 100 took no longer.", 9)]


class SnapshotShown(Struct, kw_only=True):
    """The state at one time, and the activity in the seconds before."""

    at_ms: Annotated[int, doc("When the snapshot was taken, in milliseconds since 1970.", 1_800_000_010_000)]
    seconds: Annotated[float, doc("How many seconds its counts and rates are about.", 10.0)]
    counts: Annotated[
        dict[str, int],
        doc("How many events there were of each kind; others are left out.", {"accepted": 120, "acked": 118}),
    ]
    accepted_per_s: AcceptedPerS
    acked_per_s: AckedPerS
    messages: Annotated[int, doc("How many messages were in mailboxes.", 15)]
    bytes: Annotated[int, doc("How many bytes of payload these had.", 2_048)]
    dead: fields.DeadCount
    online: Annotated[int, doc("How many agents were online.", 12)]
    oldest_age_s: OldestAgeS
    taken_ms: Annotated[
        PercentilesShown | None, doc("From accepted to taken; null: nothing was.", {"p50": 2, "p95": 5, "p99": 9})
    ]
    acked_ms: Annotated[
        PercentilesShown | None,
        doc("From accepted to acked; null: nothing was.", {"p50": 4, "p95": 9, "p99": 20}),
    ]
    estimated: Annotated[bool, doc("Whether there were more events than one round reads.", False)]


class BusyAgentShown(Struct, kw_only=True):
    """An agent among the busiest, as of the latest snapshot."""

    agent: AgentAddress
    depth: fields.Depth
    oldest_age_s: OldestAgeS
    dead: fields.DeadCount
    accepted_per_s: Annotated[float, doc("How many messages to it were accepted in a second.", 1.2)]
    acked_per_s: Annotated[float, doc("How many messages it acked in a second.", 1.1)]
    sent_per_s: Annotated[float, doc("How many messages it sent in a second.", 0.0)]


class ShardShown(Struct, kw_only=True):
    """A shard, as of the latest snapshot."""

    shard: Annotated[int, doc("Its number.", 3)]
    messages: Annotated[int, doc("How many messages it has.", 15)]
    oldest_age_s: OldestAgeS
    accepted_per_s: AcceptedPerS
    acked_per_s: AckedPerS


class Stats(Struct, kw_only=True):
    """Totals and activity of a tenant."""

    tenant: Annotated[str, doc("The tenant; `*`: all of them.", "acme")]
    at_ms: Annotated[int, doc("When this was told, in milliseconds since 1970.", 1_800_000_012_345)]
    agents: Annotated[int, doc("How many agents are known.", 40)]
    online: Annotated[int, doc("How many of them are online.", 12)]
    messages: Annotated[int, doc("How many messages are in their mailboxes: waiting, held or delayed.", 15)]
    bytes: Annotated[int, doc("How many bytes of payload these have.", 2_048)]
    dead: Annotated[int, doc("How many messages are in their dead-letter boxes.", 0)]
    oldest_ms: fields.OldestMs
    history: Annotated[list[SnapshotShown], doc("What was before, oldest first; empty if no observer works.")]
    busiest: Annotated[list[BusyAgentShown], doc("The agents where the most happened; 20 at most.")]
    paused: Annotated[PauseShown, doc("The pause, if delivery in the whole tenant is paused.")] | UnsetType = UNSET
    shards: Annotated[list[ShardShown], doc("The shards that have something; for all tenants.")] | UnsetType = UNSET
    instance: Annotated[Counters, doc("What this instance counts; for an operator.")] | UnsetType = UNSET
