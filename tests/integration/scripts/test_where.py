"""where: what a sender is told of its message."""

import pytest

from relay.store.mailbox.lookup import MessageStatus, Waiting, message_key
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message, free_search
from tests.conftest import MakeDesk


async def where(desk: Desk, id: str = "m-1", sender: str = ALICE) -> MessageStatus | None:
    return await desk.store.lookup.where(sender, BOB, id)


async def state(desk: Desk, id: str = "m-1") -> str | None:
    found = await where(desk, id)
    return found.state if found else None


@pytest.mark.parametrize("priority", [0, 5, 9])
async def test_what_waits_is_queued_and_what_is_taken_is_held(desk: Desk, priority: int) -> None:
    sent = await desk.send_one(a_message(priority=priority))

    before = await where(desk)
    bob = await desk.join()
    await desk.take(bob)
    after = await where(desk)

    assert before == MessageStatus("queued", sent.entry, 1, NOON_MS, Waiting("nobody connected"))
    assert after is not None
    assert after.waiting is not None
    assert (after.state, after.entry, after.attempt, after.at_ms) == ("held", sent.entry, 1, NOON_MS)
    assert (after.waiting.why, after.waiting.holder) == ("held by its session", bob.name)


async def test_what_was_given_back_is_queued_with_the_attempt_that_comes(desk: Desk) -> None:
    sent = await desk.send_one(a_message())
    bob = await desk.join()
    await desk.take(bob)

    await desk.nack(bob, sent.entry, delay_s=0)

    assert await where(desk) == MessageStatus("queued", sent.entry, 2, NOON_MS, Waiting("next in line"))


async def test_what_must_wait_is_delayed_before_and_after_it_was_looked_at(desk: Desk) -> None:
    await desk.send_one(a_message(delay_s=5))

    states = [await state(desk)]
    bob = await desk.join()
    assert await desk.take(bob) == []
    states.append(await state(desk))
    desk.clock.advance(5)
    await desk.overdue()
    states.append(await state(desk))

    assert states == ["delayed", "delayed", "queued"]


async def test_how_it_ended_is_told_for_the_dedup_window(desk: Desk) -> None:
    acked, dead, cancelled = await desk.send(a_message("m-1"), a_message("m-2"), a_message("m-3"))
    bob = await desk.join()
    await desk.take(bob, room=2)
    desk.clock.advance(1)
    await desk.ack(bob, acked.entry)
    await desk.nack(bob, dead.entry, retry=False)
    await desk.cancel("m-3")

    found = [await where(desk, f"m-{n}") for n in (1, 2, 3)]

    assert found == [
        MessageStatus("acked", acked.entry, 1, NOON_MS + 1_000),
        MessageStatus("dead", dead.entry, 1, NOON_MS + 1_000),
        MessageStatus("cancelled", cancelled.entry, 0, NOON_MS + 1_000),
    ]


async def test_what_has_expired_is_so_before_and_after_any_sweep(desk: Desk) -> None:
    sent = await desk.send_one(a_message(ttl_s=5))
    desk.clock.advance(5)

    before = await where(desk)
    await desk.overdue()
    after = await where(desk)

    assert before == after == MessageStatus("expired", sent.entry, 0, NOON_MS + 5_000)


async def test_nothing_is_known_of_what_was_never_sent_or_is_anothers(desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))

    assert await where(desk, "m-2") is None
    assert await where(desk, "m-1", CAROL) is None


async def test_an_entry_that_an_operator_removed_is_not_known(desk: Desk) -> None:
    sent = await desk.send_one(a_message())
    desk.redis.xdel(desk.keys.box(BOB), sent.entry)

    assert await where(desk) is None


async def test_what_must_wait_is_delayed_also_after_a_look_for_other_types(desk: Desk) -> None:
    sent = await desk.send_one(a_message("late", delay_s=60, type="slow"))
    await desk.send_one(a_message("now", type="quick"))

    leased = await desk.store.leases.take(BOB, 5, 100_000, free_search("quick"), 30_000, "w1", NOON_MS)
    found = await desk.store.lookup.peek(BOB, (1, ""), 10, "", None)
    desk.clock.advance(60)
    await desk.overdue()

    assert len(leased) == 1
    assert {one.entry: one.state for one in found[1]}[sent.entry] == "delayed"
    assert await state(desk, "late") == "queued"


async def test_what_must_wait_is_delayed_also_when_it_came_after_the_session(desk: Desk) -> None:
    await desk.send_one(a_message("before"))
    bob, _ = await desk.join_at_backlog()
    await desk.send_one(a_message("late", delay_s=60))

    await desk.take(bob)

    assert await state(desk, "late") == "delayed"


# -- why it is not delivered yet


async def waiting(desk: Desk, id: str = "m-1") -> Waiting:
    found = await where(desk, id)
    assert found is not None
    assert found.waiting is not None
    return found.waiting


@pytest.mark.parametrize("priority", [0, 9])
async def test_a_delay_says_whose_it_is_and_when_it_ends(desk: Desk, priority: int) -> None:
    sent = await desk.send_one(a_message(delay_s=5, priority=priority))

    unseen = await waiting(desk)
    bob = await desk.join()
    await desk.take(bob)
    parked = await waiting(desk)
    desk.clock.advance(5)
    await desk.overdue()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=30)
    backing_off = await waiting(desk)

    assert unseen == parked == Waiting("delayed by its sender", NOON_MS + 5_000)
    assert backing_off == Waiting("backing off after a nack", NOON_MS + 35_000)


async def test_what_cannot_be_buried_says_so_and_when_it_is_tried_again(make_desk: MakeDesk) -> None:
    desk = await make_desk(dead_max_messages=1)
    first, second = await desk.send(a_message("m-1"), a_message("m-2"))
    bob = await desk.join()
    await desk.take(bob)

    await desk.nack(bob, first.entry, second.entry, retry=False)

    assert await waiting(desk, "m-2") == Waiting("the dead-letter box is full", NOON_MS + 60_000)


async def test_a_hold_says_whose_it_is_and_when_it_ends(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    ((_, token),) = await desk.store.leases.take(BOB, 1, 100_000, None, 30_000, "w1", NOON_MS)
    bob = await desk.join(mode="shared")
    await desk.take(bob)

    lease, hold = await waiting(desk, "m-1"), await waiting(desk, "m-2")

    assert (lease.why, lease.until_ms, lease.holder) == ("held by a lease", NOON_MS + 30_000, token.consumer)
    assert (hold.why, hold.until_ms, hold.holder) == ("held by its session", None, bob.name)
    assert lease.held_since_ms is not None


async def test_a_full_window_is_the_reason_while_it_is_full(desk: Desk) -> None:
    first, *_ = await desk.send(a_message("m-1"), a_message("m-2"), a_message("m-3"))
    bob = await desk.join(window=2)
    await desk.take(bob, room=2)

    full = await waiting(desk, "m-3")
    await desk.ack(bob, first.entry)
    free = await waiting(desk, "m-3")
    await desk.leave(bob)

    assert (full.why, free.why) == ("window of its session full", "next in line")


async def test_one_of_several_sessions_with_room_is_enough(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    full = await desk.join(mode="shared", window=1)
    await desk.take(full, room=1)
    before = await waiting(desk, "m-2")

    await desk.join(mode="shared", window=1)

    assert (before.why, (await waiting(desk, "m-2")).why) == ("window of its session full", "next in line")


async def test_a_sender_and_a_dead_instance_serve_nobody(desk: Desk) -> None:
    await desk.send_one(a_message())
    desk.is_alive("gone", for_s=5)
    await desk.join(mode="shared", instance="gone")
    await desk.join(mode="sender")

    alive = await waiting(desk)
    desk.clock.advance(5)

    assert (alive.why, (await waiting(desk)).why) == ("next in line", "nobody connected")


@pytest.mark.parametrize("whose", [BOB, "acme"])
async def test_a_pause_comes_before_every_other_reason(desk: Desk, whose: str) -> None:
    await desk.send_one(a_message())
    await desk.join()
    desk.redis.hset(desk.keys.paused(0), whose, f"acme/root\t{NOON_MS}\t")

    assert await waiting(desk) == Waiting("paused")


async def test_a_blocked_sender_is_told_what_the_others_are(desk: Desk) -> None:
    await desk.store.agents.change_blocks(BOB, [ALICE], [])
    await desk.send_one(a_message("m-1"))
    await desk.send_one(a_message("m-1"), sender=CAROL)

    hidden, shown = await where(desk), await where(desk, sender=CAROL)

    assert hidden is not None
    assert shown is not None
    assert hidden.waiting == shown.waiting == Waiting("nobody connected")


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ("1799999999000-7\t1000", MessageStatus("acked", "1799999999000-7", 1, NOON_MS)),
        ("1800000000009-0p5\t-9\tdead\t3", MessageStatus("dead", "1800000000009-0p5", 3, NOON_MS)),
    ],
    ids=["acked at the first", "another end, before its entry by the instance's clock"],
)
async def test_how_it_ended_is_read_as_it_was_kept(desk: Desk, record: str, told: MessageStatus) -> None:
    ended = desk.keys.ended(desk.keys.shard(BOB), desk.clock.now_ms())[0]
    desk.redis.hset(ended, message_key(ALICE, BOB, "m-1"), record)

    again = await desk.send_one(a_message("m-1"))

    assert await where(desk) == told
    assert (again.word, again.values) == ("duplicate", (told.entry, told.state, told.attempt))
