"""join: a session begins; an exclusive one takes over, and whoever is dead is cleaned up after."""

import pytest

from relay.errors import Busy
from tests.builders import ALICE, BOB, LEASE_MS, NOON_MS, Desk, a_message


async def test_a_session_finds_what_waits(desk: Desk) -> None:
    await desk.send_one(a_message("1", payload="abc"))
    desk.clock.advance(1)
    last = await desk.send_one(a_message("2", payload="abcd", priority=3))

    bob, joined = await desk.join_at_backlog()

    assert (joined.pending, joined.bytes, joined.oldest_ms) == (2, 11, NOON_MS)
    assert joined.backlog_end == last.entry.removesuffix("p3")
    assert desk.sessions() == [f"{bob.name}\texclusive"]
    assert desk.redis.hget(desk.keys.seen(0), BOB) == f"{NOON_MS + 1_000}\t0"
    assert [(event.who, event.reason) for event in desk.events("joined")] == [(bob.name, "exclusive")]


async def test_an_empty_mailbox_is_found_empty(desk: Desk) -> None:
    _, joined = await desk.join_at_backlog()

    assert (joined.pending, joined.bytes, joined.oldest_ms, joined.backlog_end) == (0, 0, None, "0-0")


async def test_an_agent_is_registered_by_its_first_session(desk: Desk) -> None:
    await desk.join()
    first = await desk.store.agents.registration(BOB)
    desk.clock.advance(1)
    await desk.join()

    assert first == {"registered_at_ms": NOON_MS}
    assert await desk.store.agents.registration(BOB) == first


async def test_an_exclusive_session_takes_over_uncounted_and_tells_the_old_one(desk: Desk) -> None:
    sent = await desk.send(a_message("1"), a_message("2", priority=5))
    old = await desk.join(instance="i1", ack_timeout_s=30)
    await desk.take(old)
    ears = desk.ears("i1")

    new = await desk.join(instance="i2")
    released = desk.holders() | desk.holders(priority=5)
    taken = await desk.take(new)

    assert desk.sessions() == [f"{new.name}\texclusive"]
    assert set(released.values()) == {("~ready", 1)}
    assert desk.due() == {}
    assert sorted((row.entry, row.attempt) for row in taken) == sorted((one.entry, 1) for one in sent)
    assert old.name not in desk.consumers() | desk.consumers(priority=5)
    assert ears.heard() == [f"replaced\t{old.name}"]
    assert [event.who for event in desk.events("replaced")] == [old.name]
    assert {event.reason for event in desk.events("released")} == {"replaced"}


async def test_shared_sessions_leave_each_other_alone(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1"))
    one = await desk.join(mode="shared")
    await desk.take(one)

    two = await desk.join(mode="shared")

    assert desk.sessions() == [f"{one.name}\tshared", f"{two.name}\tshared"]
    assert desk.holders() == {sent.entry: (one.name, 1)}
    assert desk.events("replaced") == []


async def test_an_exclusive_session_replaces_all_shared_ones_and_a_shared_one_an_exclusive_one(desk: Desk) -> None:
    for _ in range(2):
        await desk.join(mode="shared")
    alone = await desk.join()
    sessions_then = desk.sessions()
    shared = await desk.join(mode="shared")

    assert sessions_then == [f"{alone.name}\texclusive"]
    assert desk.sessions() == [f"{shared.name}\tshared"]
    assert len(desk.events("replaced")) == 3


async def test_shared_sessions_of_a_dead_instance_are_cleaned_up_after(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1"))
    desk.is_alive("dead", for_s=10)
    victim = await desk.join(mode="shared", instance="dead")
    await desk.take(victim)
    desk.clock.advance(10)

    heir = await desk.join(mode="shared")
    taken = await desk.take(heir)

    assert desk.sessions() == [f"{heir.name}\tshared"]
    assert [(row.entry, row.attempt) for row in taken] == [(sent.entry, 1)]
    assert victim.name not in desk.consumers()


async def test_joining_twice_is_joining_once(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1"))
    bob = await desk.join()
    await desk.take(bob)

    again = await desk.join(session=bob.name)

    assert desk.sessions() == [f"{bob.name}\texclusive"]
    assert desk.holders() == {sent.entry: (again.name, 1)}
    assert desk.events("replaced", "released") == []


async def test_what_has_expired_is_ended_before_it_is_counted(desk: Desk) -> None:
    await desk.send(a_message("1", payload="abc"), a_message("2", ttl_s=5, receipt="all"), a_message("3", payload="d"))
    desk.clock.advance(5)

    _, joined = await desk.join_at_backlog()

    assert (joined.pending, joined.bytes) == (2, 8)
    assert [event.id for event in desk.events("expired")] == ["2"]
    assert [receipt["id"] for receipt in await desk.receipts(ALICE)] == ["2"]
    assert set(desk.known_ids()) == {"1", "3"}
    assert desk.due() == {}


async def test_a_mailbox_whose_all_has_expired_is_found_empty(desk: Desk) -> None:
    await desk.send(a_message("1", ttl_s=5), a_message("2", ttl_s=5))
    desk.clock.advance(5)

    _, joined = await desk.join_at_backlog()

    assert (joined.pending, joined.bytes, joined.oldest_ms) == (0, 0, None)
    assert desk.waits_since() is None


async def test_a_joining_session_makes_its_instance_known_until_it_says_so_itself(desk: Desk) -> None:
    await desk.join(instance="new")
    await desk.join(instance=desk.store.instance)

    until = desk.redis.hgetall(desk.keys.instances(0))
    assert until["new"] == str(desk.clock.now_ms() + 60_000)


async def test_twenty_sessions_with_full_windows_are_replaced_in_one_call(desk: Desk) -> None:
    for n in range(5):
        await desk.send(*(a_message(f"m-{n}-{k}") for k in range(200)))
    pullers = [await desk.join(mode="shared") for _ in range(4)]
    for puller in pullers:
        await desk.take(puller, room=250)

    await desk.join()

    assert set(desk.holders().values()) == {("~ready", 1)}
    assert len(desk.events("released")) == 1_000


async def test_a_sender_takes_nothing_over_and_stays_when_others_do(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1"))
    frozen = await desk.join(instance="i1")
    await desk.take(frozen)
    desk.is_alive("i1", for_s=-1)
    ears = desk.ears("i1")

    sender = await desk.join(mode="sender")
    beside = desk.sessions()
    new = await desk.join(instance="i2")

    assert beside == [f"{frozen.name}\texclusive", f"{sender.name}\tsender"]
    assert desk.sessions() == [f"{sender.name}\tsender", f"{new.name}\texclusive"]
    assert ears.heard() == [f"replaced\t{frozen.name}"]
    assert desk.holders() == {sent.entry: ("~ready", 1)}


@pytest.mark.parametrize("back_at_ms", [2**52, 2**53 - 1])
async def test_a_return_in_the_far_future_is_kept_to_the_millisecond(desk: Desk, back_at_ms: int) -> None:
    bob = desk.new_session()

    await desk.store.presence.join(BOB, bob, "exclusive", LEASE_MS, back_at_ms)
    joined = await desk.store.presence.seen([BOB])
    await desk.store.presence.leave(BOB, bob, "closed", back_at_ms)
    left = await desk.store.presence.seen([BOB])

    assert joined[BOB].next_active_at_ms == left[BOB].next_active_at_ms == back_at_ms


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
async def test_a_join_that_was_asked_for_before_the_session_that_serves_is_late(desk: Desk, mode: str) -> None:
    serving = await desk.join()
    ears = desk.ears()

    with pytest.raises(Busy):
        await desk.store.presence.join(BOB, desk.new_session(), mode, LEASE_MS, None, asked_ms=NOON_MS - 1)

    assert desk.sessions() == [f"{serving.name}\texclusive"]
    assert ears.heard() == []
    assert [event.who for event in desk.events("joined", "replaced")] == [serving.name]


async def test_a_late_join_takes_over_from_a_session_whose_instance_is_dead(desk: Desk) -> None:
    await desk.join(instance="gone")
    desk.clock.advance(2 * LEASE_MS / 1_000)
    bob = desk.new_session()

    await desk.store.presence.join(BOB, bob, "exclusive", LEASE_MS, None, asked_ms=NOON_MS - 1)

    assert desk.sessions() == [f"{bob}\texclusive"]
