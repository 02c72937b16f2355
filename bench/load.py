"""The load: senders and recipients whose messages live their whole life, send → accepted → deliver → ack → receipt."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from bench.sockets import LoadSocket, connect
from relay.auth import Tokens

PAYLOAD = "x" * 254  # 256 bytes as JSON
IN_FLIGHT = 200  # messages of one sender without a receipt
SETTLED_WITHIN_S = 60.0
WARM_WITHIN_S = 30.0
BATCH = 50
WINDOW = 100


@dataclass(slots=True)
class Sender:
    """One sender and what it is waiting for."""

    to: str
    name: str
    sent: int = 0
    receipts: int = 0
    refused: int = 0


@dataclass(slots=True)
class Latencies:
    """When each message was sent, and how long it took from there, in milliseconds."""

    sent_at: dict[str, float] = field(default_factory=dict)
    accepted_ms: list[float] = field(default_factory=list)
    delivered_ms: list[float] = field(default_factory=list)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


async def warmed_up(completed: Callable[[], int], warm: int) -> None:
    """Returns when so many messages are through: on a busy machine the first wave takes its time."""
    give_up = time.perf_counter() + WARM_WITHIN_S
    while completed() < warm and time.perf_counter() < give_up:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


class Load:
    """Pairs of sender and recipient, on the instances in turn: half of the messages cross from one to the other."""

    def __init__(
        self,
        ports: list[int],
        tokens: Tokens,
        pairs: int,
        batch: int,
        in_flight: int = IN_FLIGHT,
        *,
        is_random: bool = False,
        payload: str = PAYLOAD,
    ) -> None:
        self._in_flight = in_flight
        self._is_random = is_random  # every message goes to some recipient, not to the sender's own
        self._payload = payload
        self._ports = ports
        self._tokens = tokens
        self._pairs = pairs
        self._batch = batch
        self._latencies: Latencies | None = None
        self._senders: list[LoadSocket] = []
        self._recipients: list[LoadSocket] = []
        self._running = False
        self.completed = 0

    async def open(self) -> None:
        for n in range(self._pairs):
            there = self._ports[(n // 2) % len(self._ports)]
            self._recipients.append(await self._connect(f"to-{n}", there, self._on_recipient))
            here = self._ports[n % len(self._ports)]
            sender = await self._connect(f"from-{n}", here, self._on_sender)
            sender.state = Sender(f"bench/to-{n}", f"s{n}-{time.time_ns() % 10**9}")
            self._senders.append(sender)

    async def _connect(self, name: str, port: int, received: Any) -> LoadSocket:
        token = self._tokens.make(f"bench/{name}", "send receive", 3_600)
        return await connect(port, token, received, window=WINDOW)

    def close(self) -> None:
        for socket in self._senders + self._recipients:
            socket.close()

    async def flat_out(self, seconds: float, warm: int = 0) -> float:
        """Messages a second over their whole life, as fast as they go, once the first `warm` of them are through."""
        self._running = True
        for socket in self._senders:
            self._fill(socket)
        await asyncio.sleep(min(1.0, seconds / 4))
        await warmed_up(lambda: self.completed, warm)
        began, before = time.perf_counter(), self.completed
        await asyncio.sleep(seconds)
        rate = (self.completed - before) / (time.perf_counter() - began)
        await self._settle()
        return rate

    async def paced(self, per_s: float, seconds: float) -> Latencies:
        """Latencies at a steady pace, each message in a frame of its own from a random sender."""
        self._latencies = Latencies()
        end, due = time.perf_counter() + seconds, time.perf_counter()
        while due < end:
            self._send(random.choice(self._senders), 1)
            due += random.expovariate(per_s)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await self._settle()
        latencies, self._latencies = self._latencies, None
        return latencies

    async def _settle(self) -> None:
        """Waits until every message sent has its receipt."""
        self._running = False
        give_up = time.perf_counter() + SETTLED_WITHIN_S
        while sum(s.state.sent - s.state.receipts - s.state.refused for s in self._senders) > 0:
            if time.perf_counter() > give_up:
                raise TimeoutError(f"messages without a receipt after {SETTLED_WITHIN_S:.0f} s")
            await asyncio.sleep(0.01)

    def _fill(self, socket: LoadSocket) -> None:
        sender: Sender = socket.state
        while self._running and sender.sent - sender.receipts - sender.refused <= self._in_flight - self._batch:
            self._send(socket, self._batch)

    def _send(self, socket: LoadSocket, count: int) -> None:
        sender: Sender = socket.state
        ids = [f"{sender.name}-{sender.sent + n}" for n in range(count)]
        sender.sent += count
        if self._latencies is not None:
            now = time.perf_counter()
            self._latencies.sent_at.update((one, now) for one in ids)
        messages = ",".join(f'{{"id":"{id}","to":"{self._to(sender)}","payload":"{self._payload}"}}' for id in ids)
        socket.send(f'{{"op":"send","messages":[{messages}]}}'.encode())

    def _to(self, sender: Sender) -> str:
        return f"bench/to-{int(random.random() * self._pairs)}" if self._is_random else sender.to

    def _on_sender(self, socket: LoadSocket, frame: dict[str, Any]) -> None:
        sender: Sender = socket.state
        match frame["op"]:
            case "receipts":
                sender.receipts += len(frame["receipts"])
                self.completed += len(frame["receipts"])
                socket.send(orjson.dumps({"op": "receipts_ack", "cursor": frame["cursor"]}))
                self._fill(socket)
            case "accepted" if self._latencies is not None:
                now = time.perf_counter()
                sent_at = self._latencies.sent_at
                self._latencies.accepted_ms += [(now - sent_at[one]) * 1_000 for one in frame["ids"]]
            case "refused":
                sender.refused += len(frame["refusals"])

    def _on_recipient(self, socket: LoadSocket, frame: dict[str, Any]) -> None:
        if frame["op"] != "deliver":
            return
        deliveries = frame["messages"]
        if self._latencies is not None:
            now = time.perf_counter()
            sent_at = self._latencies.sent_at
            self._latencies.delivered_ms += [(now - sent_at[one["id"]]) * 1_000 for one in deliveries]
        entries = [one["entry"] for one in deliveries]
        for start in range(0, len(entries), self._batch):
            socket.send(orjson.dumps({"op": "ack", "entries": entries[start : start + self._batch]}))
