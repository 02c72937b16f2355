"""The store is wiped: open sessions are told of the new epoch, and no new session is told of the old one."""

import pytest

from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("store failures")

SETTINGS = {"recheck_s": 3}


async def test_after_a_wipe_everybody_knows_the_same_new_epoch(room: Room) -> None:
    alice, carol = await room.agent("alice"), await room.agent("carol", at=room.b)
    old = alice.welcome["epoch"]

    room.redis.flushall()
    bob = await room.agent("bob")
    told = [await alice.expect("epoch"), await carol.expect("epoch")]

    new = bob.welcome["epoch"]
    assert carol.welcome["epoch"] == old != new
    assert told == [{"op": "epoch", "epoch": new}] * 2
    assert bob.got("epoch") == []
