"""Nothing that a peer, the relay or the network says ends an agent."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from relay.client import Agent, Closed, Delivered, Key, Message, SealingKey, Security, errors
from relay.client.connection.backoff import Backoff
from relay.client.connection.frames import frame
from relay.client.connection.states import CLOSE_CODES, COME_BACK_BELOW
from relay.testing import FakeRelay
from relay.testing.http import HttpAnswer
from tests.agents import until

HUGE = b"9" * 5_000  # valid JSON, and more digits than Python reads
GUIDE = Path(__file__).parents[3] / "docs/client.md"


def tell(relay: FakeRelay, name: str, text: bytes) -> None:
    """The relay says this to an agent."""
    (session,) = relay.post.sessions[f"acme/{name}"]
    session._link.tell(text)


async def is_well(relay: FakeRelay) -> bool:
    """Whether bob still answers."""
    async with relay.agent("carol") as carol:
        return bool(await carol.ask("bob", 1, type="sum", timeout=2) == 2)


def answers(bob: Agent) -> None:
    @bob.on()
    async def add(message: Message[Any]) -> Any:
        return message.payload + 1


@pytest.mark.parametrize(
    "text",
    [
        b'{"op":"event","topic":"news","from":"acme/eve","payload":%b}' % HUGE,
        b'{"op":"event","topic":"news","from":"acme/eve","payload":"\xff"}',
        b'{"op":"closing","code":"draining","retry_after_ms":%b}' % HUGE[:4_000],
        b'{"op":"refused","refusals":[{"code":"queue_full","id":"x","retryable":true,"retry_after_ms":-5}]}',
        b'{"op":"deliver","messages":[{"entry":"1-0","id":"x","from":"acme/eve","seq":%b}]}' % HUGE,
        b'{"op":"deliver","messages":[{"entry":"1-0","id":"x","from":"acme/eve","payload":%b}]}' % HUGE,
        b"\xff",
        b"[" * 10_000,
    ],
)
async def test_no_frame_ends_an_agent(text: bytes) -> None:
    relay = FakeRelay()
    async with relay.agent("bob") as bob:
        answers(bob)
        heard = bob.subscribe("news")
        next_event = asyncio.ensure_future(anext(heard))
        await relay.until_subscribed("news")

        tell(relay, "bob", text)
        tell(relay, "bob", frame("event", topic="news", payload=1, **{"from": "acme/alice"}))

        assert (await asyncio.wait_for(next_event, 2)).payload == 1
        assert await is_well(relay)


async def test_a_publication_that_cannot_be_read_is_dropped_and_said_without_its_payload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    relay = FakeRelay()
    async with relay.agent("bob") as bob:
        await bob.live()
        tell(relay, "bob", b'{"op":"event","topic":"news","from":"acme/eve","payload":%b}' % HUGE)

        await until(lambda: "a publication of acme/eve" in caplog.text)
        assert "999" not in caplog.text


@pytest.mark.parametrize(
    "card",
    [
        {"sealing_key": "AAAA", "sealing_signature": 5},
        {"sealing_key": []},
        {"sealing_key": "é"},
        {"sealing_key": "AAAA"},
    ],
)
async def test_no_card_ends_an_agent(card: dict[str, Any]) -> None:
    relay = FakeRelay()
    security = Security(sign_with=Key.generate(), seal_with=SealingKey.generate())
    async with relay.agent("bob", security=security) as bob, relay.agent("eve", security=security) as eve:
        answers(bob)
        await (await eve.send("bob", 1)).ended()
        relay.registrations["acme/eve"] = {"card": card}

        sent = await eve.send("bob", {"sealed": "x25519-chacha20poly1305", "once": "", "box": 1})

        await asyncio.wait_for(sent.accepted(), 2)
        assert await is_well(relay)


class Stingy(FakeRelay):
    """Refuses the first lookups of an agent: the caller is over its rate."""

    refuses = 2

    async def call(self, method: str, url: str, path: str, token: str, body: Any = None) -> HttpAnswer:
        if method == "GET" and self.refuses:
            self.refuses -= 1
            return 429, {"error": {"code": "rate_limited", "message": "too fast", "retry_after_ms": 1}}
        return await super().call(method, url, path, token, body)


async def test_a_lookup_over_the_rate_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.client.connection.calls.AWAY_PAUSE_S", 0.001)
    relay = Stingy()
    signing = Security(sign_with=Key.generate())
    async with relay.agent("bob") as bob, relay.agent("eve", security=signing) as eve:
        answers(bob)
        sent = await eve.send("bob", 1)

        assert await asyncio.wait_for(sent.ended(), 5) == Delivered(attempt=1, was_stored=False)
        assert relay.refuses == 0


@pytest.mark.parametrize("asked_s", [0, 2**53 / 1_000])
def test_a_relay_cannot_keep_a_client_busy_nor_away_for_good(asked_s: float) -> None:
    pauses = [Backoff(0.5, 15).next_s(asked_s) for _ in range(50)]

    assert min(pauses) >= 0.05
    assert max(pauses) <= 5_400


async def test_a_call_that_waits_for_the_relay_has_the_token_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.client.connection.calls.AWAY_PAUSE_S", 0.001)
    relay = Stingy()
    async with relay.agent("bob") as bob:
        await bob.live()
        credentials, used = bob._engine._credentials, []
        answer = relay.call

        async def call(method: str, url: str, path: str, token: str, body: Any = None) -> HttpAnswer:
            used.append(token)
            credentials.token = relay.token("bob", ttl_s=9_999)  # it is renewed meanwhile
            return await answer(method, url, path, token, body)

        monkeypatch.setattr(relay, "call", call)
        await bob._engine.calls.agent("bob")

    assert used[0] not in used[1:]


def ends_in_the_guide() -> dict[int, str]:
    """Close code → the error that the guide names for it."""
    rows = re.findall(r"^\| .*\((45\d\d)\) \| `(\w+)` \|$", GUIDE.read_text(), re.MULTILINE)
    return {int(code): name for code, name in rows}


def test_the_guide_lists_every_close_code_that_ends_an_agent() -> None:
    assert set(ends_in_the_guide()) == {code for code in CLOSE_CODES if code >= COME_BACK_BELOW}


@pytest.mark.parametrize(("code", "name"), ends_in_the_guide().items())
async def test_a_close_code_ends_an_agent_as_the_guide_says(code: int, name: str) -> None:
    relay = FakeRelay()
    async with relay.agent("alice", token=relay.token("alice")) as alice:
        await alice.live()
        relay.drop("alice", "over", code)

        with pytest.raises(Closed) as ended:
            await asyncio.wait_for(alice.run(), 2)
    assert type(ended.value) is getattr(errors, name)
