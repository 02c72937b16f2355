"""tell: the store says which shards went back in time, and has an epoch that nobody knows."""

from typing import Any

import orjson
import pytest

from tests.builders import Desk

FIELD = "regressed:0"


def a_regress(times: int = 1, newest: str = "9-0", first_lost: str = "5-0", **lost_by: int) -> dict[str, Any]:
    return {"times": times, "newest_known": newest, "first_lost": first_lost, "lost_by": lost_by}


async def tell(desk: Desk, known: str, new: str, told: dict[str, Any]) -> str:
    epoch: bytes = await desk.run("tell", desk.keys.meta, known, new, FIELD, orjson.dumps(told))
    return epoch.decode()


def said(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(desk.redis.hget(desk.keys.meta, FIELD))
    return found


@pytest.fixture
def desk(desk: Desk) -> Desk:
    desk.redis.hset(desk.keys.meta, "epoch", "first")
    return desk


async def test_an_epoch_that_was_known_is_replaced(desk: Desk) -> None:
    epoch = await tell(desk, "before first", "second", a_regress(one=3))

    assert epoch == desk.redis.hget(desk.keys.meta, "epoch") == "second"
    assert said(desk) == a_regress(one=3)


async def test_an_epoch_that_another_instance_gave_it_stays(desk: Desk) -> None:
    await tell(desk, "first", "second", a_regress(one=3))

    assert await tell(desk, "first", "third", a_regress(other=2)) == "second"


async def test_several_tell_of_the_same(desk: Desk) -> None:
    await tell(desk, "first", "second", a_regress(newest="8-0", first_lost="5-0", one=3))

    await tell(desk, "first", "third", a_regress(newest="9-0", first_lost="4-0", other=2))

    assert said(desk) == a_regress(newest="9-0", first_lost="4-0", one=3, other=2)


async def test_the_next_time_is_told_alone(desk: Desk) -> None:
    await tell(desk, "first", "second", a_regress(one=3))

    await tell(desk, "first second", "third", a_regress(times=2, one=1))

    assert said(desk) == a_regress(times=2, one=1)
