"""Steady traffic through a load balancer while instances come and go: says what arrived, fails if anything did not."""

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

from tests.agents import Agent, make_token, message, until

PAIRS = 20
PER_SECOND = 10  # messages of each sender
PATIENCE_S = 90.0  # after the last send, until everything must have arrived
LONGEST_PAUSE_S = 1.0
CUT_OFF = (AssertionError, aiohttp.ClientError, ConnectionError, TimeoutError)


class Tally:
    """What happened, over all agents."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.acked: dict[str, list[int]] = {}  # recipient -> numbers in the order of their first delivery
        self.repeated = 0
        self.connections = 0
        self.instances: set[str] = set()
        self.slowest_accept_s = 0.0  # from the first try to the answer, however often it was sent again

    def arrived(self) -> set[str]:
        return {f"{name}-{number}" for name, numbers in self.acked.items() for number in numbers}

    def report(self) -> dict[str, object]:
        return {
            "accepted": len(self.accepted),
            "arrived": len(self.arrived()),
            "lost": sorted(self.accepted - self.arrived()),
            "out_of_order": [name for name, numbers in self.acked.items() if numbers != sorted(numbers)],
            "delivered_again": self.repeated,
            "connections": self.connections,
            "instances": len(self.instances),
            "slowest_accept_s": round(self.slowest_accept_s, 1),
        }


class Traffic:
    """Pairs of agents; each sender sends numbers to its recipient until the time is over."""

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._secret = secret
        self.tally = Tally()

    @asynccontextmanager
    async def _connected(self, name: str) -> AsyncIterator[Agent]:
        address = f"traffic/{name}"
        agent = await Agent.connect(self._url, address)
        try:
            await agent.authenticate(token=make_token(self._secret, address))
            self.tally.connections += 1
            self.tally.instances.add(agent.hello["instance"])
            yield agent
        finally:
            await agent.close()

    async def send(self, pair: int, seconds: float) -> None:
        """Sends one number after the other, each again until it is accepted."""
        end = time.monotonic() + seconds
        numbers = itertools.count()
        number, began = next(numbers), time.monotonic()
        while time.monotonic() < end:
            try:
                async with self._connected(f"sender-{pair}") as agent:
                    while time.monotonic() < end:
                        await agent.sent(message(f"{pair}-{number}", f"traffic/recipient-{pair}", number))
                        self._accepted(f"{pair}-{number}", began)
                        await asyncio.sleep(1 / PER_SECOND)
                        number, began = next(numbers), time.monotonic()
            except CUT_OFF:
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE_S))

    def _accepted(self, id: str, began: float) -> None:
        self.tally.accepted.add(id)
        self.tally.slowest_accept_s = max(self.tally.slowest_accept_s, time.monotonic() - began)

    async def receive(self, pair: int) -> None:
        """Acks whatever comes, for ever; only what the relay confirmed counts as arrived."""
        acked = self.tally.acked.setdefault(str(pair), [])
        while True:
            try:
                async with self._connected(f"recipient-{pair}") as agent:
                    while True:
                        delivery = await agent.delivery()
                        await agent.ack(delivery)
                        self._note(acked, delivery["payload"])
            except CUT_OFF:
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE_S))

    def _note(self, acked: list[int], number: int) -> None:
        if number in acked:
            self.tally.repeated += 1
        else:
            acked.append(number)

    async def run(self, seconds: float) -> None:
        receiving = [asyncio.create_task(self.receive(pair)) for pair in range(PAIRS)]
        await asyncio.gather(*(self.send(pair, seconds) for pair in range(PAIRS)))
        with suppress(AssertionError):  # the report says what is missing
            await until(lambda: self.tally.accepted <= self.tally.arrived(), within_s=PATIENCE_S)
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    chosen = parser.parse_args()
    traffic = Traffic(chosen.url, os.environ["RELAY_TOKEN_SECRET"])
    asyncio.run(traffic.run(chosen.seconds))
    report = traffic.tally.report()
    print(json.dumps(report))  # noqa: T201
    sys.exit(1 if report["lost"] or report["out_of_order"] or not report["accepted"] else 0)


if __name__ == "__main__":
    main()
