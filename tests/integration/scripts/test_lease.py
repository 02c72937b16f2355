"""lease: one process at a time should do a duty."""

from tests.builders import Desk


async def lease(desk: Desk, holder: str, lease_ms: int = 60_000) -> bytes:
    word: bytes = await desk.run("lease", desk.keys.lease("sweeper"), holder, lease_ms)
    return word


async def test_the_first_has_it_and_others_do_not(desk: Desk) -> None:
    assert await lease(desk, "one") == b"leased"
    assert await lease(desk, "other") == b"taken"
    assert desk.redis.get(desk.keys.lease("sweeper")) == "one"


async def test_its_holder_prolongs_it(desk: Desk) -> None:
    await lease(desk, "one", 60_000)

    assert await lease(desk, "one", 600_000) == b"leased"
    assert desk.redis.pttl(desk.keys.lease("sweeper")) > 60_000


async def test_one_that_is_over_is_for_whoever_comes(desk: Desk) -> None:
    await lease(desk, "one")
    desk.redis.delete(desk.keys.lease("sweeper"))

    assert await lease(desk, "other") == b"leased"


async def test_each_duty_has_its_own(desk: Desk) -> None:
    await lease(desk, "one")

    assert await desk.run("lease", desk.keys.lease("reaper"), "other", 60_000) == b"leased"
