"""block: the senders that an agent does not want to hear."""

import pytest

from relay.errors import Malformed
from relay.store.agents.agents import MAX_BLOCKS
from tests.builders import ALICE, BOB, CAROL, Desk


async def test_senders_are_blocked_and_unblocked(desk: Desk) -> None:
    both = await desk.store.agents.change_blocks(BOB, [CAROL, ALICE, CAROL], [])
    one = await desk.store.agents.change_blocks(BOB, [], [CAROL])
    none = await desk.store.agents.change_blocks(BOB, [], [ALICE, "acme/nobody"])

    assert (both, one, none) == ([ALICE, CAROL], [ALICE], [])
    assert desk.redis.hgetall(desk.keys.blocks(0)) == {}


async def test_too_many_are_refused_and_nothing_changes(desk: Desk) -> None:
    await desk.store.agents.change_blocks(BOB, [ALICE], [])

    with pytest.raises(Malformed):
        await desk.store.agents.change_blocks(BOB, [f"acme/a{n}" for n in range(MAX_BLOCKS)], [])

    assert await desk.store.agents.blocked(BOB) == [ALICE]


async def test_as_many_as_are_allowed_can_be_blocked(desk: Desk) -> None:
    blocked = await desk.store.agents.change_blocks(BOB, [f"acme/a{n}" for n in range(MAX_BLOCKS)], [])

    assert len(blocked) == MAX_BLOCKS
