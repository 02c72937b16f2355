"""What the dashboard costs: how fast its pages are served, and what viewers take from the throughput.

python -m bench.viewers --agents 10000 --viewers 20
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import click
import uvloop

from bench.load import BATCH, Load
from bench.scale import fill
from bench.stand import Stand, stand
from relay.auth import Tokens
from relay.cli.up.lifeline import Child
from relay.http.routes.dashboard import FILES
from relay.store.store import open_store

SCOPES = "send receive inspect admin metrics operator"
ROUNDS = 5
PAIRS = 100
WARM = 10_000  # messages that are through before it counts
SNAPSHOTS_S = 25.0  # two rounds of the observer, so that lists by depth and rate have something to go by
OVERVIEW = ("stats?history_s=600", "anomalies?active=true&limit=5")
VIEWS = {
    "the files": (),
    "overview": OVERVIEW,
    "agents by name": ("agents?sort=name&limit=50",),
    "agents by depth": ("agents?sort=depth&limit=50",),
    "agents by rate": ("agents?sort=rate&limit=50",),
    "agents, searched": ("agents?sort=name&search=77&limit=50",),
    "one agent": ("agents/a-77", "agents/a-77/messages?limit=50"),
    "dead letters": ("agents/a-77", "agents/a-77/dead?limit=50"),
    "messages": ("activity?kind=accepted&limit=50",),
    "failed": ("activity?kind=dead,nacked,overdue,expired,refused&limit=100",),
    "anomalies": ("anomalies?limit=50",),
    "instances": ("instances",),
}
POLLED = (OVERVIEW, VIEWS["agents by depth"], VIEWS["failed"], VIEWS["anomalies"])  # what viewers have open
POLL_S = 5.0  # the dashboard's own


@contextmanager
def workers(there: Stand) -> Iterator[None]:
    command = [sys.executable, "-m", "relay.cli", "workers"]
    with Child(command, env=there.environ, stderr=subprocess.DEVNULL) as running:
        try:
            yield
        finally:
            running.terminate()


@asynccontextmanager
async def caller(there: Stand, tenant: str) -> AsyncIterator[aiohttp.ClientSession]:
    token = Tokens(there.settings).make(f"{tenant}/root", SCOPES, 3_600)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


async def get(http: aiohttp.ClientSession, port: int, path: str) -> None:
    async with http.get(f"http://127.0.0.1:{port}/{path}") as answer:
        answer.raise_for_status()
        await answer.read()


async def pages(there: Stand, agents: int) -> dict[str, float]:
    """The median of seconds until everything that a page shows is there, with so many agents in one tenant."""
    async with open_store(there.settings, there.url) as store:
        await fill(store, range(agents))
    await asyncio.sleep(SNAPSHOTS_S)
    served: dict[str, float] = {}
    async with caller(there, "sweep") as http:
        for name, calls in VIEWS.items():
            paths = [f"v1/{call}" for call in calls] or ["", *(f"web/{file}" for file in FILES)]
            took: list[float] = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                await asyncio.gather(*(get(http, there.ports[0], path) for path in paths))
                took.append(time.perf_counter() - began)
            served[name] = statistics.median(took)
    return served


async def watch(there: Stand, number: int) -> None:
    """One viewer: every other one follows what happens, the others have a view open that asks again and again."""
    port = there.ports[number % len(there.ports)]
    async with caller(there, "bench") as http:
        if number % 2:
            async with http.get(f"http://127.0.0.1:{port}/v1/events") as answer:
                async for _ in answer.content.iter_any():
                    pass
        calls = POLLED[number // 2 % len(POLLED)]
        while True:
            await asyncio.gather(*(get(http, port, f"v1/{call}") for call in calls))
            await asyncio.sleep(POLL_S)


async def throughput(there: Stand, viewers: int, seconds: float) -> float:
    load = Load(there.ports, Tokens(there.settings), PAIRS, BATCH)
    await load.open()
    watching = [asyncio.create_task(watch(there, number)) for number in range(viewers)]
    rate = await load.flat_out(seconds, WARM)
    for task in watching:
        task.cancel()
    ended = await asyncio.gather(*watching, return_exceptions=True)
    load.close()
    wrong = [repr(result) for result in ended if not isinstance(result, asyncio.CancelledError)]
    if wrong:
        raise RuntimeError(f"viewers that saw nothing: {wrong}")
    return rate


@click.command()
@click.option("--agents", default=10_000, show_default=True)
@click.option("--viewers", default=20, show_default=True)
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Runs with and without viewers, in turn.")
def main(agents: int, viewers: int, seconds: float, rounds: int) -> None:
    with stand() as there, workers(there), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name, took in runner.run(pages(there, agents)).items():
            print(f"{name}: {took * 1_000:.0f} ms")
    with stand() as there, workers(there), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        without, watched = [], []
        for _ in range(rounds):
            without.append(runner.run(throughput(there, 0, seconds)))
            watched.append(runner.run(throughput(there, viewers, seconds)))
        before, after = statistics.median(without), statistics.median(watched)
        print(f"whole life: {before:.0f} msg/s without viewers, {after:.0f} with {viewers}: {after / before - 1:+.1%}")
        print(f"each run: {[round(rate) for rate in without]} and {[round(rate) for rate in watched]}")


if __name__ == "__main__":
    main()
