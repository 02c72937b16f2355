"""The loop that every worker runs in: what it says of itself when it fails, and when it is well again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from unittest.mock import patch

import pytest

from relay.errors import Malformed, StoreUnavailable
from relay.settings import Settings
from relay.store.clock import Clock
from relay.store.store import Store, open_store
from tests.builders import ALICE, BOB, WAIT_S, a_message
from tests.conftest import MakeDesk
from tests.servers import RealServer
from workers import loop, receipts
from workers.loop import LONGEST_BACKOFF_S, STORE_BACKOFF_S, Worker, backoff_s, run_once, run_worker
from workers.metrics import WorkerMetrics

Step = Callable[[Store, int, int], Awaitable[int]]


def failing_once(error: Exception) -> Step:
    """A duty that fails in its first round only."""
    failures = iter([error])

    async def step(*_: object) -> int:
        for failure in failures:
            raise failure
        return 1

    return step


async def rounds(store: Store, step: Step, count: int) -> list[tuple[float, dict[str, str]]]:
    """Lets a worker go through some rounds: after each, how long it means to pause and what /readyz is told."""
    seen: list[tuple[float, dict[str, str]]] = []
    enough = asyncio.Event()

    async def pause(seconds: float) -> None:
        seen.append((seconds, await store.workers.failing()))
        if len(seen) == count:
            enough.set()
            await asyncio.Event().wait()

    with patch.object(loop.asyncio, "sleep", pause):
        running = asyncio.create_task(run_worker(store, Worker("sweeper", 300.0, step), WorkerMetrics("w-1", [])))
        async with asyncio.timeout(WAIT_S):
            await enough.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return seen


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnavailable("the store does not answer"), "the store does not answer"),
        (Malformed("a bad member"), "a bad member"),
        (KeyError("a secret"), "KeyError"),
    ],
)
async def test_a_worker_that_fails_says_so_until_it_is_well(store: Store, error: Exception, said: str) -> None:
    (first_pause_s, ill), (second_pause_s, well) = await rounds(store, failing_once(error), 2)

    assert ill == {"sweeper": said}
    assert well == {}
    assert first_pause_s <= 1.0
    assert second_pause_s == 300.0


@pytest.mark.parametrize(("after_s", "done"), [(0.0, 1), (3_600.0, None)])
async def test_a_duty_may_wait_until_the_store_has_been_there_for_a_while(
    store: Store, after_s: float, done: int | None
) -> None:
    async def step(*_: object) -> int:
        return 1

    assert await run_once(store, Worker("reaper", 1.0, step, after_s)) == done


def test_a_store_that_was_away_is_tried_again_within_seconds_and_a_broken_duty_ever_more_rarely() -> None:
    assert backoff_s(100, STORE_BACKOFF_S) <= STORE_BACKOFF_S
    assert LONGEST_BACKOFF_S / 2 <= backoff_s(100, LONGEST_BACKOFF_S) <= LONGEST_BACKOFF_S
    assert backoff_s(1, LONGEST_BACKOFF_S) < backoff_s(3, LONGEST_BACKOFF_S) < backoff_s(5, LONGEST_BACKOFF_S)


async def test_a_worker_goes_by_the_stores_clock(redis_server: RealServer) -> None:
    clock = Clock()
    clock.heard(clock.now_ms() + 20_000, clock.own_ms(), clock.own_ms())
    times: list[int] = []

    async def step(_: Store, __: int, now_ms: int) -> int:
        times.append(now_ms)
        return 0

    async with open_store(Settings(shards=1), redis_server.url, prefix="test-worker-clock", clock=clock) as store:
        await run_once(store, Worker("sweeper", 1.0, step))

    assert abs(times[0] - time.time() * 1_000) < 10_000


async def test_what_cannot_be_brought_on_does_not_stand_in_the_way_of_the_rest(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "AT_ONCE", 1)
    desk = await make_desk(mailbox_max_messages=1)
    await desk.send_one(a_message("in the way", to=ALICE), sender=BOB)
    outbox = desk.keys.outbox(0)
    later_ms = desk.clock.now_ms() + 60_000
    desk.redis.xadd(outbox, {"reply": f"{ALICE}\t{BOB}\task\t{later_ms}\tend\t1\t42"}, id="1-1")
    desk.redis.xadd(outbox, {"receipts": f"{ALICE}\t1\t7\nm-1\tbob\t5"}, id="1-2")

    await receipts.forward_shard(desk.store, 0, desk.clock.now_ms())

    assert [one["id"] for one in await desk.receipts()] == ["m-1"]
    assert desk.redis.xrange(outbox) == []
    assert desk.redis.llen(desk.keys.owed(ALICE)) == 1
