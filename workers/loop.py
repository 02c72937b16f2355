"""The one loop that every worker runs in."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay.errors import RelayError, StoreUnavailable
from relay.store.store import Store
from relay.store.worker_leases import Round
from workers.metrics import WorkerMetrics

log = logging.getLogger(__name__)

LONGEST_BACKOFF_S = 30.0
STORE_BACKOFF_S = 2.0  # a store comes back for all workers at once: none should still report a failure then
LEASE_ROUNDS = 3  # a worker that misses this many rounds is replaced by another process's


@dataclass(frozen=True, slots=True)
class Worker:
    """A duty: one idempotent step per shard, repeated at an interval. The step returns how much it did."""

    name: str
    every_s: float
    step: Callable[[Store, int, int], Awaitable[int]]
    after_s: float = 0.0  # how long the store must have been within reach: what is alive must have had time to say so
    of_store: bool = False  # one step is for all shards, and is called with the first


async def run_worker(store: Store, worker: Worker, metrics: WorkerMetrics) -> None:
    """Runs a duty for ever. A failure is logged, counted, shown in /readyz, and tried again later."""
    failures = 0
    while True:
        try:
            await go_round(store, worker, metrics)
            if failures:
                await store.workers.report(worker.name, "")
                log.info("worker_recovered", extra={"worker": worker.name})
            failures, pause_s = 0, worker.every_s
        except RelayError as error:
            failures += 1
            metrics.failed(worker.name)
            pause_s = backoff_s(failures, STORE_BACKOFF_S if isinstance(error, StoreUnavailable) else LONGEST_BACKOFF_S)
            await _complain(store, worker, error.message)
        except Exception as error:
            failures += 1
            metrics.failed(worker.name)
            pause_s = backoff_s(failures, LONGEST_BACKOFF_S)
            log.exception("worker_failed", extra={"worker": worker.name})
            await _complain(store, worker, type(error).__name__)
        await asyncio.sleep(pause_s)


def backoff_s(failures: int, longest_s: float) -> float:
    """The wait after consecutive failures: growing, with jitter."""
    return random.uniform(0.5, 1.0) * min(2.0 ** (failures - 1), longest_s)


async def go_round(store: Store, worker: Worker, metrics: WorkerMetrics) -> None:
    """Runs one round, and reports it to the store and to Prometheus."""
    began = time.monotonic()
    done = await run_once(store, worker)
    if done is None:
        return
    took_s = time.monotonic() - began
    metrics.went_round(worker.name, done, took_s)
    last = Round(store.clock.now_ms(), store.instance, done, int(took_s * 1_000), worker.every_s)
    await store.workers.note_round(worker.name, last)


async def run_once(store: Store, worker: Worker) -> int | None:
    """One round over all shards. Returns how much was done; None if it is not this process's turn."""
    if not await _has_lease(store, worker):
        return None
    shards = [shard for shard in range(store.keys.shards) if store.connected_s(shard) >= worker.after_s]
    if not shards:
        return None
    await store.presence.read_time()  # a worker whose clock is ahead would end what is alive
    if worker.of_store:
        return await worker.step(store, 0, store.clock.now_ms())
    return await _go_through(store, worker, shards)


async def _has_lease(store: Store, worker: Worker) -> bool:
    """A lease only saves work: on a Cluster its master may be away, and the shards of the others need the duty."""
    lease_ms = int(max(1.0, worker.every_s * LEASE_ROUNDS) * 1_000)
    try:
        return await store.workers.lease(worker.name, store.instance, lease_ms)
    except StoreUnavailable:
        if store.reached_share() > 0:
            return True
        raise


async def _go_through(store: Store, worker: Worker, shards: list[int]) -> int:
    """The shards of a master take their turns; no master waits for another. Raises what a master's shards raised."""

    async def rows(own: list[int]) -> int:
        return sum([await worker.step(store, shard, store.clock.now_ms()) for shard in own])

    outcomes = await asyncio.gather(*map(rows, store.by_master(shards)), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return sum(outcome for outcome in outcomes if isinstance(outcome, int))


async def _complain(store: Store, worker: Worker, reason: str) -> None:
    log.warning("worker_cannot", extra={"worker": worker.name, "error": reason})
    try:
        await store.workers.report(worker.name, reason)
    except RelayError:
        log.debug("complaint_lost", extra={"worker": worker.name})  # the store is away, which /readyz sees by itself
