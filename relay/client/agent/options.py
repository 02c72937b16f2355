"""How an agent was made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from relay.client.inbox.gaps import Gap
from relay.client.keys.security import Security


@dataclass(frozen=True, slots=True)
class Options:
    """How an agent was made."""

    outbox: str | Path | None
    outbox_limit: int
    waits_when_full: bool
    mode: Literal["exclusive", "shared"] | None
    window: int
    ack_timeout_s: float | None
    card: dict[str, Any]
    security: Security
    on_gap: Callable[[Gap], None] | None
