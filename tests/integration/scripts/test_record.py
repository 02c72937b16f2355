"""record: a history keeps its latest entries."""

from tests.builders import Desk


async def test_only_the_latest_stay(desk: Desk) -> None:
    key = desk.keys.history("acme")

    entries = [(await desk.run("record", key, 3, 60_000, f"text {n}")).decode() for n in range(5)]

    kept = [(entry, {"snapshot": f"text {n}"}) for n, entry in enumerate(entries)][2:]
    assert desk.redis.xrange(key) == kept
    assert 0 < desk.redis.pttl(key) <= 60_000
