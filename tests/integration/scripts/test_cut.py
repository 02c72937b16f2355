"""cut: the oldest events are cut, and those that nobody will read any more are counted."""

import pytest

from relay.store.redis.scripts import script
from tests.builders import Desk


async def trim(desk: Desk, keep: int) -> tuple[int, int]:
    packet = desk.encoder.packet(script("cut"), 0, [keep], keys=[desk.keys.archived(0)])
    cut, not_archived = await desk.store.pipeline.reply(packet)
    return cut, not_archived


def left(desk: Desk) -> list[str]:
    return [id for id, _ in desk.redis.xrange(desk.keys.events(0))]


def counted(desk: Desk) -> str | None:
    found: str | None = desk.redis.hget(desk.keys.totals(0), "events_cut")
    return found


@pytest.fixture
def desk(desk: Desk) -> Desk:
    """With 300 events."""
    for n in range(1, 301):
        desk.redis.xadd(desk.keys.events(0), {"e1": "…"}, id=f"{n}-0")
    return desk


async def test_a_log_that_is_no_longer_than_that_stays(desk: Desk) -> None:
    assert await trim(desk, 300) == (0, 0)
    assert (len(left(desk)), counted(desk)) == (300, None)


async def test_without_an_archive_whatever_is_cut_is_counted(desk: Desk) -> None:
    assert await trim(desk, 20) == (280, 280)
    assert (left(desk)[0], len(left(desk)), counted(desk)) == ("281-0", 20, "280")


async def test_what_is_archived_is_not(desk: Desk) -> None:
    desk.redis.set(desk.keys.archived(0), "300-0")

    assert await trim(desk, 20) == (280, 0)
    assert (left(desk)[0], counted(desk)) == ("281-0", None)


async def test_of_a_run_that_is_archived_in_part_all_is_counted(desk: Desk) -> None:
    desk.redis.set(desk.keys.archived(0), "150-0")

    assert await trim(desk, 20) == (280, 180)  # a run has 100
    assert counted(desk) == "180"


async def test_counts_add_up(desk: Desk) -> None:
    await trim(desk, 200)
    await trim(desk, 150)

    assert counted(desk) == "150"
