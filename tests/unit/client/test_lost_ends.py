"""Receipts that never come: the sender learns in another way how its messages ended."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from relay.client import Agent, Dead, Delivered, Key, Message, Reject
from relay.client.connection.frames import frame
from relay.testing import FakeRelay
from relay.testing.http import HttpAnswer


class Older(FakeRelay):
    """A relay that does not say with a duplicate how it ended."""

    async def connect(self, url: str) -> Any:
        link: Any = await super().connect(url)
        tell = link.session.tell

        def tell_less(op: str, **fields: Any) -> None:
            fields.pop("ended", None)
            tell(op, **fields)

        link.session.tell = tell_less
        return link


class Silent(FakeRelay):
    """A relay that answers no call over HTTP."""

    async def call(self, *_: Any, **__: Any) -> HttpAnswer:
        raise ConnectionRefusedError


def handle(bob: Agent) -> None:
    @bob.on()
    async def good(message: Message[str]) -> None:
        if message.payload == "bad":
            raise Reject("no")


async def is_empty(relay: FakeRelay, name: str) -> None:
    while relay.waiting(name):  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.parametrize(("kind", "by"), [(Silent, "key"), (Silent, "token"), (Older, "token")])
async def test_the_end_of_a_duplicate_is_learned(kind: type[FakeRelay], by: str, tmp_path: Path) -> None:
    relay = kind()
    options: dict[str, Any] = {"key": Key.generate(), "address": "acme/alice"} if by == "key" else {}
    async with relay.agent("alice", outbox=tmp_path / "alice.db", **options) as alice:
        for id, to in (("good", "bob"), ("bad", "bob"), ("waits", "carol")):
            await alice.send(to, id, id=id)
        await alice.flush()
    async with relay.agent("bob") as bob:
        handle(bob)
        await is_empty(relay, "bob")

    relay.post.receipts.clear()
    relay.epoch = "the store has gone back"
    async with relay.agent("alice", outbox=tmp_path / "alice.db", **options) as alice:
        sents = [alice._engine.outbox.find("bob", id) for id in ("good", "bad")]
        ends = await asyncio.wait_for(asyncio.gather(*(sent.ended() for sent in sents if sent)), 10)

        assert [type(end) for end in ends] == [Delivered, Dead]
        assert alice.unsettled == 1


async def test_ends_whose_receipts_were_too_many_are_looked_up() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:
        sent, waits = await alice.send("bob", "good"), await alice.send("carol", "waits")
        await alice.flush()
        (session,) = relay.post.sessions["acme/alice"]
        session.tell_receipts = lambda: None  # type: ignore[method-assign] # they are dropped
        handle(bob)
        await is_empty(relay, "bob")

        session._link.tell(frame("receipts", cursor="0-0", receipts=[], dropped=1))

        assert await asyncio.wait_for(sent.ended(), 10) == Delivered(attempt=1)
        assert not waits.is_ended
