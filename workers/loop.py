"""The one loop that every worker runs in."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay.errors import RelayError, StoreUnavailable
from relay.store.store import Store

log = logging.getLogger(__name__)

LONGEST_BACKOFF_S = 30.0
STORE_BACKOFF_S = 2.0  # a store that is away is back for everybody at once: nobody should still look ill then
LEASE_ROUNDS = 3  # a worker that misses this many rounds is replaced by another process's


@dataclass(frozen=True, slots=True)
class Worker:
    """A duty: one idempotent step per shard, every so often. The step says how much it did."""

    name: str
    every_s: float
    step: Callable[[Store, int, int], Awaitable[int]]
    after_s: float = 0.0  # how long the store must have been within reach: what is alive must have had time to say so


async def run_worker(store: Store, worker: Worker) -> None:
    """Does a duty for ever. When it fails it says so, in the log and in /readyz, and tries again later."""
    failures = 0
    while True:
        try:
            await run_once(store, worker)
            if failures:
                await store.duties.report(worker.name, "")
                log.info("worker_recovered", extra={"worker": worker.name})
            failures, pause_s = 0, worker.every_s
        except RelayError as error:
            failures += 1
            pause_s = backoff_s(failures, STORE_BACKOFF_S if isinstance(error, StoreUnavailable) else LONGEST_BACKOFF_S)
            await _complain(store, worker, error.message)
        except Exception as error:
            failures += 1
            pause_s = backoff_s(failures, LONGEST_BACKOFF_S)
            log.exception("worker_failed", extra={"worker": worker.name})
            await _complain(store, worker, type(error).__name__)
        await asyncio.sleep(pause_s)


def backoff_s(failures: int, longest_s: float) -> float:
    """How long to wait after so many failures in a row: longer each time, and never the same for two workers."""
    return random.uniform(0.5, 1.0) * min(2.0 ** (failures - 1), longest_s)


async def run_once(store: Store, worker: Worker) -> int:
    """One round over all shards, if no other process does this duty. Returns how much was done."""
    lease_ms = int(max(1.0, worker.every_s * LEASE_ROUNDS) * 1_000)
    if not await store.duties.lease(worker.name, store.instance, lease_ms):
        return 0
    if store.line.connected_s() < worker.after_s:
        return 0
    await store.presence.read_time()  # a worker whose clock is ahead would end what is alive
    done = 0
    for shard in range(store.keys.shards):
        done += await worker.step(store, shard, store.clock.now_ms())
    return done


async def _complain(store: Store, worker: Worker, reason: str) -> None:
    log.warning("worker_cannot", extra={"worker": worker.name, "error": reason})
    try:
        await store.duties.report(worker.name, reason)
    except RelayError:
        log.debug("complaint_lost", extra={"worker": worker.name})  # the store is away, which /readyz sees by itself
