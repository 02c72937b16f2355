"""The ceiling: the same scripts with full batches, called straight from one process, without any WebSocket."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context

import uvloop
from msgspec import Raw

from bench.load import PAYLOAD
from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.mailbox.outcomes import AcceptOutcome, Stored
from relay.store.mailbox.settle import Settlement
from relay.store.mailbox.take import TakeAnswer, TakeRequest, TakeResult
from relay.store.record.draft import Draft
from relay.store.replies.receipts import ReceiptBatch
from relay.store.store import Store, open_store

DRIVERS = 2
MAILBOXES = 50  # for each driver
JOINED_FOR_MS = 3_600_000
PER_ROUND = 100  # messages a mailbox and round: a full batch


class Box:
    """One sender and one recipient that never wait for a socket."""

    def __init__(self, store: Store, number: int) -> None:
        self.address = f"ceiling/to-{number}"
        self.sender = f"ceiling/from-{number}"
        self.name = f"{store.instance}.{number}"
        self.completed = 0
        self._store = store
        self._stored = 0
        self._sent = 0
        self._cursor = "0-0"
        self._done: asyncio.Future[None] | None = None

    async def round(self) -> None:
        """A full batch through its whole life."""
        self._done = asyncio.get_running_loop().create_future()
        accepting = self._store.accepting
        payload = Raw(f'"{PAYLOAD}"'.encode())
        for _ in range(PER_ROUND):
            self._sent += 1
            message = Message(id=f"m-{self._sent}", to=self.address, payload=payload)
            accepting.accept(accepting.draft(self.sender, message, self._answered))
        await self._done

    def _answered(self, _: Draft, outcome: AcceptOutcome) -> None:
        self._stored += isinstance(outcome, Stored)
        if self._stored == self._sent:
            request = TakeRequest(self.name, PER_ROUND, PER_ROUND * 65_536)
            self._store.taking.take(self.address, lambda: request, self._taken)

    def _taken(self, answer: TakeAnswer) -> None:
        assert isinstance(answer, TakeResult)
        assert not answer.is_cut
        entries = [row.entry for row in answer.rows]
        settled = Settlement("ack", self.address, self.name, entries, self._settled, timed=False)
        self._store.settling.settle(settled)

    def _settled(self, refusals: dict[str, str] | None) -> None:
        assert refusals == {}
        self._read()

    def _read(self) -> None:
        self._store.receipts.read(self.sender, self._cursor, self._receipts)

    def _receipts(self, found: list[ReceiptBatch] | None) -> None:
        if not found:
            asyncio.get_running_loop().call_soon(self._read)
            return
        self._cursor = found[-1].cursor
        self.completed += sum(waiting.count for waiting in found)
        self._store.receipts.forget(self.sender, [waiting.cursor for waiting in found], lambda _: None)
        if self.completed < self._sent:
            self._read()
        elif self._done is not None:
            self._done.set_result(None)


def ceiling(settings: Settings, url: str, seconds: float) -> float:
    """Messages a second over their whole life, driven by as many processes as there are instances."""
    with _children_ignore_ctrl_c():
        pool = get_context("spawn").Pool(DRIVERS)
    with pool:  # which ends them, finished or not
        return sum(pool.map(_drive_alone, [(settings, url, seconds, number) for number in range(DRIVERS)]))


@contextmanager
def _children_ignore_ctrl_c() -> Iterator[None]:
    """A terminal sends Ctrl-C to all of them, and each would show where it was."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _drive_alone(task: tuple[Settings, str, float, int]) -> float:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(*task))


async def _drive(settings: Settings, url: str, seconds: float, driver: int) -> float:
    async with open_store(settings, url) as store:
        boxes = [Box(store, driver * MAILBOXES + number) for number in range(MAILBOXES)]
        for box in boxes:
            await store.presence.join(box.address, box.name, "exclusive", JOINED_FOR_MS, None)
        end = time.perf_counter() + seconds

        async def repeat(box: Box) -> None:
            while time.perf_counter() < end:
                await box.round()

        began = time.perf_counter()
        await asyncio.gather(*map(repeat, boxes))
        return sum(box.completed for box in boxes) / (time.perf_counter() - began)
