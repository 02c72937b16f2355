"""expire: what has outlived its TTL at the front of a mailbox is ended, then trimmed away, and nothing else."""

import asyncio

from relay.store.mailbox import expiry
from tests.builders import BOB, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk


async def test_what_has_outlived_the_ttl_is_ended_and_trimmed(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=100)
    old = await desk.send(a_message("1"), a_message("2", priority=4))
    desk.clock.advance(50)
    young = await desk.send_one(a_message("3"))

    desk.clock.advance(50)
    ended = await desk.expire()

    assert ended == (2, False)
    assert (desk.depth(), desk.depth(priority=4)) == (1, 0)
    assert set(desk.known_ids().values()) == {young.entry}
    assert desk.bytes_held() == 7
    assert desk.waits_since() == NOON_MS + 50_000
    assert {event.entry for event in desk.events("expired")} == {answer.entry for answer in old}
    assert [(event.to, event.reason) for event in desk.events("swept")] == [("bob", "2")]


async def test_small_streams_are_trimmed_exactly(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=100)
    await desk.send(*(a_message(f"old-{n}") for n in range(39)))
    desk.clock.advance(1)
    live = await desk.send_one(a_message("live"))

    desk.clock.advance(99)
    ended = await desk.expire()

    assert ended == (39, False)
    assert [entry for entry, _ in desk.redis.xrange(desk.keys.box(BOB))] == [live.entry]


async def test_a_short_ttl_behind_a_live_message_is_not_the_sweepers(desk: Desk) -> None:
    live, short = await desk.send(a_message("1"), a_message("2", ttl_s=5))
    desk.clock.advance(5)

    ended = await desk.expire()
    became = await desk.overdue()

    assert ended == (0, False)
    assert became == ["expired"]
    assert set(desk.known_ids().values()) == {live.entry}
    assert [event.entry for event in desk.events("expired")] == [short.entry]
    assert desk.events("swept") == []


async def test_one_call_ends_a_limited_number_and_says_that_there_may_be_more(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=10)
    await desk.send(*(a_message(f"m-{n}") for n in range(expiry.EXPIRE_AT_ONCE + 5)))
    desk.clock.advance(10)

    first = await desk.expire()
    second = await desk.expire()

    assert first == (expiry.EXPIRE_AT_ONCE, True)
    assert second == (5, False)
    assert len(desk.events("expired")) == expiry.EXPIRE_AT_ONCE + 5


async def test_a_held_message_leaves_no_ghost_and_its_holder_is_told(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=10)
    sent = await desk.send_one(a_message("1"))
    bob = await desk.join(ack_timeout_s=60)
    await desk.take(bob)
    ears = desk.ears()

    desk.clock.advance(10)
    await desk.expire()

    assert (desk.depth(), desk.holders(), desk.due()) == (0, {}, {})
    assert ears.heard() == [f"lost\t{bob.name}\t{sent.entry}"]
    assert await desk.ack(bob, sent.entry) == {sent.entry: "not_found"}
    assert [event.attempt for event in desk.events("expired")] == ["1"]


async def test_three_sweepers_at_once_have_one_effect(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=10)
    others = [await make_desk(message_ttl_s=10, prefix=desk.keys.prefix) for _ in range(2)]
    await desk.send(*(a_message(f"m-{n}", receipt="all") for n in range(10)))
    for one in (desk, *others):
        one.clock.advance(10)

    ended = await asyncio.gather(*(one.expire() for one in (desk, *others)))

    assert sum(count for count, _ in ended) == 10
    assert len(desk.events("expired")) == 10
    for one in others:
        await one.store.pipeline.finish()
    assert len(await desk.receipts()) == 10


async def test_expiry_is_silent_unless_a_receipt_of_everything_was_asked_for(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=10)
    await desk.send(a_message("default"), a_message("all", receipt="all"), a_message("none", receipt=False))
    desk.clock.advance(10)

    await desk.expire()

    assert [(receipt["id"], receipt["state"]) for receipt in await desk.receipts()] == [("all", "expired")]


async def test_an_empty_mailbox_that_nobody_serves_leaves_no_stream_behind(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=10)
    await desk.send(a_message("1"), a_message("2", priority=9))
    desk.clock.advance(10)

    await desk.expire()

    assert desk.redis.exists(desk.keys.box(BOB), desk.keys.box(BOB, 9)) == 0
    assert desk.redis.hgetall(desk.shard_key("lanes")) == {}
    assert desk.waits_since() is None


async def test_a_served_mailbox_keeps_its_group(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=10)
    await desk.send_one(a_message("1"))
    bob = await desk.join()
    await desk.take(bob)
    desk.clock.advance(10)

    await desk.expire()

    assert bob.name in desk.consumers()


async def test_the_sweeper_visits_only_who_is_due(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=10)
    await desk.send_one(a_message("1"))
    desk.clock.advance(5)
    await desk.send_one(a_message("1", to="acme/carol"))
    desk.clock.advance(5)

    due = await desk.store.expiry.due_mailboxes(0, desk.clock.now_ms() - 10_000, 10)

    assert due == [BOB]
