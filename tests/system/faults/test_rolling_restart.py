"""Deploys that nobody notices: every instance is restarted under load, and a crowd comes back at once."""

import asyncio
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest

from tests.agents import Agent, make_token, until
from tests.flows import Flow, flowing
from tests.servers import HOST, RealServer, free_port
from tests.system.conftest import SECRET, Process

pytestmark = pytest.mark.xdist_group("rolling")

SESSIONS = 500
PER_S = 60  # sessions that may begin on an instance in a second
RUSH_S = 3  # how long one lasts
LATE = 1.2  # a session is logged once it has joined, and those admitted in that time may join in less
PACE_S = 1.0
BATCH = 5  # of a sender at once: what can be in flight to one recipient


class Fleet:
    """Three instances that keep their ports over a restart."""

    def __init__(self, stack: ExitStack, server: RealServer) -> None:
        self._stack = stack
        self._settings = {"redis_url": server.url, "shards": 8, "open_tenants": "*", "rate_per_s": 0, "drain_s": 20}
        self.ports = [free_port() for _ in range(3)]
        self.urls = [f"http://{HOST}:{port}" for port in self.ports]
        self.running = [self.start(port) for port in self.ports]
        self.all = list(self.running)

    def start(self, port: int) -> Process:
        settings: dict[str, Any] = {"token_secret": SECRET, "sessions_per_s": PER_S, **self._settings}
        process = self._stack.enter_context(Process("serve", "--port", str(port), **settings))
        process.wait_for("serving")
        return process

    async def restart(self, number: int) -> None:
        old = self.running[number]
        old.signal(signal.SIGTERM)
        assert await asyncio.to_thread(old.wait, 40) == 0
        self.running[number] = await asyncio.to_thread(self.start, self.ports[number])
        self.all.append(self.running[number])


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(stack, stack.enter_context(RealServer()))


def largest_rush(process: Process) -> int:
    """How many sessions began within RUSH_S, at most."""
    times = sorted(datetime.fromisoformat(line["at"]).timestamp() for line in process.events("session_began"))
    return max((sum(start <= at < start + RUSH_S for at in times) for start in times), default=0)


def is_served(flow: Flow) -> bool:
    return flow.sender.is_open and flow.recipient.is_open


async def test_a_rolling_restart_loses_repeats_and_reorders_nothing(fleet: Fleet) -> None:
    tenant = f"t{secrets.token_hex(4)}"
    pairs = [(f"{tenant}/s{n}", f"{tenant}/r{n}") for n in range(SESSIONS // 2)]
    async with flowing(fleet.urls, SECRET, pairs, PACE_S) as flows:
        for number in range(len(fleet.ports)):
            async with asyncio.timeout(120):
                while not all(map(is_served, flows)):  # noqa: ASYNC110 - they come back by themselves
                    await asyncio.sleep(0.1)
            await fleet.restart(number)

    for flow in flows:
        flow.check()
        assert flow.closings().keys() <= {4001, 4029}, "each was told why, and when to come back"
        assert flow.recipient.repeats <= BATCH * flow.closings()[4001]
    assert sum((flow.closings()[4001] for flow in flows), 0) >= SESSIONS * 2 // 3
    assert sum(flow.recipient.repeats for flow in flows) <= SESSIONS // 50
    assert max(map(largest_rush, fleet.all)) <= PER_S * RUSH_S * LATE
    assert [process.complaints() for process in fleet.all] == [[]] * len(fleet.all)


async def test_a_crowd_is_admitted_at_the_set_pace_and_each_is_told_when(fleet: Fleet) -> None:
    tenant, url = f"t{secrets.token_hex(4)}", fleet.urls[0]

    async def knock(n: int) -> int | None:
        """When it should come back, in milliseconds; None if it was let in."""
        agent = await Agent.connect(url, f"{tenant}/a{n}")
        try:
            await agent.expect("hello")
            await agent.say("auth", token=make_token(SECRET, agent.address))
            await until(lambda: agent.got("welcome") or agent.got("closing"), within_s=60)
            if agent.got("welcome"):
                return None
            assert await agent.closed() == 4029
            return int(agent.got("closing")[0]["retry_after_ms"])
        finally:
            await agent.close()

    waits = [wait for wait in await asyncio.gather(*map(knock, range(150))) if wait is not None]

    assert 50 < len(waits) < 150
    assert len(set(waits)) > len(waits) // 2, "they are not told to come back all at once"
