"""ack_plain: deliveries that their sessions hold are confirmed, all of a call or none."""

from typing import Any

from relay.store.mailbox.ack_plain import HeldAck, encode
from relay.store.record.taken import Taken
from tests.builders import BOB, CAROL, NOON_MS, Desk, Puller, a_message
from tests.conftest import MakeDesk

NEAR_CAP = 500


def a_packet(desk: Desk, *acks: tuple[Puller, list[Taken]], near_cap: int = NEAR_CAP) -> bytes:
    held = [HeldAck(puller.address, puller.name, rows, puller.ack_timeout_ms > 0) for puller, rows in acks]
    return encode(desk.encoder, 0, held, (desk.next_exchange(), 1), near_cap)


async def call(desk: Desk, *acks: tuple[Puller, list[Taken]], near_cap: int = NEAR_CAP) -> list[Any]:
    outcome: list[Any] = await desk.store.pipeline.reply(a_packet(desk, *acks, near_cap=near_cap))
    return outcome


async def test_what_is_held_leaves_nothing_behind(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send(a_message("m-1", ttl_s=60), a_message("m-2", ack_timeout_s=5))
    rows = await desk.take(bob)

    word, logged, *unheard = await call(desk, (bob, rows))

    assert (word, len(unheard)) == (b"acked", 2)
    assert desk.redis.xrange(desk.keys.events(0), logged.decode(), logged.decode())
    assert (desk.depth(), desk.holders(), desk.due(), desk.known_ids()) == (0, {}, {}, {})
    assert (desk.bytes_held(), desk.waits_since(), desk.sums()) == (0, None, {"online": 1})
    assert [event.id for event in desk.events("acked")] == ["m-1", "m-2"]


async def test_receipts_that_nobody_heard_of_are_returned(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send(a_message("m-1"), a_message("m-2", receipt=False))

    _, _, outbox_entry, receipts = await call(desk, (bob, await desk.take(bob)))

    assert receipts.decode() == f"acme/alice\t1\t{NOON_MS}\nm-1\tbob\t0"
    assert [id for id, _ in desk.raw_range(desk.keys.outbox(0))] == [outbox_entry.decode()]


async def test_nothing_happens_if_one_mailbox_is_not_as_believed(desk: Desk) -> None:
    bob, carol = await desk.join(), await desk.join(CAROL)
    await desk.send(a_message("m-1"), a_message("m-2", to=CAROL))
    rows, of_carol = await desk.take(bob), await desk.take(carol)
    await desk.release(carol, of_carol[0].entry)

    outcome = await call(desk, (bob, rows), (carol, of_carol))

    assert outcome == [b"other", 2]
    assert (desk.depth(), desk.depth(CAROL), desk.events("acked")) == (1, 1, [])


async def test_a_mailbox_with_lanes_is_left_to_ack(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send(a_message("m-1"), a_message("m-2", priority=3))
    rows = [row for row in await desk.take(bob) if "p" not in row.entry]

    assert await call(desk, (bob, rows)) == [b"other", 1]


async def test_so_is_one_that_has_lost_its_group(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("m-1"))
    rows = await desk.take(bob)
    desk.redis.xgroup_destroy(desk.keys.box(BOB), "agent")

    assert await call(desk, (bob, rows)) == [b"other", 1]


async def test_a_call_that_is_sent_again_acks_once(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("m-1"))
    packet = a_packet(desk, (bob, await desk.take(bob)))
    await desk.store.pipeline.reply(packet)

    again = await desk.store.pipeline.reply(packet)

    assert again == [b"acked", b""]
    assert len(desk.events("acked")) == 1


async def test_two_sessions_that_ack_the_last_of_a_mailbox_leave_nothing_behind(desk: Desk) -> None:
    one, other = await desk.join(mode="shared"), await desk.join(mode="shared")
    await desk.send(a_message("m-1"), a_message("m-2"))
    acks = [(one, await desk.take(one, room=1)), (other, await desk.take(other, room=1))]

    await call(desk, *acks)

    assert desk.waits_since() is None
    assert desk.redis.hgetall(desk.shard_key("bytes")) == {}


async def test_a_delay_that_was_over_before_a_worker_came_leaves_nothing_behind(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("m-1", delay_s=5))
    desk.clock.advance(6)
    rows = await desk.take(bob)

    await call(desk, (bob, rows))

    assert desk.due() == {}


async def test_the_pace_near_the_cap_is_of_all_that_a_call_acks(make_desk: MakeDesk) -> None:
    desk = await make_desk()
    one, other = await desk.join(mode="shared"), await desk.join(mode="shared")
    await desk.send(*(a_message(f"m-{n}") for n in range(6)))
    rows = await desk.take(one)
    await desk.release(one, *(row.entry for row in rows[3:]))
    await call(desk, (one, rows[:1]), near_cap=1)
    desk.clock.advance(8)

    await call(desk, (one, rows[1:3]), (other, await desk.take(other, room=2)), near_cap=1)

    smoothed = (1_000 * 7 + 8_000 // 4) // 8
    assert desk.redis.hget(desk.shard_key("drain"), BOB) == f"{NOON_MS + 8_000}\t{smoothed}"


async def test_what_failed_before_is_forgotten(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message("m-1"))
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=0)
    (again,) = await desk.take(bob)

    await call(desk, (bob, [again]))

    assert again.attempt == 2
    assert desk.failures() == {}
    assert [event.attempt for event in desk.events("acked")] == ["2"]
