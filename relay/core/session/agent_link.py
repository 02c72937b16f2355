"""The link to one authenticated agent: its identity, and the output for its frames."""

from collections.abc import Callable

from relay.auth import Identity
from relay.core.output_budget import Output
from relay.errors import RelayError
from relay.protocol.frames import frame
from relay.telemetry.metrics import Metrics


class AgentLink:
    """Writing never waits; what is written in one turn of the event loop goes out together."""

    __slots__ = ("_metrics", "address", "identity", "output", "send", "tenant")

    def __init__(self, identity: Identity, output: Output, write: Callable[[bytes], None], metrics: Metrics) -> None:
        self.identity = identity  # a fresh token may change its scopes
        self.address = identity.address
        self.tenant = identity.tenant
        self.output = output
        self.send = write
        self._metrics = metrics

    def send_error(self, error: RelayError) -> None:
        self.send(frame("error", **error.as_fields()))

    def offer(self, text: bytes) -> None:
        """Sends what is sent at most once: a client that does not read does not get it."""
        if self.output.room():
            self.send(text)
        else:
            self._metrics.events_dropped += 1
