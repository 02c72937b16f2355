"""The connection: who it comes back to and when, with which token, and when it does not come back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSCloseCode, web
from aiohttp.test_utils import TestServer

from relay.client import Agent, Closed, Connecting, Ended, Live, Message, Replaced, Unanswered, Unauthorized
from relay.client.connection.connection import ANSWER_S, SILENT_S
from relay.client.connection.link import Link, as_http
from relay.client.connection.states import in_words
from relay.testing import FakeRelay
from relay.testing.session import FakeLink
from tests.agents import until


class Flaky(FakeRelay):
    """Two urls, of which a test says which answer."""

    def __init__(self) -> None:
        super().__init__()
        self.urls = ["fake://a", "fake://b"]
        self.down: set[str] = set()
        self.tried: list[str] = []
        self.links: list[Link] = []

    async def connect(self, url: str) -> Link:
        self.tried.append(url)
        if url in self.down:
            raise ConnectionRefusedError("refused")
        self.links.append(await super().connect(url))
        return self.links[-1]


async def states(agent: Agent) -> AsyncIterator[Any]:
    async for state in agent.states():
        yield state


async def test_another_instance_is_tried_when_one_is_away() -> None:
    relay = Flaky()
    relay.down = {"fake://a"}

    async with relay.agent("alice") as alice:
        await asyncio.wait_for(alice.live(), 2)

        assert relay.tried == ["fake://a", "fake://b"]
        assert alice.state == Live("fake://b", "fake")


async def test_what_the_relay_asks_for_is_waited_for() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        await alice.live()
        relay.drop("alice", "draining", 4001, retry_after_ms=60_000)
        await asyncio.sleep(0.05)
        assert isinstance(alice.state, Connecting | Live)
        assert not alice._engine.connection.is_live()

        relay.clock.advance(seconds=91)

        await asyncio.wait_for(alice.live(), 2)


@pytest.mark.parametrize(
    ("word", "code", "error"),
    [("replaced", 4509, Replaced), ("protocol_violation", 4503, Closed), ("unauthorized", 4501, Unauthorized)],
)
async def test_codes_from_4500_on_are_the_end(word: str, code: int, error: type[Closed]) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        await alice.live()
        relay.drop("alice", word, code)

        with pytest.raises(error):
            await asyncio.wait_for(alice.run(), 2)
        assert not isinstance(alice.state, Live | Connecting)
        with pytest.raises(error):
            await alice.presence("bob")


async def test_a_relay_that_did_not_wait_for_the_token_is_tried_again() -> None:
    relay = FakeRelay()
    tries = 0

    async def slow() -> str:
        nonlocal tries
        tries += 1
        if tries == 2:  # the first is to learn the address
            link = alice._engine.connection._link
            assert isinstance(link, FakeLink)
            link.end(4503)
        return relay.token("alice")

    alice = relay.agent("alice", token=slow)
    async with alice:
        await asyncio.wait_for(alice.live(), 5)

    assert tries == 3


async def test_a_token_is_renewed_before_it_ends() -> None:
    relay = FakeRelay()
    made: list[str] = []

    async def fresh() -> str:
        made.append(relay.token("alice", ttl_s=100))
        return made[-1]

    async with relay.agent("alice", token=fresh) as alice:
        await alice.live()
        before = len(made)
        relay.clock.advance(seconds=85)
        await asyncio.sleep(0.05)
        renewed = len(made)
        relay.clock.advance(seconds=20)
        await asyncio.sleep(0.05)

        assert renewed == before + 1
        assert alice._engine.connection.is_live()


async def test_a_token_that_cannot_be_renewed_ends_the_agent_in_words() -> None:
    relay = FakeRelay()
    async with relay.agent("alice", token=relay.token("alice", ttl_s=10)) as alice:
        await alice.live()
        relay.clock.advance(seconds=11)

        with pytest.raises(Unauthorized, match="the token has expired"):
            await asyncio.wait_for(alice.run(), 2)
        assert isinstance(alice.state, Ended)


async def test_a_token_source_that_fails_for_a_while_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    fails = False

    def fresh() -> str:
        if fails:
            raise RuntimeError("the identity provider is away")
        return relay.token("alice", ttl_s=100)

    async with relay.agent("alice", token=fresh) as alice:
        await alice.live()
        fails = True
        relay.clock.advance(seconds=81)
        await asyncio.sleep(0.02)
        fails = False
        relay.clock.advance(seconds=17)
        await asyncio.sleep(0.02)
        relay.clock.advance(seconds=30)
        await asyncio.sleep(0.02)

        assert alice._engine.connection.is_live()
    assert "no fresh token" in caplog.text


async def test_a_token_source_that_is_away_when_the_relay_is_back_only_delays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    relay = FakeRelay()
    fails = False

    def fresh() -> str:
        if fails:
            raise RuntimeError("the identity provider is away")
        return relay.token("alice")

    async with relay.agent("alice", token=fresh) as alice:
        await alice.live()
        fails = True
        relay.drop("alice")
        await until(lambda: isinstance(alice.state, Connecting) and "identity provider" in alice.state.why)
        fails = False
        relay.clock.advance(seconds=20)

        await asyncio.wait_for(alice.live(), 2)
    assert "no token" in caplog.text


async def test_each_session_plans_one_renewal_however_long_the_last_one_was() -> None:
    relay = FakeRelay()
    made: list[str] = []

    def fresh() -> str:
        made.append(relay.token("alice", ttl_s=1_000))
        return made[-1]

    async with relay.agent("alice", token=fresh) as alice:
        for _ in range(3):
            await alice.live()
            for _ in range(6):
                relay.clock.advance(seconds=SILENT_S + 1)
                await asyncio.sleep(0.005)
            relay.drop("alice")
            await asyncio.sleep(0.005)
            relay.clock.advance(seconds=20)
        await alice.live()
        before = len(made)
        relay.clock.advance(seconds=801)
        await asyncio.sleep(0.02)

        assert len(made) == before + 1


async def test_a_fresh_token_that_the_relay_does_not_take_answers_no_question(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:
        await alice.live()
        await bob.live()
        (session,) = relay.post.sessions["acme/alice"]
        asking = asyncio.create_task(alice.presence("bob"))
        await asyncio.sleep(0)
        session.tell("error", code="unauthorized", message="the token is not valid", retryable=False)

        assert (await asking)["acme/bob"].online
    assert "does not take the fresh token" in caplog.text


async def test_an_answer_that_nobody_waits_for_is_not_taken_for_the_next() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        await alice.live()
        given_up = asyncio.create_task(alice.presence("bob"))
        await asyncio.sleep(0)
        given_up.cancel()

        assert list(await alice.presence("carol")) == ["acme/carol"]


async def test_what_the_relay_cannot_read_at_the_opening_is_the_end() -> None:
    relay = Flaky()
    alice = relay.agent("alice")
    async with alice:
        alice._engine.connection.options["card"] = "no object"
        link = FakeLink()
        link.session = None
        link.tell(b'{"op":"hello","instance":"i","nonce":"bm9uY2U=","protocol":1}')
        link.tell(b'{"op":"error","code":"malformed","message":"Expected `object` - at `$.card`"}')
        relay.connect = lambda _: _given(link)  # type: ignore[method-assign,assignment]

        with pytest.raises(Closed, match=r"\$.card"):
            await asyncio.wait_for(alice.run(), 2)


async def _given(link: FakeLink) -> FakeLink:
    return link


async def test_weeks_of_a_test_end_no_session(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        await alice.live()

        relay.clock.advance(days=28)
        await alice.presence("bob")

    assert caplog.records == []


async def test_an_outage_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    relay.go_down()
    async with relay.agent("alice") as alice:
        for _ in range(5):
            await asyncio.sleep(0.005)
            relay.clock.advance(seconds=20)
        assert isinstance(alice.state, Connecting)
        assert alice.state.attempt > 2

    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        "fake://relay: no relay answers at fake://relay: fake://relay is down"
    ]


async def test_what_was_sent_just_before_the_end_goes_out() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        await alice.send("bob", 1)

    assert relay.waiting("bob") == [1]


async def test_an_agent_leaves_when_the_relay_has_answered_its_goodbye() -> None:
    answered: list[int | None] = []

    async def converse(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(autoclose=False)
        await ws.prepare(request)
        await ws.send_str('{"op":"hello","instance":"i","nonce":"bm9uY2U=","protocol":1}')
        await ws.receive()
        await ws.send_str('{"op":"welcome","agent":"acme/alice","session":"s","epoch":"e","window":50,"protocol":1}')
        goodbye = await ws.receive()
        await asyncio.sleep(0.05)  # it is busy
        answered.append(goodbye.data)
        await ws.close()
        return ws

    app = web.Application()
    app.router.add_get("/v1/ws", converse)
    async with TestServer(app) as server, Agent(str(server.make_url("/")), token=FakeRelay().token("alice")) as alice:
        await alice.live()

        await alice.close()

        assert answered == [WSCloseCode.OK]


async def test_what_is_lost_at_the_end_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.client.agent.engine.CLOSE_WITHIN_S", 0.05)
    relay = FakeRelay()
    relay.go_down()
    async with relay.agent("alice") as alice:
        await alice.send_many("bob", [1, 2])

    assert "2 messages that the relay does not have" in caplog.text


async def test_an_agent_that_cannot_begin_leaves_its_file_to_others(tmp_path: Path) -> None:
    relay = FakeRelay()

    def broken() -> str:
        raise KeyError("TOKEN")

    with pytest.raises(KeyError):
        async with relay.agent("alice", token=broken, outbox=tmp_path / "alice.db"):
            pass
    async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
        await alice.live()


async def test_a_request_while_the_relay_is_away_times_out() -> None:
    relay = FakeRelay()
    relay.go_down()
    async with relay.agent("alice") as alice:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(alice.ask("bob", "anybody?", timeout=0.1), 2)


async def test_a_link_that_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = Flaky()
    async with relay.agent("alice") as alice:
        await alice.live()
        link = relay.links[0]
        assert isinstance(link, FakeLink)
        monkeypatch.setattr(link, "tell", lambda _: None)  # nothing arrives any more

        for _ in range(2):
            relay.clock.advance(seconds=SILENT_S + 1)
            await asyncio.sleep(0.01)
        relay.clock.advance(seconds=ANSWER_S + 1)
        await asyncio.sleep(0.01)
        relay.clock.advance(seconds=1)

        await asyncio.wait_for(alice.live(), 2)
        assert len(relay.links) == 2


async def test_a_link_that_answers_is_kept() -> None:
    relay = Flaky()
    async with relay.agent("alice") as alice:
        await alice.live()
        for _ in range(10):
            relay.clock.advance(seconds=SILENT_S + 1)
            await asyncio.sleep(0.01)

        assert len(relay.links) == 1


async def test_a_bug_in_the_client_ends_the_agent_aloud(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        @bob.on()
        async def handle(_: Message[Any]) -> None: ...

        await bob.live()
        bob._engine.inbox._handle = None  # type: ignore[assignment,method-assign]
        await alice.send("bob", 1)

        with pytest.raises(Closed, match="TypeError"):
            await asyncio.wait_for(bob.run(), 2)
    assert "has failed" in caplog.text


async def test_a_handler_whose_own_task_was_cancelled_goes_on_with_the_next() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        @bob.on()
        async def handle(message: Message[int]) -> int:
            if message.payload == 1 and message.attempt == 1:
                raise asyncio.CancelledError
            return message.payload

        await (await alice.send("bob", 1, max_attempts=1)).ended()

        assert await alice.ask("bob", 2) == 2


async def test_a_request_that_is_acked_without_a_reply_says_so() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        async def ack() -> None:
            async for message in bob.messages(ack=False):
                message.ack()

        acking = asyncio.create_task(ack())
        with pytest.raises(Unanswered):
            await alice.ask("bob", 1, timeout=5)
        sender = relay.agent("cli", token=relay.token("cli", "send"))
        async with sender:
            with pytest.raises(Unanswered):
                await sender.ask("bob", 1, timeout=5)
        acking.cancel()


def test_close_codes_are_said_in_words() -> None:
    assert in_words(4509) == "a newer session of this agent has taken over"
    assert in_words(None) == "the connection was lost"
    assert in_words(4999) == "the connection was closed with code 4999"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("ws://a:8080", "http://a:8080"),
        ("wss://a/", "https://a"),
        ("http://a:1/v1/ws", "http://a:1"),
        ("https://a/relay", "https://a/relay"),
    ],
)
def test_urls_may_be_of_either_kind(url: str, found: str) -> None:
    assert as_http(url) == found


@pytest.mark.parametrize("url", ["a:8080", "ftp://a", "ws://"])
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(ValueError, match="is not the url of a relay"):
        Agent(url, token="t")


@pytest.mark.parametrize("who", [{}, {"token": "t", "key": object()}, {"key": object()}])
def test_an_agent_must_say_who_it_is(who: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="an agent"):
        Agent("ws://a", **who)


@pytest.mark.parametrize("window", [0, 1_001])
def test_a_window_that_the_relay_would_not_take_is_said_at_once(window: int) -> None:
    with pytest.raises(ValueError, match="1 to 1000"):
        FakeRelay().agent("alice", window=window)
