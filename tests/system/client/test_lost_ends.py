"""The store goes back in time and lacks receipts of messages that it knows to have ended: their senders learn it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from relay.client import Agent, Dead, Delivered, Expired, Key, Message, Reject
from tests.agents import until
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("store failures")

SETTINGS = {"recheck_s": 1}
WITHIN_S = 60  # long before the TTL


@pytest.fixture(params=["token", "key"])
def alices(request: pytest.FixtureRequest, room: Room) -> dict[str, Any]:
    """How alice authenticates. Who has a key alone cannot call HTTP."""
    if request.param == "key":
        return {"key": Key.generate(), "address": room.address("alice")}
    return {"token": lambda: room.token("alice")}


def urls(room: Room) -> list[str]:
    return [room.a.url, room.b.url]


async def lose_receipts(room: Room) -> None:
    """Those that wait for alice, and then something that was promised."""
    receipts = room.keys.receipts(room.address("alice"))
    await until(lambda: room.redis.xlen(receipts))
    room.redis.delete(receipts)
    await asyncio.to_thread(room.relay.server.back_up)
    async with Agent(urls(room), token=room.token("eve", scope="send")) as eve:
        await (await eve.send("carol", "lost")).accepted()
    await asyncio.to_thread(room.relay.server.go_back)


async def test_an_end_that_was_lost_is_told_with_the_duplicate(
    room: Room, alices: dict[str, Any], tmp_path: Path
) -> None:
    async with Agent(urls(room), outbox=tmp_path / "alice.db", **alices) as alice:
        await alice.send("bob", 1, id="good")
        await alice.send("bob", 2, id="bad")
        await alice.send("carol", 3, id="late", ttl=1)
        await alice.send("carol", 4, id="waits")
        await alice.flush()
    await all_ends(room)

    await lose_receipts(room)
    async with Agent(urls(room), outbox=tmp_path / "alice.db", **alices) as alice:
        sents = {
            id: alice._engine.outbox.find(to, id) for to, id in (("bob", "good"), ("bob", "bad"), ("carol", "late"))
        }
        ends = await asyncio.wait_for(asyncio.gather(*(sent.ended() for sent in sents.values() if sent)), WITHIN_S)

        assert ends == [Delivered(attempt=2), Dead(attempt=1), Expired()]
        assert alice.unsettled == 1


async def all_ends(room: Room) -> None:
    """Bob takes one, at the second attempt, and rejects the other. What is for carol is too late."""
    async with Agent(urls(room), token=lambda: room.token("bob")) as bob:

        @bob.on()
        async def handle(message: Message[int]) -> None:
            if message.payload == 2:
                raise Reject("no")
            if message.attempt == 1:
                message.nack("again", after=0)

        await until(lambda: room.depth("bob") == 0)
    await until(lambda: room.depth("carol") == 1, within_s=20)
