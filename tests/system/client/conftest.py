"""One world for agents, twice: the fake relay, and two instances of the real one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from relay.client import Agent
from relay.testing import FakeRelay
from tests.system.conftest import Room


class World(Protocol):
    """Where agents meet. `agent` gives one that is open and live, `pass_time` moves the clock or waits for it."""

    kind: str

    async def agent(self, name: str, **options: Any) -> Agent: ...
    def made(self, name: str, **options: Any) -> Agent: ...
    def token(self, name: str, scope: str = "send receive") -> str: ...
    def cut(self, agent: Agent) -> None: ...
    async def pass_time(self, seconds: float) -> None: ...
    def depth(self, name: str) -> int: ...


class _Agents:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    def made(self, name: str, **options: Any) -> Agent:
        raise NotImplementedError

    async def agent(self, name: str, **options: Any) -> Agent:
        agent = await self._stack.enter_async_context(self.made(name, **options))
        await agent.live()
        return agent

    def cut(self, agent: Agent) -> None:
        """The connection ends without a word."""
        agent._engine.connection.drop()


class FakeWorld(_Agents):
    kind = "fake"

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self.relay = FakeRelay()

    def made(self, name: str, **options: Any) -> Agent:
        return self.relay.agent(name, **options)

    def token(self, name: str, scope: str = "send receive") -> str:
        return self.relay.token(name, scope)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.relay.clock.advance(seconds=seconds)

    def depth(self, name: str) -> int:
        return len(self.relay.waiting(name))


class RealWorld(_Agents):
    kind = "real"

    def __init__(self, stack: AsyncExitStack, room: Room) -> None:
        super().__init__(stack)
        self.room = room

    def made(self, name: str, **options: Any) -> Agent:
        if "token" not in options and "key" not in options:
            options["token"] = lambda: self.room.token(name)
        return Agent([self.room.a.url, self.room.b.url], **options)

    def token(self, name: str, scope: str = "send receive") -> str:
        return self.room.token(name, scope)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def depth(self, name: str) -> int:
        return self.room.depth(name)


@pytest.fixture
async def fake_world() -> AsyncIterator[FakeWorld]:
    async with AsyncExitStack() as stack:
        yield FakeWorld(stack)


@pytest.fixture
async def real_world(room: Room) -> AsyncIterator[RealWorld]:
    async with AsyncExitStack() as stack:
        yield RealWorld(stack, room)


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(f"{request.param}_world")
    return found
