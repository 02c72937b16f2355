"""All workers of one process."""

import asyncio
import logging
import signal
from contextlib import suppress

from relay.errors import ConfigurationError
from relay.settings import Settings
from relay.store.store import Store, open_store
from workers import events, idle, observer, overdue, reaper, receipts, sweeper
from workers.loop import Worker, run_worker
from workers.metrics import MEASURE_EVERY_S, WorkerMetrics, served

log = logging.getLogger(__name__)


def workers(settings: Settings) -> dict[str, Worker]:
    """Every duty, by name."""
    every = (
        Worker("sweeper", settings.sweep_every_s, sweeper.sweep_shard),
        Worker("overdue", 0.5, overdue.check_shard),
        Worker("receipts", 5.0, receipts.forward_shard),
        Worker("reaper", max(1.0, settings.heartbeat_s / 5), reaper.Reaper().reap_shard, after_s=settings.heartbeat_s),
        Worker("events", 1.0, events.trim_logs, of_store=True),
        Worker("observer", settings.snapshot_every_s, observer.Observer().observe, of_store=True),
        Worker("idle", settings.sweep_every_s, idle.IdleReaper().reap_shard, after_s=settings.heartbeat_s),
    )
    return {worker.name: worker for worker in every}


def chosen(settings: Settings, only: str) -> list[Worker]:
    """The workers that are named, separated by commas; all if none is. Raises ConfigurationError."""
    every = workers(settings)
    names = [name.strip() for name in only.split(",") if name.strip()] or list(every)
    unknown = [name for name in names if name not in every]
    if unknown:
        raise ConfigurationError(f"no such worker: {', '.join(unknown)}; there are {', '.join(every)}")
    return [every[name] for name in names]


async def run_all(store: Store, these: list[Worker]) -> None:
    """Does these duties for ever, and tells Prometheus of them if it can ask. Raises ConfigurationError."""
    metrics = WorkerMetrics(store.instance, [worker.name for worker in these], lambda: store.replies.stored)
    all_of_them = these + ([measuring(metrics)] if store.settings.metrics_port else [])
    async with served(metrics, store.settings), asyncio.TaskGroup() as group:
        for worker in all_of_them:
            group.create_task(run_worker(store, worker, metrics), name=worker.name)


def measuring(metrics: WorkerMetrics) -> Worker:
    """The duty of the processes that Prometheus can ask: one of them measures the whole store."""
    return Worker("measures", MEASURE_EVERY_S, metrics.measure, of_store=True)


async def run(settings: Settings, url: str, only: str = "") -> None:
    """Works until SIGTERM or SIGINT. Raises ConfigurationError."""
    these = chosen(settings, only)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with open_store(settings, url) as store:
        await store.check()
        running = asyncio.create_task(run_all(store, these))
        log.info("working", extra={"workers": ",".join(worker.name for worker in these)})
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait((running, stop), return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        stop.cancel()
        with suppress(asyncio.CancelledError):
            await running
