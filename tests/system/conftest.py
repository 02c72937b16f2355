"""Instances and workers as real processes, and rooms in which agents of one tenant meet."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from relay.cli.up.lifeline import Child
from relay.settings import Settings
from relay.store.keys import Keys
from tests.agents import Agent, Frame, make_token
from tests.servers import RealServer

SECRET = "a secret for tests that is long enough"
STARTS_WITHIN_S = 60.0
POLL_S = 0.01


class Process:
    """`relay WORDS`, whose log is read as JSON lines. In a folder with another relay, it is that one."""

    def __init__(
        self, *words: str, folder: Path | None = None, open_files: tuple[int, int] | None = None, **environ: Any
    ) -> None:
        """`open_files`: its soft and hard limit, else ours."""
        own = {f"RELAY_{name.upper()}": str(value) for name, value in environ.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        descriptor, path = tempfile.mkstemp(prefix="relay-log-")
        self._log = Path(path)
        with os.fdopen(descriptor, "wb") as log:
            self._process = Child(
                [*_limited(open_files), sys.executable, "-m", "relay.cli", *words],
                env=inherited | {"RELAY_LOG_FORMAT": "json"} | own,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        self.pid = self._process.pid

    def lines(self) -> list[Frame]:
        """The log so far; a line that is not JSON becomes an event `text`."""
        whole, _, _ = self._log.read_text().rpartition("\n")
        return [_parsed(line) for line in whole.split("\n") if line]

    def events(self, event: str) -> list[Frame]:
        return [line for line in self.lines() if line["event"] == event]

    def complaints(self) -> list[Frame]:
        """What must not be in a log, whatever happens."""
        return [line for line in self.lines() if "exception" in line or line["event"] == "text"]

    def wait_for(self, event: str) -> Frame:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not (found := self.events(event)):
            assert self._process.poll() is None, f"ended with {self._process.poll()}: {self.lines()}"
            assert time.monotonic() < deadline, f"no {event}: {self.lines()}"
            time.sleep(POLL_S)
        return found[0]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self, within_s: float = 20.0) -> int:
        return self._process.wait(within_s)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.unlink()


def _limited(open_files: tuple[int, int] | None) -> list[str]:
    """The words before a command that give it fewer open files."""
    if open_files is None:
        return []
    return ["sh", "-c", 'ulimit -S -n "$1" && ulimit -H -n "$2" && shift 2 && exec "$@"', "sh", *map(str, open_files)]


def _parsed(line: str) -> Frame:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {"event": "text", "text": line}


class Instance(Process):
    def __init__(self, **environ: Any) -> None:
        super().__init__("serve", "--port", "0", token_secret=SECRET, **environ)
        self._url = ""

    @property
    def url(self) -> str:
        if not self._url:
            self._url = self.wait_for("serving")["url"]
        return self._url

    async def ready(self) -> tuple[int, Frame]:
        """Status and body of /readyz."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/readyz") as answer:
            return answer.status, await answer.json()

    async def is_ready(self, within_s: float = 20.0) -> None:
        """Returns when /readyz says so."""
        deadline = time.monotonic() + within_s
        while (answer := await self.ready())[0] != 200:
            assert time.monotonic() < deadline, answer
            await asyncio.sleep(0.05)


class Relay:
    """Two instances and the workers on a server."""

    def __init__(self, stack: ExitStack, server: RealServer, url: str | None = None, **settings: Any) -> None:
        self.server = server
        self.settings = {"redis_url": url or server.url, "shards": 8, "open_tenants": "*", **settings}
        self._stack = stack
        self.a, self.b = (stack.enter_context(Instance(**self.settings)) for _ in range(2))
        self.workers = self.process("workers")
        self.workers.wait_for("working")
        assert self.a.url != self.b.url

    def instance(self, **settings: Any) -> Instance:
        """One more, which serves already."""
        instance = self._stack.enter_context(Instance(**(self.settings | settings)))
        assert instance.url
        return instance

    def process(self, *words: str, **settings: Any) -> Process:
        return self._stack.enter_context(Process(*words, **(self.settings | settings)))

    def processes(self) -> list[Process]:
        return [self.a, self.b, self.workers]


class Room:
    """A tenant of its own: agents are named without it, and leave when the test ends."""

    def __init__(self, relay: Relay, client: Any) -> None:
        self.relay = relay
        self.redis = client  # redis-py cannot say what its replies are: that depends on how it was made
        self.tenant = f"t{secrets.token_hex(4)}"
        shown = Settings()
        ttl_s = relay.settings.get("message_ttl_s", shown.message_ttl_s)
        window_s = relay.settings.get("dedup_window_s", shown.dedup_window_s)
        self.keys = Keys(relay.settings["shards"], window_s * 1_000, ttl_s * 1_000)
        self._agents: list[Agent] = []

    @property
    def a(self) -> Instance:
        return self.relay.a

    @property
    def b(self) -> Instance:
        return self.relay.b

    def address(self, name: str) -> str:
        return name if "/" in name else f"{self.tenant}/{name}"

    def token(self, name: str, scope: str = "send receive", ttl_s: float = 3_600, **claims: Any) -> str:
        return make_token(SECRET, self.address(name), scope, ttl_s, **claims)

    async def socket(self, name: str = "", at: Instance | None = None, **options: Any) -> Agent:
        """A connection that has not authenticated."""
        agent = await Agent.connect((at or self.a).url, self.address(name), **options)
        self._agents.append(agent)
        return agent

    async def agent(
        self, name: str, at: Instance | None = None, scope: str = "send receive", ttl_s: float = 3_600, **auth: Any
    ) -> Agent:
        """An authenticated one, up to its queue_status."""
        agent = await self.socket(name, at)
        return await agent.authenticate(token=self.token(name, scope, ttl_s), **auth)

    async def agents(self, *names: str) -> list[Agent]:
        return [await self.agent(name) for name in names]

    async def close(self) -> None:
        for agent in self._agents:
            await agent.close()

    # -- looking, with plain commands

    def depth(self, name: str) -> int:
        address = self.address(name)
        return sum(int(self.redis.xlen(self.keys.box(address, lane))) for lane in range(10))

    def holders(self, name: str) -> dict[str, tuple[str, int]]:
        rows = self.redis.xpending_range(self.keys.box(self.address(name)), "agent", "-", "+", 10_000)
        return {row["message_id"]: (row["consumer"], row["times_delivered"]) for row in rows}

    def due(self, name: str) -> dict[str, float]:
        """What must happen to the entries of an agent: "kind handle" -> when, in Unix seconds."""
        address = self.address(name)
        rows = self.redis.zrange(self.keys.due(self.keys.shard(address)), 0, -1, withscores=True)
        parts = [(*member.split("\t"), at_ms) for member, at_ms in rows]
        return {f"{kind} {entry}": at_ms / 1_000 for kind, whose, entry, at_ms in parts if whose == address}

    def dead(self, name: str) -> list[dict[str, str]]:
        return [fields for _, fields in self.redis.xrange(self.keys.dead(self.address(name)))]


def start_relay(stack: ExitStack, options: dict[str, str] | None = None, **settings: Any) -> Relay:
    server = stack.enter_context(RealServer(options))
    return Relay(stack, server, **settings)


@pytest.fixture(scope="session")
def common_relay() -> Iterator[Relay]:
    """For every module without settings of its own. A lost wake would be found only after half a minute."""
    with ExitStack() as stack:
        yield start_relay(stack, recheck_s=30)


@pytest.fixture(scope="module")
def relay(request: pytest.FixtureRequest) -> Iterator[Relay]:
    """The module's own relay, if it has SETTINGS or a server with OPTIONS, else the common one."""
    settings, options = getattr(request.module, "SETTINGS", None), getattr(request.module, "OPTIONS", None)
    if settings is None and options is None:
        yield request.getfixturevalue("common_relay")
        return
    with ExitStack() as stack:
        yield start_relay(stack, options, **(settings or {}))


@pytest.fixture
async def room(relay: Relay) -> AsyncIterator[Room]:
    with relay.server.client() as client:
        room = Room(relay, client)
        try:
            yield room
        finally:
            await room.close()
    for process in relay.processes():
        assert process.complaints() == []


@pytest.fixture
async def working_store(room: Room) -> AsyncIterator[None]:
    """A test that breaks the store begins with one that works and instances that know it, and leaves it running."""
    await room.a.is_ready()
    await room.b.is_ready()
    yield
    if not room.relay.server.is_running:
        room.relay.server.start()
