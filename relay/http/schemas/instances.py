"""Instances and workers, as operations answer with them."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from relay.http.schemas import fields
from relay.http.schemas.fields import doc


class InstanceShown(Struct, kw_only=True):
    """One relay process."""

    instance: fields.Instance
    alive: Annotated[bool, doc("Whether it has said so lately.", True)]
    until_ms: Annotated[
        int, doc("Until when it is believed to be alive, in milliseconds since 1970.", 1_800_000_030_000)
    ]
    this: Annotated[bool, doc("Whether it is the one that answers.", True)]


class WorkerShown(Struct, kw_only=True):
    """A background duty and its last round. Fields of a duty that never ran are absent."""

    worker: Annotated[str, doc("Which duty it is.", "sweeper")]
    last_round_ms: Annotated[
        int | None, doc("When its last round ended, in milliseconds since 1970; null: none did.", 1_800_000_000_000)
    ]
    late: Annotated[bool, doc("Whether several rounds are missing.", False)]
    holder: Annotated[str, doc("The process that does it.", "5f0c2a9d1e")] | UnsetType = UNSET
    took_ms: Annotated[int, doc("How long the last round took, in milliseconds.", 3)] | UnsetType = UNSET
    done: Annotated[int, doc("How much there was to do.", 0)] | UnsetType = UNSET
    every_s: Annotated[float, doc("How many seconds are between rounds.", 300.0)] | UnsetType = UNSET
    error: Annotated[str, doc("Why it fails, if it does.", "the store is away")] | UnsetType = UNSET


class Processes(Struct):
    """What runs on this store."""

    instances: Annotated[list[InstanceShown], doc("Those that are alive, and those that died lately.")]
    workers: Annotated[list[WorkerShown], doc("Every duty that was ever done, or fails.")]
