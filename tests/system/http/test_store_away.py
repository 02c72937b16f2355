"""Every call while the store is away: 503 with a code, and well again by itself when it is back."""

import asyncio

import pytest

from tests.callers import Caller, admin, caller, soon
from tests.system.conftest import Room
from tests.system.http.test_door import CALLS

pytestmark = pytest.mark.xdist_group("http store")

SETTINGS = {"recheck_s": 0.2, "heartbeat_s": 2}


async def _ready(room: Room) -> int:
    return (await room.a.ready())[0]


async def test_without_a_store_calls_are_503_and_it_recovers_by_itself(room: Room) -> None:
    await caller(room, "me").send("me", "m-1")
    room.redis.close()

    room.relay.server.kill()
    await soon(lambda: _ready(room), 503)
    every = await asyncio.gather(*(admin(room, "me").call(method, path, body) for method, path, body, _ in CALLS))
    answers = {f"{method} {path}": answer for (method, path, *_), answer in zip(CALLS, every, strict=True)}
    stranger = await Caller(room.a.url).post("/v1/agents/me/messages", {"payload": 1})
    alive = await Caller(room.a.url).get("/healthz")
    room.relay.server.start()
    await soon(lambda: _ready(room), 200)
    sent = await caller(room, "me").send("me", "m-2")

    statuses = {name: answer.status for name, answer in answers.items()}
    # What can be told without the store is told: nothing was named to be settled.
    assert statuses.pop("POST /v1/agents/me/settle") == 200
    assert set(statuses.values()) == {503}
    for answer in answers.values():
        if answer.status == 503:
            assert (answer.code, answer["error"]["retryable"]) == ("store_unavailable", True)
            assert "redis" not in answer.text.lower()
    assert stranger.status == 401
    assert alive.status == 200
    assert sent["duplicate"] is False
