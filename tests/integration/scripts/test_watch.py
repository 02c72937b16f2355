"""watch: a puller that waits is woken like a session."""

import pytest

from relay.errors import Busy
from tests.builders import BOB, LEASE_MS, NOON_MS, Desk, a_message


async def watch(desk: Desk, watcher: str) -> None:
    await desk.store.leases.watch(BOB, watcher, LEASE_MS)


async def test_who_watches_is_online_and_is_woken(desk: Desk) -> None:
    watcher = desk.new_session()
    ears = desk.ears()

    await watch(desk, watcher)
    (shown,) = await desk.store.agents.describe([BOB])
    await desk.send_one(a_message())

    assert desk.sessions() == [f"{watcher}\tpuller"]
    assert shown.online
    assert ears.heard() == [f"mail\t{BOB}"]


async def test_watching_twice_is_watching_once(desk: Desk) -> None:
    one, two = desk.new_session(), desk.new_session()

    for watcher in (one, two, one, two):
        await watch(desk, watcher)

    assert desk.sessions() == [f"{one}\tpuller", f"{two}\tpuller"]


async def test_an_exclusive_session_makes_it_busy_and_a_shared_one_does_not(desk: Desk) -> None:
    shared = await desk.join(mode="shared")
    await watch(desk, "i.1")
    await desk.leave(shared)
    await desk.join()

    with pytest.raises(Busy):
        await watch(desk, "i.2")

    assert [line.partition("\t")[2] for line in desk.sessions()] == ["exclusive"]


async def test_an_exclusive_session_of_a_dead_instance_does_not_count(desk: Desk) -> None:
    desk.is_alive("gone", for_s=5)
    await desk.join(instance="gone")
    desk.clock.advance(5)

    await watch(desk, desk.new_session())

    assert len(desk.sessions()) == 2


async def test_an_instance_that_nobody_knew_is_believed_to_be_alive_for_its_lease(desk: Desk) -> None:
    await watch(desk, "new.1")
    await watch(desk, f"{desk.store.instance}.9")

    assert desk.redis.hget(desk.keys.instances(0), "new") == str(NOON_MS + LEASE_MS)


async def test_who_stops_watching_leaves_no_event_and_keeps_when_the_agent_is_back(desk: Desk) -> None:
    watcher = desk.new_session()
    await desk.store.presence.expect(BOB, NOON_MS + 60_000)
    await watch(desk, watcher)
    desk.clock.advance(1)

    await desk.store.presence.leave(BOB, watcher, "puller")

    assert desk.sessions() == []
    assert desk.events() == []
    seen = (await desk.store.presence.seen([BOB]))[BOB]
    assert (seen.last_seen_ms, seen.next_active_at_ms) == (NOON_MS + 1_000, NOON_MS + 60_000)
