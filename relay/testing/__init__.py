"""A relay for tests, in the test's own process: no sockets, no Redis, and a clock that the test moves."""

from relay.testing.clock import HandClock
from relay.testing.fake import FakeRelay

__all__ = ["FakeRelay", "HandClock"]
