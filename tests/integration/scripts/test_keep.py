"""keep: a text is remembered for a while, in place of the one before."""

from tests.builders import Desk


async def test_the_latest_text_is_kept_for_its_own_time(desk: Desk) -> None:
    key = desk.keys.ranking("acme")

    first = await desk.run("keep", key, 1_000_000, "a text")
    again = await desk.run("keep", key, 50_000, "another")

    assert (first, again) == (b"kept", b"kept")
    assert desk.redis.get(key) == "another"
    assert 0 < desk.redis.pttl(key) <= 50_000
