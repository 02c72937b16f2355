"""remove: an agent is forgotten, with everything that waits for it."""

import pytest

from relay.store.keys import ALL_LANES
from relay.store.redis.scripts import script
from tests.builders import ALICE, BOB, Desk, a_message


async def remove(desk: Desk, force: bool = False) -> str:
    return await desk.store.agents.remove(BOB, force)


async def test_nobody_is_unknown(desk: Desk) -> None:
    assert await remove(desk) == "unknown"
    assert await remove(desk, force=True) == "unknown"


async def test_a_registered_agent_is_removed_and_its_sessions_are_sent_away(desk: Desk) -> None:
    bob = await desk.join()
    await desk.store.limits.set_caps(BOB, 5, None)
    await desk.store.agents.change_blocks(BOB, [ALICE], [])
    ears = desk.ears()

    assert await remove(desk) == "removed"

    assert ears.heard() == [f"removed\t{bob.name}"]
    assert desk.sessions() == []
    assert await desk.store.agents.registration(BOB) is None
    for name in ("agents", "presence", "seen", "blocks", "lanes", "drain", "caps"):
        assert desk.redis.hget(desk.shard_key(name), BOB) is None


@pytest.mark.parametrize("priority", [0, 9])
async def test_a_mailbox_that_is_not_empty_is_left_as_it_is(desk: Desk, priority: int) -> None:
    await desk.store.agents.register(BOB)
    await desk.send_one(a_message(priority=priority))

    assert await remove(desk) == "not_empty"

    assert desk.depth(priority=priority) == 1
    assert await desk.store.agents.registration(BOB) is not None


async def test_dead_letters_count_as_something(desk: Desk) -> None:
    sent = await desk.send_one(a_message())
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, retry=False)

    words = [await remove(desk), await remove(desk, force=True)]

    assert words == ["not_empty", "removed"]
    assert desk.dead_letters() == []


async def test_by_force_everything_in_the_mailbox_is_cancelled(desk: Desk) -> None:
    held, *_ = await desk.send(
        *(a_message("m-1"), a_message("m-2", ttl_s=60, delay_s=5), a_message("m-3", priority=9, ack_timeout_s=5))
    )
    bob = await desk.join()
    await desk.take(bob, room=1)

    assert await remove(desk, force=True) == "removed"

    assert (desk.depth(), desk.depth(priority=9)) == (0, 0)
    assert (desk.known_ids(), desk.due(), desk.bytes_held(), desk.waits_since()) == ({}, {}, 0, None)
    assert sorted(event.id for event in desk.events("cancelled")) == ["m-1", "m-2", "m-3"]
    assert {event.reason for event in desk.events("cancelled")} == {"agent deleted"}
    assert await desk.ack(bob, held.entry) == {held.entry: "not_found"}


@pytest.mark.parametrize("registered", [True, False])
async def test_a_large_mailbox_is_removed_in_several_calls(desk: Desk, registered: bool) -> None:
    if registered:
        await desk.store.agents.register(BOB)
    await desk.send(*(a_message(f"m-{n}", priority=n % 2) for n in range(900)))
    await desk.send(*(a_message(f"n-{n}") for n in range(100)))

    assert await remove(desk, force=True) == "removed"

    assert len(desk.events("cancelled")) == 1_000
    assert (desk.depth(), desk.depth(priority=1), desk.bytes_held(), desk.waits_since()) == (0, 0, 0, None)
    assert await remove(desk) == "unknown"


async def test_the_first_of_several_calls_says_that_there_is_more(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}") for n in range(600)))
    names = [desk.keys.dead(BOB), desk.keys.receipts(BOB)]
    packet = desk.encoder.packet(
        script("remove"),
        0,
        [BOB, ALL_LANES, True, ""],
        keys=desk.keys.boxes(BOB) + names,
    )
    words = [(await desk.store.pipeline.reply(packet))[2] for _ in range(3)]

    assert words == [b"more", b"removed", b"unknown"]
