"""For pytest: `from relay.testing.fixture import fake_relay` in a conftest, and tests can ask for it."""

import pytest

from relay.testing.fake import FakeRelay


@pytest.fixture
def fake_relay() -> FakeRelay:
    """A relay of the test's own."""
    return FakeRelay()
