"""forward: receipts come to their senders, each once, however often they are brought."""

from collections.abc import Awaitable, Callable

import pytest

from relay.store.keys import FORWARDED_BUCKET_MS
from relay.store.record.receipt_lines import as_json
from relay.store.replies import receipts
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk

PARCEL = [b"receipts", b"acme/alice\t2\t7\n1\tbob\t5\n3\tbob\t5", b"receipts", b"acme/carol\t1\t7\n2\tbob\t5"]


async def ids_told(desk: Desk, sender: str) -> list[str]:
    return [receipt["id"] for receipt in await desk.receipts(sender)]


async def test_receipts_are_forwarded_to_each_sender_and_leave_the_outbox(desk: Desk) -> None:
    origin = desk.redis.xadd(desk.keys.outbox(0), {"receipts": "as below"}).encode()
    await desk.join(ALICE)
    ears = desk.ears(address=ALICE)

    desk.store.receipts.forward(0, origin, PARCEL)

    assert await ids_told(desk, ALICE) == ["1", "3"]
    assert await ids_told(desk, CAROL) == ["2"]
    assert desk.redis.xlen(desk.keys.outbox(0)) == 0
    assert ears.heard() == ["receipts\tacme/alice"]


async def test_the_same_origin_again_is_a_duplicate(desk: Desk) -> None:
    for _ in range(3):
        desk.store.receipts.forward(0, b"1-1", PARCEL)
        await desk.store.pipeline.finish()

    assert await ids_told(desk, ALICE) == ["1", "3"]


ONE = "acme/alice\t1\t7\n1\tbob\t5"
PUSHED = [b"via", b"here.1", b"receipts", ONE.encode()]


def put_in_outbox(desk: Desk) -> str:
    """A receipt that was pushed to a session. Returns the outbox."""
    outbox = desk.keys.outbox(0)
    desk.redis.xadd(outbox, {"via": "here.1", "receipts": ONE}, id="1-1")
    return outbox


async def test_what_is_about_to_be_deleted_is_not_sent_once_more(desk: Desk) -> None:
    outbox = put_in_outbox(desk)
    desk.store.receipts.done(0, "1-1")

    found = await desk.store.receipts.in_outbox("here.1", 0, "1-1")
    await desk.store.pipeline.finish()

    assert found is None
    assert desk.redis.xlen(outbox) == 0


async def test_what_is_being_forwarded_is_not_pushed_too(desk: Desk) -> None:
    outbox = put_in_outbox(desk)
    desk.store.receipts.forward(0, b"1-1", PUSHED)

    found = await desk.store.receipts.in_outbox("here.1", 0, "1-1")
    await desk.store.pipeline.finish()

    assert found is None
    assert desk.redis.xlen(outbox) == 0
    assert await ids_told(desk, ALICE) == ["1"]


async def test_what_could_not_be_forwarded_is_found_in_the_outbox(desk: Desk) -> None:
    put_in_outbox(desk)
    desk.redis.set(desk.keys.receipts(ALICE), "the store cannot add to this")
    desk.store.receipts.forward(0, b"1-1", PUSHED)
    await desk.store.pipeline.finish()

    found = await desk.store.receipts.in_outbox("here.1", 0, "1-1")

    assert found is not None
    assert (found.sender, found.count, found.receipts) == (ALICE, 1, "7\n1\tbob\t5")


async def test_what_could_not_be_deleted_is_not_sent_once_more(desk: Desk) -> None:
    outbox = desk.keys.outbox(0)
    desk.redis.set(outbox, "the store cannot delete from this")
    desk.store.receipts.done(0, "1-1")
    await desk.store.pipeline.finish()
    desk.redis.delete(outbox)
    put_in_outbox(desk)

    found = await desk.store.receipts.in_outbox("here.1", 0, "1-1")
    await desk.store.pipeline.finish()

    assert found is None
    assert desk.redis.xlen(outbox) == 0


async def test_what_another_instance_has_forwarded_and_could_not_delete_is_not_pushed_too(desk: Desk) -> None:
    outbox = desk.keys.outbox(0)
    desk.store.receipts.forward(0, b"1-1", PUSHED)
    await desk.store.pipeline.finish()
    desk.redis.delete(outbox)
    put_in_outbox(desk)

    found = await desk.store.receipts.in_outbox("here.1", 0, "1-1")
    await desk.store.pipeline.finish()

    assert found is None
    assert desk.redis.xlen(outbox) == 0


async def test_an_origin_is_remembered_into_the_next_bucket(desk: Desk) -> None:
    desk.store.receipts.forward(0, b"1-1", PARCEL)
    await desk.store.pipeline.finish()

    desk.clock.advance(FORWARDED_BUCKET_MS / 1_000)
    desk.store.receipts.forward(0, b"1-1", PARCEL)

    assert await ids_told(desk, ALICE) == ["1", "3"]


async def test_senders_in_other_shards_get_theirs(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=16)
    senders = [f"acme/s{n}" for n in range(20)]
    for sender in senders:
        await desk.send_one(a_message("m-1"), sender=sender)
    bob = await desk.join()
    taken = await desk.take(bob, room=20)

    await desk.ack(bob, *(row.entry for row in taken))

    states = [[receipt["state"] for receipt in await desk.receipts(sender)] for sender in senders]
    assert len({desk.keys.shard(sender) for sender in senders}) > 5
    assert states == [["delivered"]] * 20
    assert desk.redis.xlen(desk.keys.outbox(desk.keys.shard("acme/bob"))) == 0


async def test_confirmed_receipts_are_forgotten_and_later_ones_are_not(desk: Desk) -> None:
    desk.store.receipts.forward(0, b"1-1", PARCEL)
    await desk.store.pipeline.finish()
    desk.store.receipts.forward(0, b"1-2", PARCEL)
    await desk.store.pipeline.finish()
    ((first, _), _) = desk.redis.xrange(desk.keys.receipts(ALICE))

    desk.store.receipts.forget(ALICE, [first], lambda _: None)
    await desk.store.pipeline.finish()

    assert len(await desk.receipts(ALICE)) == 2


async def forward_one_by_one(desk: Desk, numbers: range) -> None:
    for n in numbers:
        desk.store.receipts.forward(0, f"{n}-1".encode(), [b"receipts", b"acme/alice\t1\t7\n%d\tbob\t5" % n])
        await desk.store.pipeline.finish()


async def test_for_one_too_many_the_oldest_go_and_the_sender_learns_how_many(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "RECEIPTS_MAX", 20)

    await forward_one_by_one(desk, range(1, 101))
    got: list[receipts.ReceiptBatch] = []
    desk.store.receipts.read(ALICE, "0-0", lambda found: got.extend(found or ()))
    await desk.store.pipeline.finish()

    kept = sum(one.count for one in got)
    assert len(got) <= 20
    assert kept > 10
    assert kept + sum(one.dropped for one in got) == 100
    assert "7\n100\tbob\t5" in [one.receipts for one in got]


async def acked(desk: Desk) -> None:
    bob = await desk.join()
    await desk.ack(bob, *(row.entry for row in await desk.take(bob, room=100)))


async def dead(desk: Desk) -> None:
    bob = await desk.join()
    await desk.nack(bob, *(row.entry for row in await desk.take(bob, room=100)), retry=False, reason="no " * 30)


@pytest.mark.parametrize("end", [acked, dead])
@pytest.mark.parametrize("length", [1, 100])
async def test_many_receipts_for_one_sender_come_in_entries_whose_json_is_of_bounded_size(
    desk: Desk, end: Callable[[Desk], Awaitable[None]], length: int
) -> None:
    await desk.send(*(a_message(f"{'m' * length}-{n}") for n in range(100)))

    await end(desk)

    assert len(await desk.receipts(ALICE)) == 100
    entries = [fields["receipts"] for _, fields in desk.redis.xrange(desk.keys.receipts(ALICE))]
    sizes = [len(as_json(receipts, ALICE)) for receipts in entries]
    assert len(sizes) > 1
    assert 3_000 < max(sizes) < 5_000


async def test_a_receipt_that_waits_is_found_by_its_message(desk: Desk) -> None:
    desk.redis.xadd(desk.keys.receipts(ALICE), {"count": 0, "receipts": "", "dropped": 3})
    desk.redis.xadd(desk.keys.receipts(ALICE), {"count": 1, "receipts": f"{NOON_MS}\nm-1\tbob\t5"})

    found = await desk.store.checkup.receipt(ALICE, BOB, "m-1")
    other = await desk.store.checkup.receipt(ALICE, CAROL, "m-1")

    assert found is not None
    assert (found["id"], found["to"]) == ("m-1", BOB)
    assert other is None


async def test_a_sender_that_never_had_a_session_is_known_to_the_reaper(desk: Desk) -> None:
    await forward_one_by_one(desk, range(1, 2))

    assert desk.redis.hkeys(desk.keys.seen(0)) == [ALICE]


async def test_none_is_dropped_uncounted_where_more_were_allowed_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await forward_one_by_one(desk, range(1, 51))
    monkeypatch.setattr(receipts, "RECEIPTS_MAX", 20)

    await forward_one_by_one(desk, range(51, 71))

    rows = [fields for _, fields in desk.redis.xrange(desk.keys.receipts(ALICE))]
    assert len(rows) < 35
    assert sum(int(row["count"]) + int(row.get("dropped", 0)) for row in rows) == 70
