"""What `relay send` says when the recipient takes no more."""

from typing import Any

import pytest

from relay.cli import client as commands
from relay.testing import FakeRelay


class FakePlace:
    """Somebody at the command line of a fake relay whose mailboxes hold two messages."""

    def __init__(self) -> None:
        self._relay = FakeRelay(mailbox_max_messages=2)

    def agent(self) -> Any:
        return self._relay.agent("cli")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "CONNECT_WITHIN_S", 0.1)
    monkeypatch.setattr("relay.client.agent.engine.CLOSE_WITHIN_S", 0.01)


async def test_lines_that_find_no_room_are_counted() -> None:
    sending = commands._send_lines(FakePlace(), "bob", ["1", "2", "3", "4", "5"], {})  # type: ignore[arg-type]

    with pytest.raises(commands.NothingCame, match="the mailbox of bob is full; the last 3 of 5 lines were not sent"):
        await sending


async def test_a_message_that_finds_no_room_is_said_to_be_unsent() -> None:
    place: Any = FakePlace()
    async with place.agent() as other:
        await other.send_many("bob", [1, 2])
        await other.flush()

    with pytest.raises(commands.NothingCame, match="the mailbox of bob is full; it was not sent"):
        await commands._send(place, "bob", 3, {})
