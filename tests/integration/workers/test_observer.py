"""The observer's round: what it reads, once, and what it writes."""

import time

import pytest

from relay.store.record.events import columns_of
from relay.store.watching.observing import ReadMark
from relay.store.watching.snapshots import ALL_TENANTS, Snapshot
from tests.builders import BOB, CAROL, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk
from workers import observer
from workers.observer import Observer

observe = Observer().observe


def now_ms() -> int:
    """The observer works by the store's clock, in which the logs are written."""
    return int(time.time() * 1_000)


async def history(desk: Desk, tenant: str = "acme") -> list[Snapshot]:
    return await desk.store.snapshots.history(tenant, 0)


async def test_a_round_says_what_happened_and_what_there_is(desk: Desk) -> None:
    sent, *_ = await desk.send(a_message("m-1", payload="four"), a_message("m-2", payload="four"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.ack(bob, sent.entry)

    count = await observe(desk.store, 0, now_ms())

    (snapshot,) = await history(desk)
    assert count == 4
    assert snapshot.counts == {"accepted": 2, "acked": 1, "joined": 1, "taken": 1}
    assert (snapshot.messages, snapshot.bytes, snapshot.online, snapshot.dead) == (1, 6, 1, 0)
    assert (snapshot.seconds, snapshot.accepted_per_s, snapshot.estimated) == (10, 0.2, False)
    assert snapshot.acked_ms is not None


async def test_no_event_is_counted_twice_and_none_is_left_out(desk: Desk) -> None:
    at_ms = now_ms()
    await desk.send(a_message("m-1"))
    await observe(desk.store, 0, at_ms)
    await desk.send(a_message("m-2"), a_message("m-3"))
    await observe(desk.store, 0, at_ms + 4_000)

    first, second = await history(desk)

    assert (first.counts, second.counts) == ({"accepted": 1}, {"accepted": 2})
    assert (second.seconds, second.accepted_per_s) == (4, 0.5)


async def test_what_happened_before_the_first_round_is_not_counted(desk: Desk) -> None:
    await desk.send(a_message("m-1"))

    count = await observe(desk.store, 0, now_ms() + 60_000)

    assert count == 0


async def test_more_than_one_round_reads_is_estimated(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = await make_desk()
    await observe(desk.store, 0, now_ms())
    for n in range(200):
        await desk.send(a_message(f"m-{n}"))
    monkeypatch.setattr(observer, "MOST_BYTES", 2_000)

    read = await observe(desk.store, 0, now_ms())

    (snapshot,) = await history(desk)
    assert read < 100
    assert snapshot.estimated
    assert snapshot.counts["accepted"] == 200
    assert await observe(desk.store, 0, now_ms()) == 0


async def test_the_whole_store_has_a_history_of_its_own(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=4)
    await desk.send(a_message("m-1"), a_message("m-2", to=CAROL))
    await desk.send_one(a_message("m-3", to="other/bob"), sender="other/alice")

    await observe(desk.store, 0, now_ms())

    (snapshot,) = await history(desk, ALL_TENANTS)
    shards = (await desk.store.snapshots.ranking(ALL_TENANTS)).shards
    assert (snapshot.counts, snapshot.messages) == ({"accepted": 3}, 3)
    assert {one.shard: one.messages for one in shards} == {
        shard: messages for shard in range(4) if (messages := (await desk.store.depths.of(shard)).messages)
    }


async def test_agents_are_ranked_by_depth_age_dead_letters_and_rate(desk: Desk) -> None:
    await observe(desk.store, 0, NOON_MS)
    await desk.send(a_message("m-1"), a_message("m-2", to=CAROL), a_message("m-3", to=CAROL))
    bob = await desk.join()
    (taken,) = await desk.take(bob)
    await desk.nack(bob, taken.entry, retry=False)

    await observe(desk.store, 0, NOON_MS + 10_000)

    ranking = await desk.store.snapshots.ranking("acme")
    assert ranking.by["depth"] == ranking.by["oldest"] == [CAROL]
    assert ranking.by["dead"] == [BOB]
    assert ranking.by["rate"][0] == "acme/alice"
    assert (ranking.agents[CAROL].depth, ranking.agents[CAROL].oldest_age_s) == (2, 10)


async def test_an_idle_tenant_costs_nothing(desk: Desk) -> None:
    bob = await desk.join()
    await desk.leave(bob)
    at_ms = now_ms()
    await observe(desk.store, 0, at_ms)
    await observe(desk.store, 0, at_ms + 10_000)

    assert len(await history(desk)) == 1


async def test_a_history_is_capped_and_goes_when_nothing_comes(make_desk: MakeDesk) -> None:
    desk = await make_desk(history_keep_s=60, snapshot_every_s=20)
    at_ms = now_ms()
    await desk.send(a_message("m-1"))
    for n in range(5):
        await observe(desk.store, 0, at_ms + n)

    key = desk.keys.history("acme")
    assert desk.redis.xlen(key) == 3
    assert 0 < desk.redis.pttl(key) <= 60_000


async def test_an_observer_that_was_away_for_long_begins_anew(desk: Desk) -> None:
    await desk.send(a_message("m-1"))
    await observe(desk.store, 0, now_ms())

    assert 0 < desk.redis.pttl(desk.keys.observed) <= 60_000
    places = await desk.store.observing.places()
    assert places is not None
    assert places.by_shard[0].added == 1


async def test_a_log_that_began_later_is_read_from_its_beginning(desk: Desk) -> None:
    await observe(desk.store, 0, now_ms())
    await desk.send(a_message("m-1"))
    reach = await desk.store.observing.reach(0)

    part = await desk.store.observing.read(0, ReadMark("0-0", 0), reach, 1_000)

    assert [len(list(columns_of(fields))) for _, fields in part.logged] == [1]
    assert part.weight == 1
    assert reach.is_whole


async def test_a_log_that_was_trimmed_says_so(desk: Desk) -> None:
    await desk.send(a_message("m-1"))
    await desk.send(a_message("m-2"))
    desk.redis.xtrim(desk.keys.events(0), maxlen=1, approximate=False)

    reach = await desk.store.observing.reach(0)

    assert not reach.is_whole
    assert reach.first == reach.last
    assert (reach.added, reach.length) == (2, 1)
