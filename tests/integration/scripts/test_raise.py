"""raise: what looks wrong is kept, and what is old is forgotten."""

from typing import Any

import msgspec

from tests.builders import Desk


async def raise_(desk: Desk, keep_ms: int, found: list[str], old: list[str]) -> Any:
    return await desk.run("raise", desk.keys.anomalies("acme"), msgspec.msgpack.encode([keep_ms, found, old]))


async def test_what_is_found_is_kept_and_what_is_old_is_not(desk: Desk) -> None:
    await raise_(desk, 60_000, ["stale bob", "1", "flash carol", "1"], [])

    word = await raise_(desk, 60_000, ["stale bob", "2"], ["flash carol", "never there"])

    assert word == b"raised"
    assert desk.redis.hgetall(desk.keys.anomalies("acme")) == {"stale bob": "2"}


async def test_they_are_kept_as_long_as_the_last_call_says(desk: Desk) -> None:
    await raise_(desk, 60_000, ["stale bob", "1"], [])

    await raise_(desk, 600_000, [], [])

    assert 60_000 < desk.redis.pttl(desk.keys.anomalies("acme")) <= 600_000


async def test_of_nothing_nothing_is_kept(desk: Desk) -> None:
    assert await raise_(desk, 60_000, [], []) == b"raised"
    assert not desk.redis.exists(desk.keys.anomalies("acme"))
