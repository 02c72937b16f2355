"""Pairs of agents that go on through whatever breaks: each message is sent until it is accepted, and acked."""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from relay.store.keys import Keys
from tests.agents import Frame, make_token, message, until

BATCH = 5
AGAIN_AFTER_S = 0.05
ARRIVES_WITHIN_S = 40.0


class Session:
    """A connection that comes back when it is told to, and counts how often it had to."""

    def __init__(self, urls: Sequence[str], secret: str, address: str) -> None:
        self.address = address
        self.closings: Counter[int] = Counter()  # by close code
        self.is_over = False
        self._urls = urls
        self._secret = secret
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._is_open = asyncio.Event()
        self._turn = 0

    @property
    def is_open(self) -> bool:
        return self._is_open.is_set()

    async def run(self, http: aiohttp.ClientSession) -> None:
        while not self.is_over:
            wait_s = AGAIN_AFTER_S
            try:
                async with http.ws_connect(f"{self._next_url()}/v1/ws", max_msg_size=0) as ws:
                    wait_s = await self._serve(ws)
            except (aiohttp.ClientError, OSError):
                pass
            if not self.is_over:
                await asyncio.sleep(wait_s)

    def _next_url(self) -> str:
        self._turn += 1
        return self._urls[self._turn % len(self._urls)]

    async def _serve(self, ws: aiohttp.ClientWebSocketResponse) -> float:
        """How long it should be away, in seconds."""
        wait_s = AGAIN_AFTER_S
        self._ws = ws
        await ws.send_str(json.dumps({"op": "auth", "token": make_token(self._secret, self.address)}))
        async for one in ws:
            frame = json.loads(one.data)
            if frame["op"] == "welcome":
                self._is_open.set()
                self.opened()
            elif frame["op"] == "closing":
                wait_s = frame.get("retry_after_ms", 50) / 1_000
            else:
                await self.heard(frame)
        self._is_open.clear()
        if not self.is_over:
            self.closings[ws.close_code or 0] += 1
        self.lost()
        return wait_s

    async def say(self, op: str, **fields: Any) -> None:
        """Waits for a connection. What is lost with one is lost."""
        await self._is_open.wait()
        assert self._ws is not None
        if not self._ws.closed:
            try:
                await self._ws.send_str(json.dumps({"op": op, **fields}))
            except (aiohttp.ClientError, OSError):
                self._is_open.clear()

    async def end(self) -> None:
        self.is_over = True
        if self._ws is not None:
            await self._ws.close()

    def opened(self) -> None: ...

    def lost(self) -> None: ...

    async def heard(self, frame: Frame) -> None: ...


class Recipient(Session):
    def __init__(self, urls: Sequence[str], secret: str, address: str) -> None:
        super().__init__(urls, secret, address)
        self.order: list[str] = []  # ids, by their first delivery
        self.entries: dict[str, set[str]] = {}
        self.repeats = 0
        self.arrived: dict[str, float] = {}

    async def heard(self, frame: Frame) -> None:
        if frame["op"] != "deliver":
            return
        for one in frame["messages"]:
            if one["id"] in self.entries:
                self.repeats += 1
            else:
                self.order.append(one["id"])
                self.arrived[one["id"]] = time.monotonic()
            self.entries.setdefault(one["id"], set()).add(one["entry"])
        await self.say("ack", entries=[one["entry"] for one in frame["messages"]])


class Sender(Session):
    def __init__(self, urls: Sequence[str], secret: str, address: str, to: str) -> None:
        super().__init__(urls, secret, address)
        self.to = to
        self.accepted: list[str] = []
        self.accepted_at: dict[str, float] = {}
        self.refusals: Counter[str] = Counter()  # by what they said
        self.longest_s = 0.0  # from the first sending to the last answer `accepted`
        self.pace_s = 0.0
        self.is_done = False
        self._open: dict[str, Frame] = {}  # sent and not answered
        self._again: dict[str, Frame] = {}  # refused
        self._news = asyncio.Event()

    def lost(self) -> None:
        """What was not answered is sent again."""
        self._again = self._open | self._again
        self._open = {}
        self._news.set()

    async def heard(self, frame: Frame) -> None:
        if frame["op"] == "accepted":
            for id in (*frame["ids"], *frame["duplicate_ids"]):
                if self._open.pop(id, None):
                    self.accepted.append(id)
                    self.accepted_at[id] = time.monotonic()
        elif frame["op"] == "refused":
            for one in frame["refusals"]:
                assert one["retryable"], one
                self.refusals[one["message"]] += 1
                self._again[one["id"]] = self._open.pop(one["id"])
        self._news.set()

    async def send_for_ever(self) -> None:
        number = 0
        while not self.is_done:
            began = time.monotonic()
            batch = {f"{n:07d}": message(f"{n:07d}", to=self.to) for n in range(number, number + BATCH)}
            number += BATCH
            while batch:
                batch = await self._sent(batch)
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            await asyncio.sleep(self.pace_s)

    async def _sent(self, batch: dict[str, Frame]) -> dict[str, Frame]:
        """What must be sent again."""
        self._open, self._again = dict(batch), {}
        await self.say("send", messages=list(batch.values()))
        while self._open:
            self._news.clear()
            await self._news.wait()
        if self._again:
            await asyncio.sleep(AGAIN_AFTER_S)
        return dict(sorted(self._again.items()))


@dataclass
class Flow:
    """A sender and a recipient."""

    sender: Sender
    recipient: Recipient

    def check(self) -> None:
        """Nothing accepted is lost, nothing is there twice, and nothing has overtaken."""
        lost = set(self.sender.accepted) - set(self.recipient.order)
        twice = {id: entries for id, entries in self.recipient.entries.items() if len(entries) > 1}
        assert lost == set(), f"lost: {lost}"
        assert twice == {}, f"under two entries: {twice}"
        assert self.recipient.order == sorted(self.recipient.order), "out of order"

    def stall_s(self) -> float:
        """How long a message took to be accepted, or to arrive once it was, at most."""
        arrived = self.recipient.arrived
        late = [arrived[id] - at for id, at in self.sender.accepted_at.items() if id in arrived]
        return max([self.sender.longest_s, *late])

    def has_arrived(self) -> bool:
        return set(self.sender.accepted) <= self.recipient.entries.keys()

    def start_again(self) -> float:
        """Forgets how long it took so far, which it returns."""
        stall_s = self.stall_s()
        self.sender.longest_s = 0.0
        self.sender.accepted_at.clear()
        return stall_s

    def closings(self) -> Counter[int]:
        """How often the relay closed a connection, by code."""
        return self.sender.closings + self.recipient.closings


def shard_pairs(tenant: str, shards: int) -> list[tuple[str, str]]:
    """Two addresses of each shard."""
    keys, found = Keys(shards, 1_000, 1_000), defaultdict[int, list[str]](list)
    for n in range(100 * shards):
        found[keys.shard(f"{tenant}/a{n}")].append(f"{tenant}/a{n}")
    return [(names[0], names[1]) for _, names in sorted(found.items())]


@asynccontextmanager
async def flowing(
    urls: Sequence[str], secret: str, pairs: Sequence[tuple[str, str]], pace_s: float = 0.0
) -> AsyncIterator[list[Flow]]:
    """While it lasts, each sender sends to its recipient; in the end everything accepted has arrived."""
    flows = [
        Flow(Sender(urls, secret, sender, recipient), Recipient([*urls[1:], *urls[:1]], secret, recipient))
        for sender, recipient in pairs
    ]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as running:
        tasks = []
        for flow in flows:
            flow.sender.pace_s = pace_s
            running.create_task(flow.sender.run(http))
            running.create_task(flow.recipient.run(http))
            tasks.append(running.create_task(flow.sender.send_for_ever()))
        try:
            yield flows
            for flow in flows:
                flow.sender.is_done = True
            await asyncio.wait_for(asyncio.gather(*tasks), ARRIVES_WITHIN_S)
            await until(lambda: all(flow.has_arrived() for flow in flows), "it all arrives", ARRIVES_WITHIN_S)
        finally:
            for task in tasks:
                task.cancel()
            for flow in flows:
                await flow.sender.end()
                await flow.recipient.end()
