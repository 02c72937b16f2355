"""Pauses, as operations answer with them."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from relay.http.schemas.agents import PauseShown
from relay.http.schemas.fields import AgentAddress, doc

PAUSE = {"by": "acme/root", "since_ms": 1_800_000_000_000, "scope": "agent"}


class AgentPaused(Struct):
    """An agent, and its pause."""

    agent: AgentAddress
    paused: Annotated[PauseShown | None, doc("Its own pause; null: it has none.", PAUSE)]


class TenantPaused(Struct):
    """A tenant, and its pause."""

    tenant: Annotated[str, doc("The tenant.", "acme")]
    paused: Annotated[PauseShown | None, doc("Its pause; null: it has none.", PAUSE | {"scope": "tenant"})]


class PausedAgent(Struct):
    """An agent that is paused itself."""

    agent: AgentAddress
    by: Annotated[str, doc("Who paused it.", "acme/root")]
    since_ms: Annotated[int, doc("Since when, in milliseconds since 1970.", 1_800_000_000_000)]
    reason: Annotated[str, doc("Why, if it was said.", "its database is being moved")] | UnsetType = UNSET


class PausePage(Struct):
    """What is paused in a tenant."""

    tenant: Annotated[PauseShown | None, doc("The pause of the whole tenant; null: none.", PAUSE | {"scope": "tenant"})]
    agents: Annotated[list[PausedAgent], doc("The agents that are paused themselves.")]
    cursor: Annotated[str, doc("Where the next page begins, if there is one.", "12")] | UnsetType = UNSET
