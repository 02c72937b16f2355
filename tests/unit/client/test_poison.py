"""One message of a peer does not keep an agent from the others, nor does one that it cannot read end a loop."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relay.client import Agent, CannotOpen, Dead, Delivered, Gap, Key, Message, SealingKey, Security
from relay.client.connection.frames import Deliver, frame, parse
from relay.client.journal import open_journal
from relay.client.keys.security import _context
from relay.client.payloads import WrongPayload, plain
from relay.testing import FakeRelay

DEEPEST = 950  # about what a relay takes
HUGE = b"9" * 5_000  # valid JSON, and more digits than Python reads


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def below(calls: int, step: Callable[[], Any]) -> Any:
    """The step, so many calls deep: a program may be anywhere when it starts its event loop."""
    return step() if calls == 0 else below(calls - 1, step)


def test_a_deep_payload_does_not_take_the_rest_of_its_frame_along() -> None:
    both = [{"entry": f"{n}-0", "id": f"m-{n}", "from": "acme/eve"} for n in (1, 2)]
    text = frame("deliver", messages=[{**both[0], "payload": msgspec.Raw(nested(DEEPEST))}, both[1]])

    found = below(300, lambda: parse(text))

    assert isinstance(found, Deliver)
    assert [message.id for message in found.messages] == ["m-1", "m-2"]


async def test_a_loop_over_messages_goes_on_after_one_that_cannot_be_read() -> None:
    relay = FakeRelay()
    async with relay.agent("bob") as bob, relay.agent("eve") as eve, asyncio.timeout(10):
        bad = await eve.send("bob", msgspec.Raw(HUGE))
        await eve.send("bob", "good")

        async for message in bob.messages():
            assert message.payload == "good"
            break

        assert isinstance(await bad.ended(), Dead)


def test_half_a_surrogate_pair_is_no_payload() -> None:
    with pytest.raises(WrongPayload):
        plain(b'"\\ud800"')


async def test_a_report_of_a_gap_that_fails_costs_no_message(caplog: pytest.LogCaptureFixture) -> None:
    relay = FakeRelay()

    def on_gap(gap: Gap) -> None:
        raise ZeroDivisionError(gap)

    async with relay.agent("bob", on_gap=on_gap) as bob, relay.agent("alice") as alice:

        @bob.on()
        async def handle(message: Message[int]) -> None:
            pass

        await (await alice.send("bob", 1)).ended()
        relay.post.seqs["acme/alice", "acme/bob", ""] = 10**12
        sent = await alice.send("bob", 2)

        assert await asyncio.wait_for(sent.ended(), 10) == Delivered(attempt=1)
    assert "on_gap failed" in caplog.text


async def test_a_callback_that_fails_keeps_nobody_from_hearing_of_a_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard = asyncio.Event()
    journal = await open_journal(tmp_path / "outbox.db", lambda _: None)
    try:
        journal.then(lambda: [][0])
        journal.then(heard.set)
        await asyncio.wait_for(heard.wait(), 10)

        await asyncio.wait_for(journal.kept(), 10)
    finally:
        await journal.close()
    assert "what follows a commit failed" in caplog.text


# -- seals


class Sealing:
    """Bob and eve, who have sealing keys."""

    def __init__(self) -> None:
        self.relay = FakeRelay()
        self.bobs, self.eves = SealingKey.generate(), SealingKey.generate()
        self.bob = self.relay.agent("bob", security=Security(seal_with=self.bobs))
        self.eve = self.relay.agent("eve", security=Security(sign_with=Key.generate(), seal_with=self.eves))

    def sealed(self, content: bytes, id: str) -> msgspec.Raw:
        return msgspec.Raw(self.eves.seal(self.bobs.public, content, _context("acme/eve", "acme/bob", id)))


async def until_dead(eve: Agent, payload: msgspec.Raw, id: str) -> Dead:
    await eve.live()
    async with asyncio.timeout(10):
        end = await (await eve.send("bob", payload, id=id)).ended()
    assert isinstance(end, Dead)
    return end


async def test_what_was_sealed_must_be_json() -> None:
    seals = Sealing()
    async with seals.bob, seals.eve:
        end = await until_dead(seals.eve, seals.sealed(b"\x1b]52;c;AAAA\x07", "m-1"), "m-1")

    assert end.reason == "CannotOpen: there is no JSON in it"


def test_a_seal_that_is_nested_too_deeply_cannot_be_opened() -> None:
    deep = b'{"sealed":"x25519-chacha20poly1305","x":%b}' % nested(2_000)

    with pytest.raises(CannotOpen):
        SealingKey.generate().open(SealingKey.generate().public, deep, b"")


async def test_nobody_seals_to_a_key_of_small_order() -> None:
    seals = Sealing()
    async with seals.bob as bob:
        await bob.live()
        seals.relay.registrations["acme/mallory"] = {"card": {"sealing_key": "A" * 43 + "="}}

        with pytest.raises(CannotOpen):
            await bob.send("mallory", "secret", sealed=True)


async def test_an_error_about_an_entry_answers_no_question() -> None:
    relay = FakeRelay()
    async with relay.agent("bob") as bob:
        await bob.live()
        (session,) = relay.post.sessions["acme/bob"]
        asked = asyncio.ensure_future(bob.presence("alice"))
        await asyncio.sleep(0)

        session._link.tell(frame("error", code="malformed", message="no request", entry="1-0"))

        assert not (await asked)["acme/alice"].online
