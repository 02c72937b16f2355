"""What the sweeper does with old events: with and without an archive that reads them."""

import pytest

from relay.settings import DAY_S
from tests.builders import NOON_MS, Desk, HandClock
from tests.conftest import MakeDesk
from workers.sweeper import sweep_shard

HOUR_MS = 3_600_000


@pytest.fixture
async def desk(make_desk: MakeDesk) -> Desk:
    return await make_desk(clock=HandClock(), events_keep_s=DAY_S, events_keep_unarchived_s=7 * DAY_S)


def add_event(desk: Desk, hours_ago: int) -> str:
    return str(desk.redis.xadd(desk.keys.events(0), {"e1": "…"}, id=f"{NOON_MS - hours_ago * HOUR_MS}-5"))


def ages(desk: Desk) -> list[int]:
    """Of the events that are left, in hours."""
    found = desk.redis.xrange(desk.keys.events(0))
    return [(NOON_MS - int(entry.partition("-")[0])) // HOUR_MS for entry, _ in found]


async def test_without_an_archive_events_go_when_they_are_old(desk: Desk) -> None:
    for hours in (200, 30, 20):
        add_event(desk, hours)

    await sweep_shard(desk.store, 0, NOON_MS)

    assert ages(desk) == [20]


async def test_events_that_the_archive_has_not_read_stay(desk: Desk) -> None:
    entries = [add_event(desk, hours) for hours in (40, 35, 30, 20)]
    desk.redis.set(desk.keys.archived(0), entries[1])

    await sweep_shard(desk.store, 0, NOON_MS)

    assert ages(desk) == [35, 30, 20]


async def test_events_that_the_archive_has_read_stay_as_long_as_without_it(desk: Desk) -> None:
    entries = [add_event(desk, hours) for hours in (30, 20, 10)]
    desk.redis.set(desk.keys.archived(0), entries[2])

    await sweep_shard(desk.store, 0, NOON_MS)

    assert ages(desk) == [20, 10]


async def test_an_archive_that_has_died_does_not_keep_events_for_ever(desk: Desk) -> None:
    entries = [add_event(desk, hours) for hours in (300, 200, 100)]
    desk.redis.set(desk.keys.archived(0), entries[0])

    await sweep_shard(desk.store, 0, NOON_MS)

    assert ages(desk) == [100]
