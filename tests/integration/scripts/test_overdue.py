"""overdue: what was to happen at a time that has come; what was done in between stays done."""

import asyncio

from tests.builders import BOB, Desk, Puller, a_message
from tests.conftest import MakeDesk


async def a_held_message(desk: Desk, **fields: object) -> tuple[str, Puller]:
    sent = await desk.send_one(a_message("m-1", ack_timeout_s=5, **fields))
    bob = await desk.join(mode="shared", instance="i1")
    await desk.take(bob)
    return sent.entry, bob


async def test_a_short_ttl_ends_a_waiting_message(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1", ttl_s=5))
    desk.clock.advance(5)

    became = await desk.overdue()

    assert became == ["expired"]
    assert (desk.depth(), desk.known_ids(), desk.due(), desk.waits_since()) == (0, {}, {}, None)
    assert [event.entry for event in desk.events("expired")] == [sent.entry]


async def test_a_short_ttl_ends_a_held_message_and_tells_its_holder(desk: Desk) -> None:
    entry, bob = await a_held_message(desk, ttl_s=4)
    ears = desk.ears("i1")
    desk.clock.advance(4)

    became = await desk.overdue()

    assert became == ["expired"]
    assert (desk.depth(), desk.holders(), desk.due()) == (0, {}, {})
    assert ears.heard() == [f"lost\t{bob.name}\t{entry}"]


async def test_a_hold_that_is_over_is_a_failed_attempt_and_another_session_is_rung(desk: Desk) -> None:
    entry, bob = await a_held_message(desk)
    await desk.join(mode="shared", instance=desk.store.instance)
    slow, other = desk.ears("i1"), desk.ears()
    desk.clock.advance(5)

    became = await desk.overdue()

    assert became == ["failed"]
    assert desk.holders() == {entry: ("~ready", 2)}
    assert desk.due() == {}
    assert (slow.heard(), other.heard()) == ([f"overdue\t{bob.name}\t{entry}"], [f"mail\tacme/bob\t{bob.name}"])
    assert [(event.who, event.attempt) for event in desk.events("overdue")] == [(bob.name, "1")]
    assert await desk.ack(bob, entry) == {entry: "lock_lost"}


async def test_a_hold_that_is_over_for_the_last_time_is_dead(desk: Desk) -> None:
    entry, _ = await a_held_message(desk, max_attempts=1)
    desk.clock.advance(5)

    became = await desk.overdue()

    assert became == ["dead"]
    assert desk.depth() == 0
    assert [(letter["entry"], letter["reason"]) for letter in desk.dead_letters()] == [(entry, "ack timeout")]
    assert [(one["state"], one["reason"]) for one in await desk.receipts()] == [("dead", "ack timeout")]


async def test_a_delay_that_is_over_makes_it_ready_and_wakes(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1", delay_s=5))
    bob = await desk.join()
    await desk.take(bob)
    ears = desk.ears()
    desk.clock.advance(5)

    became = await desk.overdue()

    assert became == ["ready"]
    assert desk.holders() == {sent.entry: ("~ready", 1)}
    assert ears.heard() == ["mail\tacme/bob"]


async def test_nothing_happens_before_its_time(desk: Desk) -> None:
    entry, bob = await a_held_message(desk)
    member = f"hold\t{BOB}\t{entry}"
    desk.clock.advance(4.999)

    became = await desk.store.overdue.carry_out(0, [member])

    assert became == ["nothing"]
    assert desk.holders() == {entry: (bob.name, 1)}
    assert set(desk.due()) == {f"hold {entry}"}


async def test_what_was_acked_since_the_worker_looked_stays_acked(desk: Desk) -> None:
    entry, bob = await a_held_message(desk)
    desk.clock.advance(5)
    members = await desk.store.overdue.due_entries(0, desk.clock.now_ms(), 10)
    await desk.ack(bob, entry)

    became = await desk.store.overdue.carry_out(0, members)

    assert members == [f"hold\t{BOB}\t{entry}"]
    assert became == ["nothing"]
    assert desk.depth() == 0
    assert desk.kinds()[-1] == "acked"


async def test_what_was_touched_since_the_worker_looked_stays_held(desk: Desk) -> None:
    entry, bob = await a_held_message(desk)
    desk.clock.advance(5)
    members = await desk.store.overdue.due_entries(0, desk.clock.now_ms(), 10)
    await desk.touch(bob, entry, extend_s=10)

    became = await desk.store.overdue.carry_out(0, members)

    assert became == ["nothing"]
    assert desk.holders() == {entry: (bob.name, 1)}
    assert desk.due() == {f"hold {entry}": 10}


async def test_what_was_released_since_the_worker_looked_is_not_counted(desk: Desk) -> None:
    entry, bob = await a_held_message(desk)
    desk.clock.advance(5)
    members = await desk.store.overdue.due_entries(0, desk.clock.now_ms(), 10)
    await desk.release(bob, entry)

    became = await desk.store.overdue.carry_out(0, members)

    assert became == ["nothing"]
    assert desk.holders() == {entry: ("~ready", 1)}


async def test_three_workers_at_once_have_one_effect(make_desk: MakeDesk) -> None:
    desk = await make_desk()
    others = [await make_desk(prefix=desk.keys.prefix) for _ in range(2)]
    entry, _ = await a_held_message(desk)
    for one in (desk, *others):
        one.clock.advance(5)

    became = await asyncio.gather(*(one.overdue() for one in (desk, *others)))

    assert sorted(word for words in became for word in words).count("failed") == 1
    assert desk.holders() == {entry: ("~ready", 2)}
    assert len(desk.events("overdue")) == 1


async def test_a_message_waiting_for_its_burial_can_still_expire(make_desk: MakeDesk) -> None:
    desk = await make_desk(dead_max_messages=1, message_ttl_s=30)
    await desk.send(a_message("1", max_attempts=1), a_message("2", max_attempts=1))
    bob = await desk.join()
    taken = await desk.take(bob)
    await desk.nack(bob, *(row.entry for row in taken))

    desk.clock.advance(30)
    await desk.expire()
    desk.clock.advance(30)
    became = await desk.overdue()

    assert became == []
    assert (desk.depth(), desk.due(), desk.failures()) == (0, {}, {})
    assert [event.kind for event in desk.events("dead", "expired")] == ["dead", "expired"]
