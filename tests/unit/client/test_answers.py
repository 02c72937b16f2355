"""Whose answer an `ask` takes."""

import asyncio
from typing import Any

import pytest

from relay.client import Agent, Key, Message, SealingKey, Security
from relay.testing import FakeRelay


def keys() -> Security:
    return Security(sign_with=Key.generate(), seal_with=SealingKey.generate())


def asked(bob: Agent) -> "asyncio.Future[Message[Any]]":
    """The first message that comes to an agent that does not answer by itself."""

    async def first() -> Message[Any]:
        async for message in bob.messages(ack=False):
            return message
        raise AssertionError

    return asyncio.ensure_future(first())


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_third_agent_that_knows_the_id_does_not_answer(sealed: bool, caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    async with (
        relay.agent("alice", security=keys()) as alice,
        relay.agent("bob", security=keys()) as bob,
        relay.agent("eve", security=keys()) as eve,
    ):
        request = asked(bob)
        await bob.live()
        answer = asyncio.ensure_future(alice.ask("bob", "when?", sealed=sealed, timeout=60))
        message = await asyncio.wait_for(request, 60)
        await (await eve.send("alice", "never", reply_to=message.id, sealed=sealed)).ended()

        message.reply("at noon")

        assert await answer == "at noon"
    assert "acme/eve" in caplog.text


async def test_a_sealed_question_is_not_answered_in_clear(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    async with relay.agent("alice", security=keys()) as alice, relay.agent("bob", security=keys()) as bob:
        request = asked(bob)
        await bob.live()
        answer = asyncio.ensure_future(alice.ask("bob", "when?", sealed=True, timeout=60))
        message = await asyncio.wait_for(request, 60)
        await (await bob.send("alice", "never", reply_to=message.id)).ended()

        message.reply("at noon")

        assert await answer == "at noon"
    assert "it is not sealed" in caplog.text
