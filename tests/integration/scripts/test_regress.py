"""regress: the store goes back in time. Whoever was promised something notices, says it once, and reuses no number."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from relay.store.meta import Meta
from tests.agents import until
from tests.builders import ALICE, BOB, NOON_MS, Desk, a_message, open_desk
from tests.servers import RealServer

GENERATION = 10**12


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as server:
        yield server


@pytest.fixture
async def desk(server: RealServer) -> AsyncIterator[Desk]:
    async with open_desk(server, "relay") as desk:
        await desk.store.meta.check()
        yield desk


@pytest.fixture
async def other(server: RealServer, desk: Desk) -> AsyncIterator[Desk]:
    """Another instance."""
    async with open_desk(server, "relay", desk.clock) as other:
        await other.store.meta.check()
        yield other


def regressed(desk: Desk) -> list[tuple[str, str]]:
    """What the event log says of it: the last entry that was kept, and the newest that was known."""
    return [(event.entry, event.reason) for event in desk.events() if event.kind == "regressed"]


def log_ids(desk: Desk) -> list[str]:
    return [id for id, _ in desk.redis.xrange(desk.keys.events(0))]


async def test_what_was_accepted_and_is_gone_is_noticed(server: RealServer, desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))
    server.back_up()
    (last_kept,) = log_ids(desk)
    await desk.send_one(a_message("m-2"))
    await desk.send_one(a_message("m-3"))
    lost = log_ids(desk)[1:]
    epoch = desk.store.meta.epoch

    server.go_back()
    await desk.send_one(a_message("m-4"))
    is_new = await desk.store.meta.check()

    assert regressed(desk) == [(last_kept, lost[-1])]
    assert is_new
    assert desk.store.meta.epoch != epoch
    found = desk.store.meta.newly_regressed[0]
    assert (found.last_kept, found.first_lost, found.newest_known) == (last_kept, lost[0], lost[-1])
    assert (found.times, found.at_ms, found.entries) == (1, NOON_MS, 2)
    assert found.seconds == (int(lost[-1].split("-")[0]) - int(last_kept.split("-")[0])) / 1_000


async def test_an_ack_that_is_undone_is_noticed(server: RealServer, desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    (row,) = await desk.take(bob)
    server.back_up()
    await desk.ack(bob, rows=[row])

    server.go_back()
    await desk.ack(bob, sent.entry)

    assert len(regressed(desk)) == 1


@pytest.mark.parametrize("how", ["ack", "nack", "release", "touch"])
async def test_each_settlement_that_is_undone_is_noticed(server: RealServer, desk: Desk, how: str) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join(ack_timeout_s=60)
    await desk.take(bob)
    server.back_up()
    await getattr(desk, how)(bob, sent.entry)

    server.go_back()
    await desk.store.ping()

    assert len(regressed(desk)) == 1


async def test_the_store_says_it_before_it_takes_anything_else(server: RealServer, desk: Desk) -> None:
    server.back_up()
    await desk.send_one(a_message("m-1"))

    server.go_back()
    await desk.send_one(a_message("m-2"))

    assert [event.kind for event in desk.events()] == ["regressed", "accepted"]
    assert regressed(desk)[0][0] == "0-0"


async def test_a_store_that_is_only_restarted_has_not_gone_back(server: RealServer, desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))
    server.stop()
    server.start()

    await desk.send_one(a_message("m-2"))

    assert regressed(desk) == []
    assert not await desk.store.meta.check()


async def test_a_log_that_was_trimmed_has_not_gone_back(server: RealServer, desk: Desk) -> None:
    for n in range(3):
        await desk.send_one(a_message(f"m-{n}"))
    desk.redis.xtrim(desk.keys.events(0), maxlen=0)
    server.stop()
    server.start()

    await desk.store.ping()

    assert regressed(desk) == []


async def test_no_number_of_a_thread_is_used_twice(server: RealServer, desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("t-1", thread="t"))
    server.back_up()
    await desk.send(a_message("m-2"), a_message("t-2", thread="t"), a_message("n-1", thread="new"))

    server.go_back()
    again = await desk.send(
        *(a_message("m-3"), a_message("m-4"), a_message("t-3", thread="t"), a_message("n-2", thread="new"))
    )

    assert [answer.values[1] for answer in again] == [GENERATION + 1, GENERATION + 2, GENERATION + 1, GENERATION + 1]
    assert (await desk.send_one(a_message("m-5"))).values[1] == GENERATION + 3


async def test_a_thread_that_nobody_used_since_goes_on_where_its_numbers_will(server: RealServer, desk: Desk) -> None:
    server.back_up()
    await desk.send_one(a_message("m-1"))

    server.go_back()
    await desk.store.ping()
    thread = await desk.store.agents.thread_state(ALICE, BOB, "")

    assert thread.last_seq == GENERATION


async def test_each_time_the_numbers_go_on_further(server: RealServer, desk: Desk) -> None:
    server.back_up()
    await desk.send_one(a_message("m-1"))
    server.go_back()
    await desk.send_one(a_message("m-2"))
    server.back_up()
    await desk.send_one(a_message("m-3"))
    server.go_back()

    assert (await desk.send_one(a_message("m-4"))).values[1] == 2 * GENERATION + 1
    await desk.store.meta.check()
    assert desk.store.meta.regresses[0].times == 2


async def test_a_store_that_goes_back_to_the_same_moment_twice_uses_no_number_or_epoch_again(
    server: RealServer, desk: Desk
) -> None:
    await desk.send_one(a_message("m-1"))
    server.back_up()
    await desk.send_one(a_message("m-2"))
    epochs = [desk.store.meta.epoch]
    numbers = []

    for name in ("m-3", "m-4"):
        server.go_back()
        numbers.append((await desk.send_one(a_message(name))).values[1])
        epochs.append(await learned(desk.store.meta))

    assert numbers == [GENERATION + 1, 2 * GENERATION + 1]
    assert len(set(epochs)) == 3


async def test_two_instances_that_notice_the_same_say_it_once(server: RealServer, desk: Desk, other: Desk) -> None:
    server.back_up()
    await desk.send_one(a_message("m-1"))
    await other.send_one(a_message("m-2"))
    await other.send_one(a_message("m-3"))

    server.go_back()
    await desk.send_one(a_message("m-4"))
    await other.send_one(a_message("m-5"))
    told = [await learned(one.store.meta) for one in (desk, other, desk)]

    assert len(regressed(desk)) == 1
    assert told[0] == told[1] == told[2]
    regresses = await desk.store.meta.read_regresses()
    assert regresses[0].lost_by == {desk.store.instance: 1, other.store.instance: 2}


async def learned(meta: Meta) -> str:
    await meta.check()
    return meta.epoch


async def test_one_that_has_lost_nothing_learns_of_it_by_the_epoch(server: RealServer, desk: Desk, other: Desk) -> None:
    server.back_up()
    await desk.send_one(a_message("m-1"))

    server.go_back()
    await desk.store.ping()
    await desk.store.meta.check()

    assert await other.store.meta.check()
    assert list(other.store.meta.newly_regressed) == [0]


async def test_what_is_told_of_another_shard_after_the_epoch_was_learned_is_learned_too(server: RealServer) -> None:
    async with (
        open_desk(server, "two", shards=2) as desk,
        open_desk(server, "two", desk.clock, shards=2) as second,
        open_desk(server, "two", desk.clock, shards=2) as third,
    ):
        for one in (desk, second, third):
            await one.store.meta.check()
        by_shard = {desk.keys.shard(f"acme/{name}"): f"acme/{name}" for name in ("bob", "ann", "cho", "dee")}
        server.back_up()
        await desk.send_one(a_message("m-1", to=by_shard[0]))
        await second.send_one(a_message("m-2", to=by_shard[1]))
        server.go_back()

        learned = []
        for one in (desk, second):
            await one.store.ping()
            await one.store.meta.check()
            assert await third.store.meta.check()
            learned.append((list(third.store.meta.newly_regressed), third.store.meta.epoch))

        assert [shards for shards, _ in learned] == [[0], [1]]
        assert learned[0][1] == learned[1][1]
        assert not await third.store.meta.check()


async def test_a_receipt_whose_copy_was_undone_is_brought_again(server: RealServer, desk: Desk) -> None:
    """The copy is lost, and what it was made from is there: it must not be deleted as done."""
    outbox = desk.keys.outbox(0)
    await desk.send_one(a_message("m-0"))
    receipt = {"receipts": "acme/alice\t1\t7\n1\tbob\t5"}
    origin = desk.redis.xadd(outbox, receipt).encode()
    server.back_up()
    await desk.send_one(a_message("m-1"))
    fields = [part.encode() for pair in receipt.items() for part in pair]
    desk.store.receipts.forward(0, origin, fields)
    await until(lambda: desk.redis.exists(desk.keys.receipts(ALICE)))

    await asyncio.to_thread(server.go_back)
    await desk.store.pipeline.finish()
    kept = desk.redis.xlen(outbox)
    desk.store.receipts.forward(0, origin, fields)
    await desk.store.pipeline.finish()

    assert kept == 1
    assert [one["id"] for one in await desk.receipts(ALICE)] == ["1"]
    assert desk.redis.xlen(outbox) == 0


async def test_an_instance_that_comes_later_does_not_take_it_for_news(server: RealServer, desk: Desk) -> None:
    server.back_up()
    await desk.send_one(a_message("m-1"))
    server.go_back()
    await desk.store.ping()
    await desk.store.meta.check()

    async with open_desk(server, "relay", desk.clock) as late:
        await late.store.meta.check()

        assert late.store.meta.newly_regressed == {}
        assert list(late.store.meta.regresses) == [0]


async def test_what_was_lost_is_stored_once_when_it_is_sent_again(server: RealServer, desk: Desk) -> None:
    await desk.send_one(a_message("kept"))
    server.back_up()
    await desk.send_one(a_message("lost"))

    server.go_back()
    answers = await desk.send(a_message("kept"), a_message("lost"), a_message("lost"))

    assert [answer.word for answer in answers] == ["duplicate", "stored", "duplicate"]
