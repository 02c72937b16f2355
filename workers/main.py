"""All workers of one process."""

import asyncio
import logging
import signal
from contextlib import suppress

from relay.errors import ConfigurationError
from relay.settings import Settings
from relay.store.store import Store, open_store
from workers import overdue, reaper, receipts, sweeper
from workers.loop import Worker, run_worker

log = logging.getLogger(__name__)


def workers(settings: Settings) -> dict[str, Worker]:
    """Every duty, by name."""
    found = (
        Worker("sweeper", settings.sweep_every_s, sweeper.sweep_shard),
        Worker("overdue", 0.5, overdue.check_shard),
        Worker("receipts", 5.0, receipts.forward_shard),
        Worker("reaper", max(1.0, settings.heartbeat_s / 5), reaper.reap_shard, after_s=settings.heartbeat_s),
    )
    return {worker.name: worker for worker in found}


def chosen(settings: Settings, only: str) -> list[Worker]:
    """The workers that are named, separated by commas; all if none is. Raises ConfigurationError."""
    every = workers(settings)
    names = [name.strip() for name in only.split(",") if name.strip()] or list(every)
    unknown = [name for name in names if name not in every]
    if unknown:
        raise ConfigurationError(f"no such worker: {', '.join(unknown)}; there are {', '.join(every)}")
    return [every[name] for name in names]


async def run_all(store: Store, these: list[Worker]) -> None:
    async with asyncio.TaskGroup() as group:
        for worker in these:
            group.create_task(run_worker(store, worker), name=worker.name)


async def run(settings: Settings, url: str, only: str = "") -> None:
    """Works until SIGTERM or SIGINT."""
    these = chosen(settings, only)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with open_store(settings, url) as store:
        running = asyncio.create_task(run_all(store, these))
        log.info("working", extra={"workers": ",".join(worker.name for worker in these)})
        await stopping.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
