"""leave: what a session held goes back, uncounted; a successor is not disturbed."""

import asyncio

from tests.builders import BOB, NOON_MS, Desk, a_message


async def test_what_it_held_goes_back_uncounted_and_wakes_the_others(desk: Desk) -> None:
    first, second = await desk.send(a_message("1"), a_message("2"))
    one = await desk.join(mode="shared", ack_timeout_s=30, instance="i1")
    two = await desk.join(mode="shared", instance=desk.store.instance)
    await desk.take(one)
    leaver, other = desk.ears("i1"), desk.ears()

    left = await desk.leave(one, "closed by client")

    assert left
    assert desk.holders() == {first.entry: ("~ready", 1), second.entry: ("~ready", 1)}
    assert desk.due() == {}
    assert one.name not in desk.consumers()
    assert desk.sessions() == [f"{two.name}\tshared"]
    assert (leaver.heard(), other.heard()) == ([], ["mail\tacme/bob"])
    assert [(event.who, event.reason) for event in desk.events("left")] == [(one.name, "closed by client")]
    assert [event.reason for event in desk.events("released")] == ["closed by client"] * 2


async def test_nobody_is_woken_for_nothing(desk: Desk) -> None:
    one = await desk.join(mode="shared")
    await desk.join(mode="shared")
    ears = desk.ears()

    await desk.leave(one)

    assert ears.heard() == []


async def test_the_last_to_leave_leaves_no_presence_behind(desk: Desk) -> None:
    bob = await desk.join()
    desk.clock.advance(3)
    await desk.leave(bob)

    assert desk.redis.hgetall(desk.keys.presence(0)) == {}
    assert desk.redis.hget(desk.keys.seen(0), BOB) == f"{NOON_MS + 3_000}\t0"


async def test_a_part_time_agent_says_when_it_will_be_back(desk: Desk) -> None:
    bob = await desk.join()
    await desk.store.presence.leave(BOB, bob.name, "closed", NOON_MS + 99)

    seen = (await desk.store.presence.seen([BOB]))[BOB]
    assert (seen.online, seen.last_seen_ms, seen.next_active_at_ms) == (False, NOON_MS, NOON_MS + 99)


async def test_a_late_leave_is_gone_and_does_not_disturb_the_successor(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1"))
    old = await desk.join()
    await desk.take(old)
    new = await desk.join()
    await desk.take(new)

    left = await desk.leave(old)

    assert not left
    assert desk.sessions() == [f"{new.name}\texclusive"]
    assert desk.holders() == {sent.entry: (new.name, 1)}
    assert desk.events("left") == []


async def test_what_a_session_held_goes_to_those_who_stay(desk: Desk) -> None:
    old = await desk.join(mode="shared")
    new = await desk.join(mode="shared")
    sent = await desk.send_one(a_message("1"))
    await desk.take(old)
    ears = desk.ears()

    await desk.leave(old)
    taken = await desk.take(new)

    assert ears.heard() == ["mail\tacme/bob"]
    assert [row.entry for row in taken] == [sent.entry]


async def test_leaving_twice_is_leaving_once(desk: Desk) -> None:
    bob = await desk.join()

    answers = [await desk.leave(bob), await desk.leave(bob)]

    assert answers == [True, False]
    assert len(desk.events("left")) == 1


async def test_twenty_full_windows_go_back_in_one_call(desk: Desk) -> None:
    addresses = [f"acme/a{n}" for n in range(20)]
    for address in addresses:
        await desk.send(*(a_message(f"m-{n}", to=address) for n in range(500)))
    pullers = await asyncio.gather(*(desk.join(address) for address in addresses))
    for puller in pullers:
        await desk.take(puller, room=500)

    left = await asyncio.gather(*(desk.leave(puller) for puller in pullers))

    assert all(left)
    assert len(desk.events("released")) == 10_000
    assert {owner for address in addresses for owner, _ in desk.holders(address).values()} == {"~ready"}
