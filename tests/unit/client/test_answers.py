"""Whose answer an `ask` takes."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from relay.client import Agent, Key, Message, SealingKey, Security, Unanswered
from relay.client.connection.frames import Delivery
from relay.client.outbox.requests import MAX_UNREAD, NO_REPLY, POLL_PAUSE_S
from relay.testing import FakeRelay
from relay.testing.http import HttpAnswer
from tests.agents import until


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


async def test_a_reply_that_comes_again_is_one_part() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        parts = asyncio.ensure_future(parts_of(alice))
        (id,) = await waited_for(alice)

        for text, more in (("once", True), ("once", True), ("upon a time", False)):
            hear(alice, reply(id, "acme/bob", f"reply:{text}", text, more))

        assert await parts == ["once", "upon a time"]


async def parts_of(alice: Agent) -> list[Any]:
    return [part async for part in alice.ask_stream("bob", "tell")]


async def waited_for(alice: Agent) -> list[str]:
    """The ids of its requests, once there is one."""
    return list(await until(lambda: alice._engine.requests._waiting))


def reply(about: str, sender: str, id: str, payload: Any, more: bool) -> Delivery:
    return Delivery("1-0", id, sender, Raw(msgspec.json.encode(payload)), reply_to=about, more=more)


def hear(alice: Agent, delivery: Delivery) -> None:
    alice._engine.inbox.deliver([delivery])


async def test_replies_that_nobody_reads_are_not_kept_without_end(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        story = alice.ask_stream("bob", "tell")
        first = asyncio.ensure_future(anext(story))
        (id,) = await waited_for(alice)

        for n in range(MAX_UNREAD + 100):
            hear(alice, reply(id, "acme/eve", f"e-{n}", n, True))
            hear(alice, reply(id, "acme/bob", f"b-{n}", n, True))

        assert alice._engine.requests._waiting[id].news.qsize() == MAX_UNREAD
        assert await first == 0
        await story.aclose()
    assert "too many wait" in caplog.text


class Away(FakeRelay):
    """No call over HTTP comes through."""

    async def call(self, *_: Any, **__: Any) -> HttpAnswer:
        raise ConnectionRefusedError


async def test_a_reply_whose_key_cannot_be_looked_up_does_not_outlast_the_timeout() -> None:
    relay = Away()
    async with relay.agent("alice", security=keys(), mode="exclusive") as alice:
        answer = asyncio.ensure_future(alice.ask("bob", "when?", timeout=1))
        (id,) = await waited_for(alice)
        sealed = {"sealed": "x25519-chacha20poly1305", "once": "", "box": ""}

        hear(alice, reply(id, "acme/bob", "reply:1", sealed, False))

        with pytest.raises(TimeoutError, match=NO_REPLY):
            await asyncio.wait_for(answer, 10)


class Hasty(FakeRelay):
    """Answers calls at once, and says nothing in them that helps."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        super().__init__()
        self._answers = answers
        self.calls = 0

    async def call(self, *_: Any, **__: Any) -> HttpAnswer:
        self.calls += 1
        return 200, self._answers[self.calls % len(self._answers)]


@pytest.mark.parametrize("answer", [{"state": "queued"}, {}, {"state": 5}, {"state": "queued", "parts": 1}])
async def test_a_relay_that_answers_polls_at_once_is_not_asked_all_the_time(answer: dict[str, Any]) -> None:
    relay = Hasty(answer)
    async with relay.agent("alice", mode="shared") as alice:
        with pytest.raises(TimeoutError):
            await alice.ask("bob", "when?", timeout=0.5)

    assert relay.calls <= 0.5 / POLL_PAUSE_S + 2


async def test_the_same_holds_for_the_news_of_a_request_that_was_acked() -> None:
    relay = Hasty({"state": "held"})
    async with relay.agent("alice", mode="exclusive") as alice, relay.agent("bob") as bob:

        @bob.on()
        async def acks(message: Message[Any]) -> None:
            message.ack()

        with pytest.raises(Unanswered):
            await alice.ask("bob", "when?", timeout=0.5)

    assert relay.calls <= 0.5 / POLL_PAUSE_S + 2
