"""What all capabilities of an agent share: the open engine."""

from relay.client.agent.engine import Engine
from relay.client.errors import Closed
from relay.client.outbox.outgoing import Outgoing


class NeedsEngine:
    """An agent between the beginning and the end of its `async with`."""

    def __init__(self) -> None:
        self._opened: Engine | None = None

    @property
    def _engine(self) -> Engine:
        if self._opened is None:
            raise Closed("the agent is not open: use it in `async with`")
        return self._opened

    @property
    def _outgoing(self) -> Outgoing:
        """Raises why the agent is over."""
        self._engine.check()
        return self._engine.outgoing
