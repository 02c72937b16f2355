"""describe: what there is to say of agents, known or not."""

from relay.store.agents import Description
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message


async def test_an_agent_that_nobody_knows_has_nothing(desk: Desk) -> None:
    (found,) = await desk.store.agents.describe([BOB])

    assert found == Description(BOB, None, 0, 0, None, False, None, None, None, None, 0)


async def test_everything_about_an_agent_is_told(desk: Desk) -> None:
    await desk.store.agents.register(BOB, mode="shared")
    await desk.store.agents.set_caps(BOB, 5, None)
    await desk.send_one(a_message("m-1", payload="four", priority=3))
    desk.clock.advance(1)
    sent = await desk.send_one(a_message("m-2", payload="four"))
    bob = await desk.join()
    await desk.store.presence.expect(BOB, NOON_MS + 60_000)
    await desk.take(bob, room=2)
    await desk.nack(bob, sent.entry, retry=False)

    (found,) = await desk.store.agents.describe([BOB])

    assert found.registration == {"registered_at_ms": NOON_MS, "mode": "shared"}
    assert (found.depth, found.bytes, found.oldest_ms, found.dead) == (1, 6, NOON_MS, 1)
    assert (found.online, found.last_seen_ms, found.next_active_at_ms) == (True, NOON_MS + 1_000, NOON_MS + 60_000)
    assert (found.max_messages, found.max_bytes) == (5, desk.store.settings.mailbox_max_bytes)


async def test_several_are_told_in_the_order_in_which_they_were_asked_for(desk: Desk) -> None:
    await desk.send_one(a_message(to=CAROL))
    await desk.join(ALICE)

    found = await desk.store.agents.describe([CAROL, BOB, ALICE])

    assert [(one.address, one.depth, one.online) for one in found] == [
        (CAROL, 1, False),
        (BOB, 0, False),
        (ALICE, 0, True),
    ]


async def test_a_session_of_a_dead_instance_is_not_online(desk: Desk) -> None:
    desk.is_alive("gone", for_s=5)
    await desk.join(instance="gone")
    desk.clock.advance(5)

    (found,) = await desk.store.agents.describe([BOB])

    assert not found.online
    assert found.last_seen_ms == NOON_MS


async def test_an_agent_that_only_said_when_it_is_back_was_never_seen(desk: Desk) -> None:
    await desk.store.presence.expect(BOB, NOON_MS + 60_000)

    (found,) = await desk.store.agents.describe([BOB])

    assert (found.last_seen_ms, found.next_active_at_ms) == (None, NOON_MS + 60_000)
