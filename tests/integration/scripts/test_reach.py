"""reach: how far back an event log goes."""

from tests.builders import Desk


async def reach(desk: Desk) -> tuple[str, str, int, int]:
    first, last, added, there = await desk.run("reach", desk.keys.events(0))
    return first.decode(), last.decode(), added, there


async def test_a_log_that_never_was_reaches_nowhere(desk: Desk) -> None:
    assert await reach(desk) == ("", "0-0", 0, 0)


async def test_a_log_tells_its_ends_and_how_many_were_ever_there(desk: Desk) -> None:
    for n in range(1, 6):
        desk.redis.xadd(desk.keys.events(0), {"e1": "…"}, id=f"{n}-0")
    desk.redis.xtrim(desk.keys.events(0), maxlen=2, approximate=False)

    assert await reach(desk) == ("4-0", "5-0", 5, 2)


async def test_an_empty_log_knows_its_last_entry(desk: Desk) -> None:
    desk.redis.xadd(desk.keys.events(0), {"e1": "…"}, id="7-0")
    desk.redis.xtrim(desk.keys.events(0), maxlen=0, approximate=False)

    assert await reach(desk) == ("", "7-0", 1, 0)
