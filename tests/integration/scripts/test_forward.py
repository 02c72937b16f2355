"""forward: receipts come to their senders, each once, however often they are brought."""

from relay.store.keys import FORWARDED_BUCKET_MS
from tests.builders import ALICE, CAROL, Desk, a_message
from tests.conftest import MakeDesk

PARCEL = [b"receipts", b'acme/alice\t2\t{"id":"1"},{"id":"3"}', b"receipts", b'acme/carol\t1\t{"id":"2"}']


async def test_receipts_are_forwarded_to_each_sender_and_leave_the_outbox(desk: Desk) -> None:
    origin = desk.redis.xadd(desk.keys.outbox(0), {"receipts": "as below"}).encode()
    await desk.join(ALICE)
    ears = desk.ears(address=ALICE)

    desk.store.receipts.forward(0, origin, PARCEL)

    assert await desk.receipts(ALICE) == [{"id": "1"}, {"id": "3"}]
    assert await desk.receipts(CAROL) == [{"id": "2"}]
    assert desk.redis.xlen(desk.keys.outbox(0)) == 0
    assert ears.heard() == ["receipts\tacme/alice"]


async def test_the_same_origin_again_is_a_duplicate(desk: Desk) -> None:
    for _ in range(3):
        desk.store.receipts.forward(0, b"1-1", PARCEL)
        await desk.store.line.finish()

    assert await desk.receipts(ALICE) == [{"id": "1"}, {"id": "3"}]


async def test_an_origin_is_remembered_into_the_next_bucket(desk: Desk) -> None:
    desk.store.receipts.forward(0, b"1-1", PARCEL)
    await desk.store.line.finish()

    desk.clock.advance(FORWARDED_BUCKET_MS / 1_000)
    desk.store.receipts.forward(0, b"1-1", PARCEL)

    assert await desk.receipts(ALICE) == [{"id": "1"}, {"id": "3"}]


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
    await desk.store.line.finish()
    desk.store.receipts.forward(0, b"1-2", PARCEL)
    await desk.store.line.finish()
    ((first, _), _) = desk.redis.xrange(desk.keys.receipts(ALICE))

    desk.store.receipts.confirm(ALICE, first)
    await desk.store.line.finish()

    assert len(await desk.receipts(ALICE)) == 2
