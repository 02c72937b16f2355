"""kept: whether the event log still has an entry. Trimmed is not lost."""

import pytest

from tests.builders import Desk


@pytest.fixture
def log(desk: Desk) -> list[str]:
    """The entries of an event log."""
    return [str(desk.redis.xadd(desk.keys.events(0), {"e1": "…"}, id=f"{n}-0")) for n in range(1, 6)]


async def is_kept(desk: Desk, entry: str) -> int:
    return int(await desk.run("kept", desk.keys.events(0), entry))


async def test_what_is_there_is_kept(desk: Desk, log: list[str]) -> None:
    assert [await is_kept(desk, entry) for entry in log] == [1] * 5


async def test_what_was_trimmed_is_not_lost(desk: Desk, log: list[str]) -> None:
    desk.redis.xtrim(desk.keys.events(0), maxlen=2, approximate=False)

    assert [await is_kept(desk, entry) for entry in log] == [1] * 5


async def test_what_is_missing_at_the_end_is_lost(desk: Desk, log: list[str]) -> None:
    assert await is_kept(desk, log[-1]) == 1
    assert await is_kept(desk, "6-0") == 0


async def test_what_is_missing_behind_what_is_left_of_a_trimmed_log_is_lost(desk: Desk, log: list[str]) -> None:
    desk.redis.xtrim(desk.keys.events(0), maxlen=2, approximate=False)

    assert await is_kept(desk, log[0]) == 1
    assert await is_kept(desk, "6-0") == 0


async def test_without_a_log_everything_is_lost(desk: Desk) -> None:
    assert await is_kept(desk, "1-0") == 0
