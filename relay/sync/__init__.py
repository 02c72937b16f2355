"""The client for scripts: the same agent, without `await`, over one event loop in the background."""

from relay.sync.agent import Agent
from relay.sync.sent import Sent

__all__ = ["Agent", "Sent"]
