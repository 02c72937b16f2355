"""ack: what its holder confirms leaves the mailbox, and its sender is told; nobody else can."""

import asyncio

import pytest

from tests.builders import BOB, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk


async def test_what_its_holder_acks_leaves_nothing_behind(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1", ack_timeout_s=5, ttl_s=60))
    bob = await desk.join()
    await desk.take(bob)

    refused = await desk.ack(bob, sent.entry)

    assert refused == {}
    assert (desk.depth(), desk.holders(), desk.due(), desk.known_ids()) == (0, {}, {}, {})
    assert desk.bytes_held() == 0
    assert desk.waits_since() is None
    assert desk.redis.hgetall(desk.shard_key("bytes")) == {}
    assert [(event.kind, event.attempt) for event in desk.events("acked")] == [("acked", "1")]


async def test_the_depth_goes_down_with_each_ack(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}") for n in range(5)))
    bob = await desk.join()
    depths = []
    for row in await desk.take(bob):
        await desk.ack(bob, row.entry)
        depths.append(desk.depth())

    assert depths == [4, 3, 2, 1, 0]


async def test_the_sender_is_told_that_it_was_delivered(desk: Desk) -> None:
    await desk.send_one(a_message('say "hi"\\'))
    bob, _ = await desk.join_at_backlog()
    taken = await desk.take_one(bob)
    desk.clock.advance(2)

    await desk.ack(bob, taken.entry)

    assert await desk.receipts() == [
        {
            "id": 'say "hi"\\',
            "to": BOB,
            "state": "delivered",
            "was_stored": True,
            "attempt": 1,
            "at_ms": NOON_MS + 2_000,
            "latency_ms": 2_000,
        }
    ]
    assert desk.redis.xlen(desk.keys.outbox(0)) == 0


async def test_live_mail_was_not_stored(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("m-1"))
    taken = await desk.take_one(bob)

    await desk.ack(bob, taken.entry)

    assert [receipt["was_stored"] for receipt in await desk.receipts()] == [False]


async def test_no_receipt_without_the_wish_for_one(desk: Desk) -> None:
    await desk.send_one(a_message("m-1", receipt=False))
    bob = await desk.join()
    taken = await desk.take_one(bob)

    await desk.ack(bob, taken.entry)

    assert await desk.receipts() == []


@pytest.mark.parametrize("state", ["waiting", "another's", "released", "parked"])
async def test_what_somebody_else_holds_or_nobody_is_lock_lost(desk: Desk, state: str) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join(mode="shared")
    eve = await desk.join(mode="shared")
    if state != "waiting":
        await desk.take(bob)
    if state == "released":
        await desk.release(bob, sent.entry)
    if state == "parked":
        await desk.nack(bob, sent.entry, delay_s=5)
    before = desk.holders()

    refused = await desk.ack(eve, sent.entry)

    assert refused == {sent.entry: "lock_lost"}
    assert desk.depth() == 1
    assert desk.holders() == before
    assert desk.events("acked") == []


async def test_a_stale_holders_ack_is_lock_lost_and_the_new_holders_counts(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    old = await desk.join()
    await desk.take(old)
    new = await desk.join()
    await desk.take(new)

    stale = await desk.ack(old, sent.entry)
    fresh = await desk.ack(new, sent.entry)

    assert stale == {sent.entry: "lock_lost"}
    assert fresh == {}
    assert [event.who for event in desk.events("acked")] == [new.name]


async def test_what_is_not_there_is_not_found(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.ack(bob, sent.entry)

    refused = await desk.ack(bob, sent.entry, "1-1", "1-1p7", "nonsense")

    assert refused == dict.fromkeys([sent.entry, "1-1", "1-1p7", "nonsense"], "not_found")
    assert len(desk.events("acked")) == 1


async def test_an_entry_has_one_spelling(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)

    refused = await desk.ack(bob, sent.entry, f"0{sent.entry}", "١-١")

    assert refused == {f"0{sent.entry}": "not_found", "١-١": "not_found"}
    assert len(desk.events("acked")) == 1


async def test_a_wrong_attempt_is_lock_lost(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=0)
    await desk.take(bob)

    _, _, first, _ = await desk.call("ack", BOB, [], [bob.name, "0-0", True, 500, [10, sent.entry, 1]])
    _, _, second, _ = await desk.call("ack", BOB, [], [bob.name, "0-0", True, 500, [10, sent.entry, 2]])

    assert first == [1, sent.entry.encode(), b"lock_lost"]
    assert second == []
    assert desk.depth() == 0


async def test_good_entries_among_bad_ones_are_acked(desk: Desk) -> None:
    answers = await desk.send(*(a_message(f"m-{n}", priority=(n % 2) * 5) for n in range(6)))
    bob = await desk.join(mode="shared")
    eve = await desk.join(mode="shared")
    mine = [row.entry for row in await desk.take(bob, room=4)]
    await desk.take(eve)

    refused = await desk.ack(bob, *reversed([answer.entry for answer in answers]), "1-1")

    others = {answer.entry for answer in answers} - set(mine)
    assert refused == dict.fromkeys(others, "lock_lost") | {"1-1": "not_found"}
    assert set(desk.known_ids().values()) == others


async def test_the_same_entry_in_two_acks_at_once_is_acked_once(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)

    first, second = await asyncio.gather(desk.ack(bob, sent.entry), desk.ack(bob, sent.entry))

    assert (first, second) == ({}, {sent.entry: "not_found"})
    assert len(desk.events("acked")) == 1
    assert len(await desk.receipts()) == 1


async def test_a_mailbox_that_is_acked_empty_waits_no_more_whatever_its_lanes(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2", priority=3))
    bob = await desk.join()
    taken = await desk.take(bob)

    for row in taken:
        await desk.ack(bob, row.entry)
    await desk.expire()

    assert desk.waits_since() is None
    assert desk.bytes_held() == 0


async def test_the_pace_of_acks_is_kept_only_near_the_cap(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=4)
    bob = await desk.join()
    await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    taken = await desk.take(bob)

    await desk.ack(bob, taken[0].entry)
    near = desk.redis.hget(desk.shard_key("drain"), BOB)
    desk.clock.advance(1)
    await desk.ack(bob, taken[1].entry)
    far = desk.redis.hget(desk.shard_key("drain"), BOB)

    assert near == far == f"{NOON_MS}\t1000"


async def test_what_failed_before_its_group_was_lost_is_forgotten_when_it_is_acked(desk: Desk) -> None:
    sent = await desk.send_one(a_message())
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=0)
    desk.redis.xgroup_destroy(desk.keys.box(BOB), "agent")
    again = await desk.take_one(bob)

    await desk.ack(bob, again.entry)

    assert again.attempt == 1
    assert desk.failures() == {}
