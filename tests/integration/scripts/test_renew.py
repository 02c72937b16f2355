"""renew: an instance says until when it is believed to be alive."""

from tests.builders import NOON_MS, Desk


async def test_the_latest_time_counts(desk: Desk) -> None:
    key = desk.keys.instances(0)

    first = await desk.run("renew", key, "an-instance", NOON_MS + 9_000)
    again = await desk.run("renew", key, "an-instance", NOON_MS + 12_000)

    assert (first, again) == (b"renewed", b"renewed")
    assert desk.redis.hget(key, "an-instance") == str(NOON_MS + 12_000)


async def test_others_keep_their_time(desk: Desk) -> None:
    key = desk.keys.instances(0)
    before = desk.redis.hgetall(key)

    await desk.run("renew", key, "an-instance", NOON_MS)

    assert desk.redis.hgetall(key) == before | {"an-instance": str(NOON_MS)}
