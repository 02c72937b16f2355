"""An agent in a unit test: no relay runs, no socket is opened, and a week passes at once."""

from relay.client import Agent, Expired, Message
from relay.testing import FakeRelay
from relay.testing.fixture import fake_relay

__all__ = ["fake_relay"]  # pytest finds the fixture here; a project has it in its conftest


def greeter(agent: Agent) -> None:
    """The agent under test."""

    @agent.on("greet")
    async def greet(message: Message[str]) -> str:
        return f"Hello {message.payload}"


async def test_it_greets(fake_relay: FakeRelay) -> None:
    async with fake_relay.agent("greeter") as agent, fake_relay.agent("ann") as ann:
        greeter(agent)

        assert await ann.ask("greeter", "Ann", type="greet") == "Hello Ann"


async def test_nobody_hears_what_is_older_than_a_week(fake_relay: FakeRelay) -> None:
    async with fake_relay.agent("ann") as ann:
        sent = await ann.send("greeter", "Ann", type="greet")
        await sent.accepted()

        fake_relay.clock.advance(days=8)

        assert await sent.ended() == Expired()
