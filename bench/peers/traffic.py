"""The work itself: a hundred senders, their recipients, and when a message is through. The same for every peer."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.load import BATCH, IN_FLIGHT, percentile
from bench.peers.peer import Closable, Payload, Sender, Site

SENDERS = 100
PAYLOAD_BYTES = 256
OPENING_AT_ONCE = 50
WARM_UP_SHARE = 0.25  # of the time that is measured, before it
SETTLED_WITHIN_S = 120.0
_FILL = b"x" * (PAYLOAD_BYTES - 15)


def payload(sender: int, number: int) -> bytes:
    """Says who sent it, and is unlike any other."""
    return b"%05d%010d" % (sender, number) + _FILL


def sender_of(text: Payload) -> int:
    return int(text[:5])


def number_of(text: Payload) -> int:
    return int(text[5:15])


async def in_groups(numbers: range, work: Callable[[int], Awaitable[None]]) -> None:
    """One after the other in each of a few groups, so that no server is flooded by connections."""

    async def group(some: range) -> None:
        for number in some:
            await work(number)

    await asyncio.gather(*(group(numbers[start::OPENING_AT_ONCE]) for start in range(OPENING_AT_ONCE)))


@dataclass(slots=True)
class Books:
    """One sender and how far its messages are."""

    number: int
    sender: Sender
    sent: int = 0
    confirmed: int = 0
    ended: int = 0

    @property
    def through(self) -> int:
        """Both confirmed to the sender and acked by the recipient."""
        return min(self.confirmed, self.ended)


@dataclass(frozen=True, slots=True)
class Flow:
    """What a stretch of time brought, in messages that were through, and what they cost."""

    msgs_s: float
    server_us: float
    load_us: float


class Traffic:
    """Senders and recipients of one site. Paired senders keep to recipients of their own; random ones choose any."""

    def __init__(self, site: Site, recipients: int) -> None:
        self._site = site
        self._recipients = recipients
        self._own = max(1, recipients // SENDERS)  # recipients of a paired sender
        self._is_random = False
        self._is_running = False
        self._books: list[Books] = []
        self._open: list[Closable] = []
        self._number = 0
        self._sent_at: list[float] = []
        self._first_timed = 0
        self._delivered_ms: list[float] | None = None

    async def open(self) -> None:
        """Connects everybody to mailboxes that have been declared."""
        await in_groups(range(self._recipients), self._open_recipient)
        for number in range(SENDERS):
            self._books.append(await self._open_sender(number))

    async def _open_recipient(self, number: int) -> None:
        self._open.append(await self._site.recipient(number, self._delivered))

    async def _open_sender(self, number: int) -> Books:
        sender = await self._site.sender(number, partial(self._confirmed, number), partial(self._ended, number))
        self._open.append(sender)
        return Books(number, sender)

    def close(self) -> None:
        for one in self._open:
            one.close()

    async def flat_out(self, seconds: float, *, is_random: bool) -> Flow:
        """As fast as it goes with so many messages of each sender under way."""
        self._is_random, self._is_running = is_random, True
        for books in self._books:
            self._fill(books)
        await asyncio.sleep(seconds * WARM_UP_SHARE)
        found = await self._watch(asyncio.sleep(seconds))
        await self._settle()
        return found

    async def paced(self, per_s: float, seconds: float) -> tuple[Flow, list[float]]:
        """At a steady pace, whatever comes back: what it cost, and how long each message took to its recipient."""
        self._is_random, self._sent_at, self._first_timed = False, [], self._number
        delivered: list[float] = []
        self._delivered_ms = delivered
        flow = await self._watch(self._send_steadily(per_s, seconds))
        self._delivered_ms = None
        return flow, delivered

    async def _send_steadily(self, per_s: float, seconds: float) -> None:
        due = time.perf_counter()
        end = due + seconds
        while due < end:
            self._sent_at.append(time.perf_counter())
            self._send(random.choice(self._books), 1)
            due += random.expovariate(per_s)
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
        await self._settle()  # a peer that lags behind pays for these, too

    async def _watch(self, work: Awaitable[None]) -> Flow:
        began, through = time.perf_counter(), self._through()
        server_s, load_s = self._site.cpu_s(), time.process_time()
        await work
        messages = max(1, self._through() - through)
        took = time.perf_counter() - began
        server_us = (self._site.cpu_s() - server_s) / messages * 1e6
        return Flow(messages / took, server_us, (time.process_time() - load_s) / messages * 1e6)

    def _through(self) -> int:
        return sum(books.through for books in self._books)

    async def _settle(self) -> None:
        self._is_running = False
        give_up = time.perf_counter() + SETTLED_WITHIN_S
        while any(books.through < books.sent for books in self._books):
            if time.perf_counter() > give_up:
                raise TimeoutError(f"messages were still under way after {SETTLED_WITHIN_S:.0f} s")
            await asyncio.sleep(0.01)

    def _fill(self, books: Books) -> None:
        while self._is_running and books.sent - books.through <= IN_FLIGHT - BATCH:
            self._send(books, BATCH)

    def _send(self, books: Books, count: int) -> None:
        first, self._number = self._number, self._number + count
        books.sent += count
        numbers = range(first, first + count)
        books.sender.publish([(self._to(books.number, number), payload(books.number, number)) for number in numbers])

    def _to(self, sender: int, number: int) -> int:
        if self._is_random:
            return int(random.random() * self._recipients)
        return sender + SENDERS * (number % self._own)

    def _confirmed(self, sender: int, count: int) -> None:
        books = self._books[sender]
        books.confirmed += count
        self._fill(books)

    def _ended(self, sender: int, count: int) -> None:
        books = self._books[sender]
        books.ended += count
        self._fill(books)

    def _delivered(self, payloads: Sequence[Payload]) -> None:
        if self._delivered_ms is not None:
            now, first = time.perf_counter(), self._first_timed
            self._delivered_ms += [(now - self._sent_at[number_of(text) - first]) * 1_000 for text in payloads]
        if not self._site.tells_the_end:
            for text in payloads:
                self._ended(sender_of(text), 1)


def spread(delivered_ms: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    return percentile(delivered_ms, 0.5), percentile(delivered_ms, 0.99)
