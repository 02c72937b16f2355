"""The event logs of a store are bounded in bytes, all together; what is cut unread is counted."""

import pytest

from tests.builders import Desk
from tests.conftest import MakeDesk
from workers.events import limit_bytes, trim_logs, water_level
from workers.loop import run_once
from workers.main import workers

MIB = 2**20


@pytest.fixture
async def desk(make_desk: MakeDesk) -> Desk:
    return await make_desk(shards=4, events_max_bytes=MIB)


def write(desk: Desk, shard: int, entries: int, size: int = 1_000) -> list[str]:
    with desk.redis.pipeline(transaction=False) as pipeline:
        for _ in range(entries):
            pipeline.xadd(desk.keys.events(shard), {"e1": "x" * size})
        return [str(entry) for entry in pipeline.execute()]


def used(desk: Desk) -> list[int]:
    sizes = (desk.redis.memory_usage(desk.keys.events(shard), samples=0) for shard in range(4))
    return [int(size or 0) for size in sizes]


def length(desk: Desk, shard: int) -> int:
    return int(desk.redis.xlen(desk.keys.events(shard)))


async def test_logs_within_the_limit_are_left_alone(desk: Desk) -> None:
    write(desk, 0, 500)

    assert await trim_logs(desk.store, 0, 0) == 0
    assert length(desk, 0) == 500


async def test_the_longest_logs_are_cut_and_the_short_ones_stay_whole(desk: Desk) -> None:
    write(desk, 0, 2_000)
    write(desk, 1, 1_000)
    newest = write(desk, 2, 50)

    await run_once(desk.store, workers(desk.store.settings)["events"])

    assert sum(used(desk)) <= MIB
    assert abs(length(desk, 0) - length(desk, 1)) < 20
    assert [entry for entry, _ in desk.redis.xrange(desk.keys.events(2))] == newest


async def test_entries_that_grow_are_seen(desk: Desk) -> None:
    write(desk, 0, 300, size=10)
    await trim_logs(desk.store, 0, 0)

    write(desk, 0, 300, size=10_000)
    for _ in range(3):
        await trim_logs(desk.store, 0, 0)

    assert sum(used(desk)) <= MIB


async def test_what_is_cut_without_an_archive_is_counted(desk: Desk) -> None:
    write(desk, 0, 2_000)

    cut = await trim_logs(desk.store, 0, 0)

    assert cut == 2_000 - length(desk, 0)
    assert (await desk.store.depths.of(0)).events_cut == cut


async def test_what_an_archive_has_read_may_go_uncounted(desk: Desk) -> None:
    entries = write(desk, 0, 2_000)
    desk.redis.set(desk.keys.archived(0), entries[-1])

    assert await trim_logs(desk.store, 0, 0) > 0
    assert (await desk.store.depths.of(0)).events_cut == 0


async def test_what_an_archive_had_not_come_to_is_counted(desk: Desk) -> None:
    entries = write(desk, 0, 2_000)
    desk.redis.set(desk.keys.archived(0), entries[499])

    cut = await trim_logs(desk.store, 0, 0)

    assert cut - 500 <= (await desk.store.depths.of(0)).events_cut <= cut - 400


@pytest.mark.parametrize(
    ("setting", "max_memory", "limit"), [(256, 0, 256), (256, 10_000, 256), (256, 1_000, 100), (256, 2_560, 256)]
)
def test_the_limit_is_never_more_than_a_tenth_of_the_servers_memory(setting: int, max_memory: int, limit: int) -> None:
    assert limit_bytes(setting, max_memory) == limit


@pytest.mark.parametrize(
    ("sizes", "limit", "level"),
    [
        ([100.0, 100.0], 100, 50),
        ([10.0, 200.0, 300.0], 110, 50),
        ([90.0, 10.0], 60, 50),
        ([5.0, 5.0], 100, 5),
        ([], 9, 0),
    ],
)
def test_the_level_spares_what_is_below_it(sizes: list[float], limit: float, level: float) -> None:
    assert water_level(sizes, limit) == level
    assert sum(min(size, level) for size in sizes) <= limit
