"""count: one more of something."""

from tests.builders import Desk


async def test_each_kind_is_counted_by_itself(desk: Desk) -> None:
    key = desk.keys.anomaly_totals

    assert [await desk.run("count", key, what) for what in ("burst_take", "stale", "burst_take")] == [1, 1, 2]
    assert desk.redis.hgetall(key) == {"burst_take": "2", "stale": "1"}
