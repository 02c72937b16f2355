"""Senders that go on through a failover, and a count of what the server has in the end."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.agents import Frame, make_token, message
from tests.servers import RealServer

BATCH = 5
AGAIN_AFTER_S = 0.05


@dataclass
class Senders:
    """Each sends a few messages at a time, over HTTP, and the same ones again until they are accepted."""

    accepted: set[str] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)  # by code
    longest_s: float = 0.0  # from the first sending to the last answer `accepted`
    is_stopping: bool = False

    async def send_for_ever(self, http: aiohttp.ClientSession, url: str, name: str, token: str, to: str) -> None:
        number = 0
        while not self.is_stopping:
            began = time.monotonic()
            waiting = [message(f"{name}-{number + n}", to=to) for n in range(BATCH)]
            number += BATCH
            while waiting:
                waiting = await self._send(http, f"{url}/v1/agents/{to.partition('/')[2]}/messages", token, waiting)
                if waiting:
                    await asyncio.sleep(AGAIN_AFTER_S)
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    async def _send(self, http: aiohttp.ClientSession, url: str, token: str, batch: list[Frame]) -> list[Frame]:
        """What was not accepted."""
        body = {"messages": [{name: one[name] for name in ("id", "payload")} for one in batch]}
        async with http.post(url, json=body, headers={"Authorization": f"Bearer {token}"}) as answer:
            told = await answer.json()
        if answer.status != 202:
            self.refusals[told["error"]["code"]] += len(batch)
            return batch
        accepted = {one["id"] for one in told["accepted"]}
        self.accepted |= accepted
        self.refusals.update(one["code"] for one in told["refused"])
        return [one for one in batch if one["id"] not in accepted]

    def start_again(self) -> None:
        """Forgets how long it took so far."""
        self.longest_s = 0.0


@asynccontextmanager
async def sending(urls: list[str], secret: str, to: str, senders: int = 4) -> AsyncIterator[Senders]:
    """While it lasts, senders send to one mailbox; at the end each has an answer to all that it sent."""
    tenant = to.partition("/")[0]
    load = Senders()
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as running:
        for number in range(senders):
            token = make_token(secret, f"{tenant}/sender-{number}", "send")
            url = urls[number % len(urls)]
            running.create_task(load.send_for_ever(http, url, f"s{number}", token, to))
        try:
            yield load
        finally:
            load.is_stopping = True


def stored(server: RealServer, to: str) -> Counter[str]:
    """How often each message is in a mailbox, as the server has it."""
    found: Counter[str] = Counter()
    with server.client() as client:
        for key in client.scan_iter(match=f"*:box:{to}", count=1_000):
            for _, fields in client.xrange(key):
                found[fields["head"].split("\t")[3]] += 1
    return found
