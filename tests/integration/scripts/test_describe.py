"""describe: what there is to say of agents, known or not."""

from relay.store.agents.agents import Description, SessionInfo
from relay.store.agents.pauses import Pause
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message


async def test_an_agent_that_nobody_knows_has_nothing(desk: Desk) -> None:
    (found,) = await desk.store.agents.describe([BOB])

    assert found == Description(BOB, None, 0, 0, None, False, None, None, None, None, 0)


async def test_everything_about_an_agent_is_told(desk: Desk) -> None:
    await desk.store.agents.register(BOB, mode="shared")
    await desk.store.limits.set_caps(BOB, 5, None)
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


async def test_depth_is_split_into_what_waits_is_held_and_is_delayed(desk: Desk) -> None:
    held, failed, *_ = await desk.send(
        *(a_message("held"), a_message("failed"), a_message("queued")),
        *(a_message("later", delay_s=60), a_message("higher", delay_s=60, priority=3)),
    )
    bob = await desk.join(window=1)
    await desk.take(bob, room=2)
    await desk.nack(bob, failed.entry, delay_s=30)

    (before,) = await desk.store.agents.describe([BOB])
    desk.clock.advance(61)
    desk.is_alive(desk.store.instance)
    await desk.overdue()
    (after,) = await desk.store.agents.describe([BOB])

    assert (before.depth, before.waiting, before.held, before.delayed) == (5, 1, 1, 3)
    assert (after.depth, after.waiting, after.held, after.delayed) == (5, 4, 1, 0)
    assert before.why == after.why == "window of its session full"
    assert held.entry in desk.holders()


async def test_nothing_waits_for_no_reason(desk: Desk) -> None:
    await desk.send_one(a_message())

    (waits,) = await desk.store.agents.describe([BOB])
    await desk.take(await desk.join())
    (is_held,) = await desk.store.agents.describe([BOB])

    assert (waits.why, waits.waiting) == ("nobody connected", 1)
    assert (is_held.why, is_held.waiting, is_held.held) == ("", 0, 1)


async def test_its_sessions_are_told_if_they_are_asked_for(desk: Desk) -> None:
    await desk.send_one(a_message())
    shared = await desk.join(mode="shared", window=7)
    sender = await desk.join(mode="sender")
    await desk.take(shared)

    (told,) = await desk.store.agents.describe([BOB], most_sessions=10)
    (fewer,) = await desk.store.agents.describe([BOB], most_sessions=1)
    (none,) = await desk.store.agents.describe([BOB])

    assert told.sessions == (
        SessionInfo(shared.name, "shared", 7, 1, True),
        SessionInfo(sender.name, "sender", None, 0, True),
    )
    assert (len(fewer.sessions), len(none.sessions)) == (1, 0)


async def test_a_pause_is_told_with_whose_it_is(desk: Desk) -> None:
    desk.redis.hset(desk.keys.paused(0), "acme", f"acme/root\t{NOON_MS}\tmoving house")
    (by_tenant,) = await desk.store.agents.describe([BOB])
    desk.redis.hset(desk.keys.paused(0), BOB, f"acme/eve\t{NOON_MS}\t")

    (by_agent,) = await desk.store.agents.describe([BOB])

    assert by_tenant.pause == Pause("acme/root", NOON_MS, "moving house", "tenant")
    assert by_agent.pause == Pause("acme/eve", NOON_MS, "", "agent")
