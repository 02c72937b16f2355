"""reap: streams of mailboxes that are empty and that nobody serves are removed."""

from tests.builders import BOB, Desk, a_message


async def reap(desk: Desk) -> list[str]:
    return await desk.store.duties.reap(0, [BOB], 0)


async def test_an_empty_mailbox_that_nobody_serves_is_reaped(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2", priority=5))
    bob = await desk.join()
    taken = await desk.take(bob)
    await desk.ack(bob, *(row.entry for row in taken))
    await desk.leave(bob)
    before = desk.redis.exists(desk.keys.box(BOB), desk.keys.box(BOB, 5))

    words = await reap(desk)

    assert before == 2
    assert words == ["reaped"]
    assert desk.redis.exists(desk.keys.box(BOB), desk.keys.box(BOB, 5)) == 0
    assert desk.redis.hgetall(desk.shard_key("lanes")) == {}


async def test_a_mailbox_with_mail_in_any_lane_is_in_use(desk: Desk) -> None:
    await desk.send_one(a_message("1", priority=5))

    assert await reap(desk) == ["in_use"]
    assert desk.depth(priority=5) == 1


async def test_a_served_mailbox_is_in_use(desk: Desk) -> None:
    await desk.join()

    assert await reap(desk) == ["in_use"]


async def test_a_reaped_mailbox_works_as_a_new_one(desk: Desk) -> None:
    await desk.send_one(a_message("1", priority=5))
    await desk.cancel("1")
    await reap(desk)

    sent = await desk.send(a_message("2"), a_message("3", priority=5))
    bob = await desk.join()
    taken = await desk.take(bob)

    assert [row.entry for row in taken] == [sent[1].entry, sent[0].entry]
