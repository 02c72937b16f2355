"""A token that may only look is held to that, by every operation that the relay describes."""

import re
from typing import Any

import pytest

from tests.callers import caller
from tests.system.conftest import Room

SETTINGS = {"shards": 4, "rate_per_s": 0}
IN_PATH = {"agent": "bob", "id": "m-1", "entry": "1-0", "address": "mallory"}


async def changing_operations(room: Room) -> list[tuple[str, str]]:
    document: Any = (await caller(room, "eve", "inspect").get("/openapi.json")).body
    return [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda name: (IN_PATH | {"tenant": room.tenant})[name[1]], path))
        for path, methods in document["paths"].items()
        for method in methods
        if method.upper() != "GET" and path.startswith("/v1/")
    ]


def keys_of(room: Room) -> set[str]:
    """The keys that name somebody of this room: workers make others at any time."""
    return {str(key) for key in room.redis.scan_iter(f"*{room.tenant}*")}


@pytest.mark.parametrize("scope", ["inspect", "metrics", "inspect metrics", ""])
async def test_whoever_may_only_look_changes_nothing(room: Room, scope: str) -> None:
    await caller(room, "alice").send("bob", "m-1")
    before = keys_of(room)
    eve = caller(room, "eve", scope)

    operations = await changing_operations(room)
    answers = {(method, path): await eve.call(method, path, b"{}") for method, path in operations}

    assert len(operations) >= 20
    assert {key: answer.status for key, answer in answers.items() if answer.status != 403} == {}
    assert keys_of(room) == before
    assert room.depth("bob") == 1
