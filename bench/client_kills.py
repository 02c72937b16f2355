"""Kills clients, instances and the server at random, and then counts: is all that was sent handled once, in order?

`python -m bench.client_kills --rounds 200 --seed 1`. With `--wipe` the store is also emptied now and then. Order is
then only told: what is sent before the wipe is discovered overtakes what must be sent again.
"""

import asyncio
import os
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import click

from bench.killed_clients import STOP, THREADS
from bench.servers import HOST, free_port
from relay.auth import Tokens
from relay.cli.up.embedded import ServerProcess, server_program
from relay.cli.up.lifeline import Child
from relay.settings import Settings

SECRET = "a secret for tests that is long enough"
SETTLED_WITHIN_S = 120.0
STUCK_S = 15.0
OPTIONS = {"save": "", "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class Server:
    """The store, which comes back with its data, or without."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._folder = folder
        self._options = OPTIONS | {"bind": HOST, "port": str(port), "dir": str(folder)}
        self.start()

    def start(self) -> None:
        self._process = ServerProcess(server_program(), self._options, self._folder / "server.log")
        self._process.wait_until_ready((HOST, self.port))

    def kill(self) -> None:
        self._process.kill()

    def wipe(self) -> None:
        with socket.create_connection((HOST, self.port)) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            connection.recv(100)


class Program:
    """A process that is killed and started again with the same words."""

    def __init__(self, *words: str, **environ: str) -> None:
        self._words = words
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        self._environ = kept | {f"RELAY_{name.upper()}": value for name, value in environ.items()}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the program
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", *self._words]
        self._process = Child(words, env=self._environ, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self.kill()
        self._log.close()

    def stop(self, within_s: float) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(within_s)

    def wait(self, within_s: float) -> int:
        return self._process.wait(within_s)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4_000:]


@dataclass(slots=True)
class Stage:
    """Everything that runs, and what was done to it."""

    server: Server
    instances: list[Program]
    workers: Program
    sender: Program
    receiver: Program
    folder: Path
    kills: dict[str, int] = field(default_factory=dict)

    def strike(self, what: str) -> None:
        self.kills[what] = self.kills.get(what, 0) + 1
        match what:
            case "sender" | "receiver":
                one: Program | Server = getattr(self, what)
            case "instance 0" | "instance 1":
                one = self.instances[int(what[-1])]
            case "wipe":
                self.server.wipe()
                return
            case _:
                one = self.server
        one.kill()
        one.start()


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        ports = [free_port() for _ in range(3)]
        server = Server(folder, ports[0])
        stack.callback(server.kill)
        shared = {"redis_url": f"redis://{HOST}:{ports[0]}", "token_secret": SECRET, "shards": "8", "open_tenants": "*"}
        shared |= {"recheck_s": "0.5", "heartbeat_s": "2", "rate_per_s": "0", "mailbox_max_messages": "100000"}
        shared |= {"data_dir": str(folder / "data")}

        def program(*words: str, **environ: str) -> Program:
            started = Program(*words, **environ)
            stack.callback(started.end)
            return started

        instances = [program("relay.cli", "serve", "--port", str(port), **shared) for port in ports[1:]]
        workers = program("relay.cli", "workers", **shared)
        tokens = Tokens(Settings(token_secret=SECRET))
        urls = ",".join(f"http://{HOST}:{port}" for port in ports[1:])
        asyncio.run(_are_ready(urls.split(",")))
        words = [
            ("bench.killed_clients", role, urls, tokens.make(f"acme/{role}", "send receive", 7_200), str(folder))
            for role in ("sender", "receiver")
        ]
        yield Stage(server, instances, workers, program(*words[0]), program(*words[1]), folder)


async def _are_ready(urls: list[str]) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as http:
        for url in urls:
            while not await _is_ready(http, url):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


@dataclass(frozen=True, slots=True)
class Counted:
    """What became of it all."""

    sent: int
    handled: int
    lost: list[int]
    doubled: list[int]
    disordered: list[str]

    def is_right(self, wiped: bool) -> bool:
        """What is sent between a wipe and its discovery overtakes what must be sent again: then order cannot hold."""
        return not (self.lost or self.doubled or (self.disordered and not wiped))


def count(folder: Path) -> Counted:
    """Compares what the sender was told to be kept with what the receiver's handler did."""
    returned = [int(line) for line in (folder / "returned").read_text().split()]
    with closing(sqlite3.connect(folder / "receiver.db")) as db:
        rows = db.execute("SELECT thread, n FROM handled ORDER BY rowid").fetchall()
    numbers = [n for _, n in rows]
    by_thread = [[n for thread, n in rows if thread == f"t{k}"] for k in range(THREADS)]
    return Counted(
        len(returned),
        len(numbers),
        sorted(set(returned) - set(numbers)),
        sorted({n for n in numbers if numbers.count(n) > 1}) if len(numbers) != len(set(numbers)) else [],
        [f"t{k}" for k, some in enumerate(by_thread) if some != sorted(some)],
    )


def _wait_for_progress(there: Stage, chance: random.Random) -> None:
    """A round is worth something if there was traffic before it; after a kill there may be none for a while."""
    at_least = {"returned": chance.randint(1, 400), "progress": 1}
    before = {name: _size(there.folder / name) for name in at_least}
    give_up = time.monotonic() + STUCK_S
    while time.monotonic() < give_up:
        if all(_size(there.folder / name) >= before[name] + more for name, more in at_least.items()):
            return
        time.sleep(0.005)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def kill_clients(rounds: int, seed: int, wipes: bool) -> tuple[Counted, dict[str, int]]:
    """Round after round one of them dies; then everybody may finish."""
    chance = random.Random(seed)
    targets = ["sender", "receiver", "instance 0", "instance 1", "server"] + (["wipe"] if wipes else [])
    with tempfile.TemporaryDirectory(prefix="relay-client-kills-") as name, stage(Path(name)) as there:
        for _ in range(rounds):
            _wait_for_progress(there, chance)
            there.strike(chance.choice(targets))
        (there.folder / STOP).touch()
        if there.sender.wait(SETTLED_WITHIN_S) != 0:
            raise RuntimeError(f"the sender failed:\n{there.sender.said()}")
        if not there.receiver.is_running or there.receiver.stop(30) != 0:
            raise RuntimeError(f"the receiver failed:\n{there.receiver.said()}")
        return count(there.folder), there.kills


@click.command()
@click.option("--rounds", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--wipe", "wipes", is_flag=True, help="Now and then the store loses everything.")
def main(rounds: int, seed: int, wipes: bool) -> None:
    """Kill everything at random, and count what was lost, doubled or out of order."""
    began = time.monotonic()
    found, kills = kill_clients(rounds, seed, wipes)
    print(f"{rounds} rounds, seed {seed}: {kills}, {time.monotonic() - began:.0f} s")
    print(f"sent {found.sent}, handled {found.handled}, lost {found.lost}, doubled {found.doubled}, "
          f"out of order {found.disordered}")  # fmt: skip
    sys.exit(0 if found.is_right(wipes) else 1)


if __name__ == "__main__":
    main()
