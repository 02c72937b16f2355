"""Health and readiness, as operations answer with them."""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from relay.http.schemas import fields
from relay.http.schemas.fields import doc


class Alive(Struct):
    """The process answers."""

    status: Annotated[Literal["alive"], doc("Always alive.", "alive")] = "alive"


class StoreMemory(Struct):
    """How full the store is."""

    used_bytes: Annotated[int, doc("How much memory the store uses.", 104_857_600)]
    max_bytes: Annotated[int, doc("How much it may use; 0: no limit is set.", 1_073_741_824)]
    share: Annotated[float, doc("The used share of what it may use.", 0.098)]
    refusing_sends: Annotated[bool, doc("Whether sends are refused until there is room.", False)]


class WentBack(Struct):
    """A shard of the store that has gone back in time: what was stored last is lost."""

    shard: Annotated[int, doc("The shard.", 3)]
    at_ms: Annotated[int, doc("When that was noticed, in milliseconds since 1970.", 1_800_000_005_123)]
    last_kept: Annotated[str, doc("The newest entry of its event log that was kept; 0-0: none.", "1800000000000-0")]
    first_lost: Annotated[str, doc("The oldest entry that is known to be lost.", "1800000000210-0")]
    newest_known: Annotated[str, doc("The newest entry that is known to be lost.", "1800000004870-2")]
    entries: Annotated[int, doc("How many entries are lost, at least.", 26)]
    seconds: Annotated[float, doc("How much time is missing.", 4.87)]


class Readiness(Struct, kw_only=True):
    """A 503 has the same fields, with the reason. A warning keeps the instance ready: agents may connect and drain."""

    status: Annotated[Literal["ready", "not_ready"], doc("Whether this instance should get traffic.", "ready")]
    instance: fields.Instance
    sessions: Annotated[int, doc("How many sessions are open here.", 12)]
    messages: Annotated[int, doc("How many messages are in all mailboxes.", 15)]
    depth_by_shard: Annotated[dict[str, int], doc("How many messages each shard has, if any.", {"3": 15})]
    durability: Annotated[str | None, doc("What an accepted message survives; null: not known yet.", "fsync")]
    memory: Annotated[StoreMemory, doc("How full the store is.")]
    warnings: (
        Annotated[
            list[Annotated[str, doc("A warning.", "the store is nearly full")]], doc("What an operator should know.")
        ]
        | UnsetType
    ) = UNSET
    masters_away: (
        Annotated[
            list[Annotated[str, doc("A master, by its address.", "10.0.0.7:6379")]],
            doc("The masters of a Cluster that do not answer. Their shards refuse with store_unavailable."),
        ]
        | UnsetType
    ) = UNSET
    regressed: Annotated[list[WentBack], doc("The shards that went back in time within the last hour.")] | UnsetType = (
        UNSET
    )
    workers_absent_s: (
        Annotated[
            int, doc("For how many seconds no worker has gone round, if too long: what is delayed stands still.", 300)
        ]
        | UnsetType
    ) = UNSET
    reason: Annotated[str, doc("Why it should get no traffic.", "this instance is stopping")] | UnsetType = UNSET
    workers: (
        Annotated[dict[str, str], doc("The workers that fail, and why.", {"sweeper": "the store is away"})] | UnsetType
    ) = UNSET
