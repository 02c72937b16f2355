"""Feeds: the logs are read once for all who follow, in order, and whoever does not keep up is not told half of it."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from relay.core.instance import event_feed
from relay.core.instance.event_feed import LONGEST_LAG_MS, MOST_QUEUED, Batch, Feed, Feeds, Follower
from relay.errors import StoreUnavailable
from relay.store.record.events import COLUMNS, Event
from relay.store.watching.history import Wanted

ACME = Wanted("acme")


def event(at_ms: int, kind: str = "accepted", **fields: Any) -> Event:
    values = dict.fromkeys(COLUMNS, "") | {"kind": kind, "at_ms": at_ms, "tenant": "acme", "to": "bob", **fields}
    return Event(f"{at_ms}-0", 0, values)


class Logs:
    """What the logs have, and how often they were read."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.now_ms = now_ms
        self.events: list[Event] = []
        self.reads = 0
        self.read_thrice = asyncio.Event()
        self.most = 1_000
        self.away = False

    async def since(self, from_ms: int, _wanted: Wanted, _most_bytes: int) -> tuple[int, bool, list[Event]]:
        self.reads += 1
        if self.reads == 3:
            self.read_thrice.set()
        if self.away:
            raise StoreUnavailable("away")
        found = [event for event in self.events if from_ms <= event.at_ms < self.now_ms][: self.most]
        next_ms = found[-1].at_ms + 1 if len(found) == self.most else self.now_ms
        return next_ms, next_ms < self.now_ms, found


def shown(batch: Batch, wanted: Wanted = ACME, after: tuple[int, int] = (0, 0)) -> list[str]:
    frames, _ = batch.shown(wanted, after)
    return [line.removeprefix("id: ") for line in frames.decode().split("\n") if line.startswith("id: ")]


@pytest.fixture
def logs() -> Logs:
    return Logs()


def a_feed(logs: Logs, *followers: Follower) -> Feed:
    made = Feed(logs, "acme", lambda: logs.now_ms)  # type: ignore[arg-type]
    made.followers |= set(followers)
    return made


async def test_one_read_serves_everybody(logs: Logs) -> None:
    one, other = Follower(1_000), Follower(1_000)
    made = a_feed(logs, one, other)
    logs.events, logs.now_ms = [event(1_000), event(1_000), event(1_001)], 1_010

    await made.poll()
    batches = [await one.next(1), await other.next(1)]

    assert logs.reads == 1
    assert [shown(batch) for batch in batches if batch] == [["1000-1", "1000-2", "1001-1"]] * 2
    assert one.from_ms == 1_010


async def test_what_several_want_is_encoded_once() -> None:
    batch = Batch(1_000, 1_010, [event(1_000)])

    assert batch.shown(ACME)[0] is batch.shown(Wanted("acme"))[0]


async def test_a_number_does_not_depend_on_what_is_wanted() -> None:
    batch = Batch(1_000, 1_010, [event(1_000), event(1_000, "acked"), event(1_000, "acked")])

    assert shown(batch, Wanted("acme", kinds=frozenset({"acked"}))) == ["1000-2", "1000-3"]
    assert shown(batch, ACME, after=(1_000, 2)) == ["1000-3"]
    assert shown(batch, ACME, after=(999, 7)) == ["1000-1", "1000-2", "1000-3"]


async def test_what_is_told_is_counted_by_kind() -> None:
    batch = Batch(1_000, 1_010, [event(1_000), event(1_001, "acked"), event(1_001, "acked")])

    assert batch.shown(ACME)[1] == {"accepted": 1, "acked": 2}


async def test_whoever_must_not_know_of_a_block_is_told_of_an_arrival() -> None:
    batch = Batch(1_000, 1_010, [event(1_000, "refused", reason="blocked")])

    frames = [batch.shown(Wanted("acme", sees_blocks=sees))[0].decode() for sees in (True, False)]

    kinds = [json.loads(frame.partition("data: ")[2])["kind"] for frame in frames]
    assert kinds == ["refused", "accepted"]


async def test_a_feed_that_is_far_behind_leaves_something_out_and_says_so(logs: Logs) -> None:
    follower = Follower(1_000)
    made = a_feed(logs, follower)
    logs.events, logs.most = [event(1_000 + n) for n in range(100)], 10

    logs.now_ms = 1_010 + LONGEST_LAG_MS
    await made.poll()
    late = await follower.next(1)
    logs.now_ms += 1
    await made.poll()
    too_late = await follower.next(1)

    assert late is not None
    assert (late.gap_from_ms, late.to_ms) == (None, 1_010)
    assert too_late is not None
    assert made.next_ms == too_late.to_ms == 1_020
    logs.now_ms += 10_000
    await made.poll()
    left_out = await follower.next(1)
    assert left_out is not None
    assert (left_out.gap_from_ms, left_out.to_ms, made.next_ms) == (1_030, logs.now_ms, logs.now_ms)


async def test_a_follower_that_does_not_keep_up_is_told_where_the_feed_is() -> None:
    follower = Follower(1_000)
    half = [event(1_000)] * (MOST_QUEUED // 2)
    follower.tell(Batch(1_000, 1_001, half))
    follower.tell(Batch(1_001, 1_002, half))
    assert follower.from_ms == 1_000

    follower.tell(Batch(1_002, 1_003, [event(1_002)]))
    follower.tell(Batch(1_003, 1_004, [event(1_003)]))
    from_ms = follower.from_ms
    batch = await follower.next(1)

    assert from_ms == 1_003
    assert batch is not None
    assert shown(batch) == ["1003-1"]


async def test_nothing_comes_in_time() -> None:
    assert await Follower(0).next(0) is None


async def test_a_feed_reads_while_somebody_follows(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "POLL_S", 0)
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.ensure_future(work))

    feeds = Feeds(logs, lambda: logs.now_ms, spawn)  # type: ignore[arg-type]
    with feeds.follow("acme") as one:
        with feeds.follow("acme") as other:
            await one.next(1)
            await other.next(1)
        await one.next(1)
    await asyncio.wait_for(tasks[0], 1)
    with feeds.follow("acme") as one:
        assert await one.next(1) is not None

    assert len(tasks) == 2
    await asyncio.wait_for(tasks[1], 1)


async def test_a_store_that_is_away_only_delays(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "RETRY_S", 0)
    monkeypatch.setattr(event_feed, "POLL_S", 0)
    follower = Follower(1_000)
    made = a_feed(logs, follower)
    logs.away = True
    running = asyncio.ensure_future(made.run())
    await asyncio.wait_for(logs.read_thrice.wait(), 1)
    logs.away, logs.events, logs.now_ms = False, [event(1_000)], 1_001

    batch = await follower.next(1)
    made.followers.clear()
    await asyncio.wait_for(running, 1)

    assert batch is not None
    assert shown(batch) == ["1000-1"]
