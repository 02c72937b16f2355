"""A store with many mailboxes: its memory, the rounds of the workers, pages, and a start of the server and an instance.

python -m bench.mailboxes --count 1000000
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import click
import orjson
import uvloop

from bench.scale import DUE_SHARE, fill, make_due
from bench.servers import RealServer
from bench.stand import Stand, cpu_seconds, environment, instance, measuring
from bench.viewers import caller, get
from relay.settings import Settings
from relay.store.store import Store, open_store
from workers.loop import Worker
from workers.main import workers

FILLED_AT_ONCE = 10_000
NO_LIMIT = 10_000_000
ASKED = 5  # times for each page, of which the median counts
READY_POLL_S = 0.01
LATER_MS = 60_000  # the short TTLs are over by then
PAGES = (
    *("agents?limit=50", "agents?sort=name&limit=50", "agents?sort=depth&limit=50", "agents?search=77&limit=50"),
    *("stats", "stats?history_s=600", "activity?kind=accepted&limit=50"),
)
Figures = dict[str, Any]


def note(text: str) -> None:
    print(f"· {text}", file=sys.stderr)


async def fill_all(store: Store, count: int) -> None:
    """A message in each mailbox; those of DUE_SHARE of them are over their TTL a minute from now."""
    due = int(count * DUE_SHARE)
    for start in range(due, count, FILLED_AT_ONCE):
        await fill(store, range(start, min(start + FILLED_AT_ONCE, count)))
    await fill(store, range(due), ttl_s=1.0)
    await make_due(store, range(due), store.clock.now_ms() - store.settings.message_ttl_s * 1_000)


def store_bytes(server: RealServer, store: Store) -> tuple[int, int]:
    """What the server uses for data, and how much of that is the event log."""
    client: Any = server.client()
    logs = [client.memory_usage(store.keys.events(shard), samples=0) or 0 for shard in range(store.keys.shards)]
    return client.info("memory")["used_memory_dataset"], sum(logs)


async def round_of(client: Any, server_pid: int, store: Store, worker: Worker) -> Figures:
    """One round of a worker: its time, the server's part of that, and the longest command."""
    client.config_set("slowlog-log-slower-than", 1_000)
    client.slowlog_reset()
    began, cpu = time.perf_counter(), cpu_seconds(server_pid)
    done = 0
    for shard in range(1 if worker.of_store else store.keys.shards):
        done += await worker.step(store, shard, store.clock.now_ms())
    took_s, server_s = time.perf_counter() - began, cpu_seconds(server_pid) - cpu
    longest_us = max((entry["duration"] for entry in client.slowlog_get(128)), default=0)
    return {"done": done, "s": round(took_s, 2), "server_s": round(server_s, 2), "longest_ms": longest_us / 1_000}


async def rounds(server: RealServer, store: Store) -> dict[str, Figures]:
    """Each worker once, the sweeper first."""
    found: dict[str, Figures] = {}
    for worker in workers(store.settings).values():
        note(f"a round of {worker.name}")
        found[worker.name] = await round_of(server.client(), server.pid, store, worker)
    return found


async def until_ready(port: int) -> None:
    async with aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(READY_POLL_S)


@asynccontextmanager
async def fresh_instance(server: RealServer, settings: Settings) -> AsyncIterator[tuple[Stand, Figures]]:
    """An instance, and how long it took until it was ready, with its processor time."""
    environ = environment(settings, server.url)
    began = time.perf_counter()
    with instance("relay.cli", environ) as (child, port):
        await until_ready(port)
        ready = {"s": round(time.perf_counter() - began, 2), "cpu_s": round(cpu_seconds(child.pid), 2)}
        yield Stand(settings, server.url, [port], server.pid, [child.pid], environ), ready


async def pages(there: Stand) -> dict[str, float]:
    """The median of milliseconds that each call takes."""
    found: dict[str, float] = {}
    async with caller(there, "sweep") as http:
        for page in PAGES:
            took: list[float] = []
            for _ in range(ASKED):
                began = time.perf_counter()
                await get(http, there.ports[0], f"v1/{page}")
                took.append(time.perf_counter() - began)
            found[page] = round(sorted(took)[ASKED // 2] * 1_000, 1)
    return found


def restarted(server: RealServer) -> Figures:
    """How long the server needs to read its log again, as it grew."""
    client: Any = server.client()
    log_bytes = client.info("persistence")["aof_current_size"]
    server.stop()
    began = time.perf_counter()
    server.start()
    return {"log_bytes": log_bytes, "s": round(time.perf_counter() - began, 2)}


def rewrite_log(server: RealServer) -> None:
    client: Any = server.client()
    client.bgrewriteaof()
    while any(client.info("persistence")[f"aof_rewrite_{state}"] for state in ("in_progress", "scheduled")):
        time.sleep(0.1)


async def measure(server: RealServer, count: int) -> Figures:
    settings = replace(measuring(server.folder), sender_max_mailboxes=NO_LIMIT, tenant_max_mailboxes=NO_LIMIT)
    found: Figures = {"mailboxes": count}
    async with open_store(settings, server.url) as store:
        await store.inspect()
        await rounds(server, store)  # as on any store that is not new
        before, _ = store_bytes(server, store)
        note(f"{count:,} mailboxes with a message each")
        began = time.perf_counter()
        await fill_all(store, count)
        found["filled_s"] = round(time.perf_counter() - began, 1)
        after, logs = store_bytes(server, store)
        found |= {"bytes_each": round((after - before - logs) / count), "events_bytes": logs}
        own_ms = store.clock.own_ms()
        store.clock.heard(store.clock.now_ms() + LATER_MS, own_ms, own_ms)
        found["rounds"] = await rounds(server, store)
    note("pages, and starts")
    async with fresh_instance(server, settings) as (there, ready):
        found |= {"pages_ms": await pages(there), "instance_ready": ready}
    found["restart"] = restarted(server)
    rewrite_log(server)
    found["restart_rewritten"] = restarted(server)
    return found


@click.command()
@click.option("--count", default=1_000_000, show_default=True)
def main(count: int) -> None:
    """Measure a store with so many mailboxes that have mail; prints JSON."""
    with RealServer() as server:
        found = uvloop.run(measure(server, count))
    print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
