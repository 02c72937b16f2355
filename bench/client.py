"""`relay bench --client`: the same load through the Python client, in turn with the bare sockets of `relay bench`."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from bench.load import BATCH, IN_FLIGHT, PAYLOAD, WINDOW, Load, warmed_up
from bench.stand import Stand, stand
from relay.auth import Tokens
from relay.client import Agent, Message

PAIRS = 100
WARM = PAIRS * IN_FLIGHT  # the first wave is not measured
TURNS = 3  # bare sockets and clients in turn, so that both see the same machine
DISK_SENDERS = 64  # tasks that wait for the disk at the same time
DISK_LIMIT = 10_000_000  # nobody confirms them, and a full outbox would be waited for

Say = Callable[[str], None]


class ClientLoad:
    """Pairs of agents, as `Load` has pairs of sockets: each sender has so many messages without a receipt."""

    def __init__(self, there: Stand) -> None:
        self._there = there
        self._tokens = Tokens(there.settings)
        self._stack = AsyncExitStack()
        self._running = True
        self.completed = 0

    async def open(self) -> list[Agent]:
        senders = []
        for n in range(PAIRS):
            recipient = await self._agent(f"to-{n}", (n // 2) % len(self._there.ports))
            recipient.on(concurrency=4)(_handle)
            senders.append(await self._agent(f"from-{n}", n % len(self._there.ports)))
        for agent in senders:
            await agent.live()
        return senders

    async def _agent(self, name: str, at: int) -> Agent:
        token = self._tokens.make(f"bench/{name}", "send receive", 3_600)
        agent = Agent(f"http://127.0.0.1:{self._there.ports[at]}", token=token, window=WINDOW, outbox_limit=IN_FLIGHT)
        return await self._stack.enter_async_context(agent)

    async def flat_out(self, seconds: float) -> float:
        """Messages a second over their whole life, as fast as they go."""
        senders = await self.open()
        work = [asyncio.create_task(self._send(agent, f"to-{n}")) for n, agent in enumerate(senders)]
        await warmed_up(lambda: self._settled(senders), WARM)
        began, before = time.perf_counter(), self._settled(senders)
        await asyncio.sleep(seconds)
        rate = (self._settled(senders) - before) / (time.perf_counter() - began)
        self._running = False
        await asyncio.gather(*work)
        for agent in senders:
            await agent.settled()
        await self._stack.aclose()
        return rate

    def _settled(self, senders: list[Agent]) -> int:
        return self.completed - sum(agent.unsettled for agent in senders)

    async def _send(self, agent: Agent, to: str) -> None:
        """A full outbox is waited for: it empties by receipts."""
        while self._running:
            await agent.send_many(to, [PAYLOAD] * BATCH)
            self.completed += BATCH


async def _handle(message: Message[Any]) -> None:
    """Nothing: what is measured is the way to here and back."""


async def bare(there: Stand, seconds: float) -> float:
    load = Load(there.ports, Tokens(there.settings), PAIRS, BATCH)
    await load.open()
    rate = await load.flat_out(seconds, WARM)
    load.close()
    return rate


async def on_disk(there: Stand, seconds: float) -> float:
    """Sends a second that returned, each once it is on disk, from many tasks of one agent."""
    token = Tokens(there.settings).make("bench/disk", "send receive", 3_600)
    sent = 0
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as folder:
        path = Path(folder) / "outbox.db"
        async with Agent(
            f"http://127.0.0.1:{there.ports[0]}", token=token, outbox=path, outbox_limit=DISK_LIMIT
        ) as agent:
            await agent.live()
            until = time.perf_counter() + seconds

            async def send(n: int) -> None:
                nonlocal sent
                while time.perf_counter() < until:
                    await agent.send(f"disk-{n}", PAYLOAD)
                    sent += 1

            await asyncio.gather(*(send(n) for n in range(DISK_SENDERS)))
            return sent / seconds


def measure(seconds: float, say: Say) -> dict[str, float]:
    """The whole life with and without the client, in turn, and the outbox on disk."""
    sockets, clients = [], []
    with stand() as there, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for turn in range(1, TURNS + 1):
            say(f"whole life, {BATCH} messages a frame, bare sockets ({turn} of {TURNS})")
            sockets.append(runner.run(bare(there, seconds)))
            say(f"whole life through the client, outbox in memory ({turn} of {TURNS})")
            clients.append(runner.run(ClientLoad(there).flat_out(seconds)))
        say("sends into an outbox on disk")
        disk = runner.run(on_disk(there, seconds))
    return {
        "batched_msgs_s": sum(sockets) / TURNS,
        "client_msgs_s": sum(clients) / TURNS,
        "client_share": sum(clients) / sum(sockets),
        "disk_sends_s": disk,
    }
