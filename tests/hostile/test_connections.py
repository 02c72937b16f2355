"""Connections: none is kept for somebody who does not use it, and nobody takes those of the others.

Tried: one agent with many sessions, one address with many connections, one session too many, refused origins; mail to
many shared sessions of which only one is rung.
"""

import asyncio
import time
from contextlib import ExitStack, closing

import aiohttp
import pytest

from tests.agents import Agent, message, messages, until
from tests.deaf import Bare, counted
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("connections")

PER_AGENT, PER_ADDRESS = 6, 40
SETTINGS = {
    "max_connections": 60,
    "max_connections_per_agent": PER_AGENT,
    "max_connections_per_address": PER_ADDRESS,
    "recheck_s": 30,
    "rate_per_s": 0,
}


def ids(agents: list[Agent]) -> set[str]:
    return {one["id"] for agent in agents for one in agent.got_deliveries()}


async def shared(room: Room, name: str, count: int) -> list[Agent]:
    return [await room.agent(name, mode="shared") for _ in range(count)]


async def test_one_agent_has_so_many_sessions_and_is_told_so(room: Room) -> None:
    await shared(room, "alice", PER_AGENT)

    one_more = await room.socket("alice")
    await one_more.expect("hello")
    await one_more.say("auth", token=room.token("alice"), mode="shared")
    closing = await one_more.expect("closing")

    assert (closing["code"], await one_more.closed()) == ("too_many_connections", 4029)
    assert "agent" in closing["message"]
    assert one_more.got("welcome") == []
    await room.agent("bob", mode="shared")


async def test_an_exclusive_session_always_finds_room(room: Room) -> None:
    await shared(room, "alice", PER_AGENT)

    again = await room.agent("alice")
    again = await room.agent("alice")

    await again.sent(message("m-1", "alice"))
    assert (await again.delivery())["id"] == "m-1"


async def test_the_place_of_a_session_that_has_gone_is_free(room: Room) -> None:
    sessions = await shared(room, "alice", PER_AGENT)
    await sessions[0].close()

    async def comes() -> bool:
        agent = await room.socket("alice")
        await agent.expect("hello")
        await agent.say("auth", token=room.token("alice"), mode="shared")
        await until(lambda: agent.got("welcome") or agent.got("closing"))
        return bool(agent.got("welcome"))

    for _ in range(100):
        if await comes():
            return
    raise AssertionError("the place was not free")


async def test_one_address_has_so_many_connections_that_do_not_authenticate(room: Room) -> None:
    agent = await room.agent("alice")
    before = await counted(room.a.url, 'relay_connections_refused_total{why="address"}')

    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Bare(room.a.url))) for _ in range(PER_ADDRESS + 5)]
        answers = await asyncio.gather(*(asyncio.to_thread(client.rest) for client in clients[-3:]))
        await agent.sent(message("m-1", "alice"))  # who has authenticated notices nothing

    assert {answer.partition(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 429 Too Many Requests"}
    assert b"Retry-After" in answers[0]
    assert await counted(room.a.url, 'relay_connections_refused_total{why="address"}') >= before + 3


async def test_sessions_are_not_counted_as_their_address(room: Room) -> None:
    agents = [await room.agent(f"agent-{n}") for n in range(PER_ADDRESS + 3)]

    await agents[0].sent(message("m-1", "agent-1"))
    assert (await agents[1].delivery())["id"] == "m-1"
    for agent in agents:
        await agent.close()


async def test_a_refused_origin_is_counted_and_logged(room: Room) -> None:
    before = await counted(room.a.url, 'relay_connections_refused_total{why="origin"}')

    with pytest.raises(aiohttp.WSServerHandshakeError):
        await room.socket(headers={"Origin": "https://evil.example"})

    assert await counted(room.a.url, 'relay_connections_refused_total{why="origin"}') == before + 1
    await until(lambda: room.a.events("origin_refused"))


async def test_mail_for_shared_sessions_reaches_every_one_that_is_free(room: Room) -> None:
    sender, sessions = await room.agent("sender"), await shared(room, "workers", PER_AGENT)

    await sender.sent(*messages(PER_AGENT, to="workers"))
    await until(lambda: sum(len(one.got("deliver")) for one in sessions) > 0)
    for n in range(50):
        await sender.sent(message(f"more-{n}", "workers"))
    await until(
        lambda: sum(len(frame["messages"]) for one in sessions for frame in one.got("deliver")) == 50 + PER_AGENT
    )

    assert all(one.got("deliver") for one in sessions), "each has its turn"


async def test_a_session_without_room_lets_another_have_the_mail(room: Room) -> None:
    sender = await room.agent("sender")
    small = [await room.agent("workers", mode="shared", window=1) for _ in range(PER_AGENT)]

    await sender.sent(*messages(PER_AGENT + 4, to="workers"))

    await until(lambda: all(one.got("deliver") for one in small))
    first = small[0].got("deliver")[0]["messages"][0]
    await small[0].ack(first)
    await until(lambda: len(small[0].got("deliver")) == 2)


async def test_a_session_that_leaves_passes_its_mail_on(room: Room) -> None:
    sender = await room.agent("sender")
    sessions = await shared(room, "workers", 3)

    for n in range(30):
        await sender.sent(message(f"m-{n}", "workers"))
        if n == 10:
            sessions[0].vanish()
        if n == 20:
            await sessions[1].close()

    await until(lambda: {f"m-{n}" for n in range(30)} <= ids(sessions))
    await until(lambda: ids(sessions[2:]) >= {f"m-{n}" for n in range(21, 30)})


async def test_no_mail_is_left_behind_whoever_is_rung(room: Room) -> None:
    """With a look at the store only every 30 s, a wake that is lost on its way round would show."""
    sender = await room.agent("sender")
    sessions = [await room.agent("workers", mode="shared", window=2) for _ in range(PER_AGENT)]
    began, settled = time.monotonic(), set()

    async def work(agent: Agent) -> None:
        seen = 0
        while len(settled) < 200:
            new = agent.got_deliveries()[seen:]
            seen += len(new)
            for one in new:
                await agent.say("ack", entries=[one["entry"]])
                settled.add(one["id"])
            await asyncio.sleep(0.001)

    working = asyncio.gather(*(work(agent) for agent in sessions))
    for n in range(0, 200, 8):
        await sender.sent(*(message(f"m-{n + m}", "workers") for m in range(8)))
    await asyncio.wait_for(working, 15)

    assert len(settled) == 200
    assert time.monotonic() - began < 15
