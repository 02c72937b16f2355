"""Many idle sessions over several instances: memory, processor time and commands that they cost.

python -m bench.sessions --count 50000 --instances 4
"""

import asyncio
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import click
import orjson
import redis
import uvloop

from bench.mailboxes import Figures, note, round_of
from bench.sockets import LoadSocket, connect
from bench.stand import Stand, cpu_seconds, resident_bytes, stand
from relay.auth import Tokens
from relay.settings import Settings
from relay.store.store import open_store
from workers.main import workers

CONNECTING_AT_ONCE = 25  # of each program that holds sessions
SPARE_FILES = 500  # of a process, beside its sessions
SETTLING_S = 10.0  # after the last one has connected
ROUNDS = ("reaper", "idle", "observer")
_spawning = get_context("spawn")


def raise_file_limit() -> int:
    """Lets this process and its children open as many files as the machine allows; returns how many."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def hold(settings: Settings, port: int, number: int, count: int, connected: Any, over: Any) -> None:
    """A program that has `count` sessions on one instance until it is over."""
    uvloop.run(_hold(settings, port, number, count, connected, over))


async def _hold(settings: Settings, port: int, number: int, count: int, connected: Any, over: Any) -> None:
    tokens, sockets = Tokens(settings), list[LoadSocket]()

    async def open_some(names: range) -> None:
        for name in names:
            token = tokens.make(f"idle/a-{number}-{name}", "send receive", 3_600)
            sockets.append(await connect(port, token, lambda *_: None))

    await asyncio.gather(*(open_some(range(n, count, CONNECTING_AT_ONCE)) for n in range(CONNECTING_AT_ONCE)))
    connected.put(len(sockets))
    await asyncio.to_thread(over.wait)
    for socket in sockets:
        socket.close()


@contextmanager
def sessions(there: Stand, count: int) -> Iterator[int]:
    """So many sessions, spread over the instances; one program for each, because each may open so many files only."""
    connected, over = _spawning.Queue(), _spawning.Event()
    each = count // len(there.ports)
    programs = [
        _spawning.Process(target=hold, args=(there.settings, port, number, each, connected, over), daemon=True)
        for number, port in enumerate(there.ports)
    ]
    for program in programs:
        program.start()
    try:
        yield sum(connected.get() for _ in programs)
    finally:
        over.set()
        for program in programs:
            program.join()


def commands(client: Any) -> dict[str, int]:
    """How often each command was called so far."""
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in client.info("commandstats").items()}


def idle(there: Stand, client: Any, seconds: float) -> Figures:
    """What sessions cost that do nothing: shares of a core, and commands a second."""
    began, before, asked = time.perf_counter(), [cpu_seconds(pid) for pid in there.instance_pids], commands(client)
    server = cpu_seconds(there.server_pid)
    time.sleep(seconds)
    took = time.perf_counter() - began
    shares = [(cpu_seconds(pid) - cpu) / took for pid, cpu in zip(there.instance_pids, before, strict=True)]
    server_share = (cpu_seconds(there.server_pid) - server) / took
    a_second = {name: round((calls - asked.get(name, 0)) / took, 1) for name, calls in commands(client).items()}
    return {
        "core_share_of_each_instance": [round(share, 4) for share in shares],
        "core_share_of_server": round(server_share, 4),
        "commands_s": round(sum(a_second.values()), 1),
        "by_command": dict(sorted(((n, c) for n, c in a_second.items() if c), key=lambda row: -row[1])),
    }


async def death(there: Stand, client: Any) -> Figures:
    """The round in which the reaper ends the sessions of an instance that was killed."""
    os.kill(there.instance_pids[0], signal.SIGKILL)
    await asyncio.sleep(there.settings.heartbeat_s + 1)  # its lease is over
    async with open_store(there.settings, there.url) as store:
        return await round_of(client, there.server_pid, store, workers(store.settings)["reaper"])


async def rounds(there: Stand, client: Any) -> dict[str, Figures]:
    """A round of the workers that look at sessions."""
    async with open_store(there.settings, there.url) as store:
        every = workers(store.settings)
        return {name: await round_of(client, there.server_pid, store, every[name]) for name in ROUNDS}


def measure(there: Stand, count: int, seconds: float) -> Figures:
    client: Any = redis.Redis.from_url(there.url)
    uvloop.run(rounds(there, client))  # as on any store that is not new
    before, stored = sum(map(resident_bytes, there.instance_pids)), client.info("memory")["used_memory"]
    nothing = idle(there, client, seconds / 2)
    began = time.perf_counter()
    with sessions(there, count) as connected:
        took, at_first = time.perf_counter() - began, sum(map(resident_bytes, there.instance_pids))
        time.sleep(SETTLING_S)
        after = sum(map(resident_bytes, there.instance_pids))
        return {
            "sessions": connected,
            "instances": len(there.ports),
            "connected_s": round(took, 1),
            "kb_each_at_first": round((at_first - before) / connected / 1_024, 1),
            "kb_each": round((after - before) / connected / 1_024, 1),
            "store_bytes_each": round((client.info("memory")["used_memory"] - stored) / connected),
            "without": nothing,
            "idle": idle(there, client, seconds),
            "rounds": uvloop.run(rounds(there, client)),
            "reaper_after_a_death": uvloop.run(death(there, client)),
        }


@click.command()
@click.option("--count", default=50_000, show_default=True)
@click.option("--instances", default=4, show_default=True)
@click.option("--seconds", default=40.0, show_default=True, help="How long they are watched.")
def main(count: int, instances: int, seconds: float) -> None:
    """Measure what idle sessions cost; prints JSON."""
    most = (raise_file_limit() - SPARE_FILES) * instances
    if count > most:
        note(f"{most:,} sessions, because a process may open no more files")
    with stand(instances, fsync="everysec", sessions_per_s="100000") as there:
        found = measure(there, min(count, most), seconds)
    print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
