"""The ceiling: the same scripts with full batches, called straight from one process, without any WebSocket."""

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import uvloop
from msgspec import Raw

from bench.load import PAYLOAD
from relay.protocol import Message
from relay.settings import Settings
from relay.store.batches import Outcome
from relay.store.mailboxes import Draft, Settlement, Taken
from relay.store.receipts import Waiting
from relay.store.store import Store, open_store

DRIVERS = 2
MAILBOXES = 50  # for each driver
JOINED_FOR_MS = 3_600_000
PER_ROUND = 100  # messages a mailbox and round: a full batch


class Box:
    """One sender and one recipient that never wait for a socket."""

    is_puller = False
    types: list[str] | None = None

    def __init__(self, store: Store, number: int) -> None:
        self.address = f"ceiling/to-{number}"
        self.sender = f"ceiling/from-{number}"
        self.shard = store.keys.shard(self.address)
        self.name = f"{store.instance}.{number}"
        self.began = "0-0"
        self.drained = True
        self.ack_timeout_ms = 0
        self.completed = 0
        self._store = store
        self._stored = 0
        self._sent = 0
        self._cursor = "0-0"
        self._done: asyncio.Future[None] | None = None

    def room(self) -> int:
        return PER_ROUND

    def known(self) -> list[str] | None:
        return None

    async def round(self) -> None:
        """A full batch through its whole life."""
        self._done = asyncio.get_running_loop().create_future()
        mailboxes = self._store.mailboxes
        payload = Raw(f'"{PAYLOAD}"'.encode())
        for _ in range(PER_ROUND):
            self._sent += 1
            message = Message(id=f"m-{self._sent}", to=self.address, payload=payload)
            mailboxes.accept(mailboxes.draft(self.sender, message, self._answered))
        await self._done

    def _answered(self, _: Draft, outcome: Outcome) -> None:
        self._stored += outcome[0] == b"stored"
        if self._stored == self._sent:
            self._store.mailboxes.take(self)

    def taken(self, _: list[str], rows: list[Taken]) -> None:
        entries = [row.entry for row in rows]
        settled = Settlement(self.address, self.name, entries, self._settled, timed=False)
        self._store.mailboxes.ack(settled)

    def take_failed(self) -> None:
        raise AssertionError("the store did not answer")

    def unregistered(self) -> None:
        raise AssertionError("the store has forgotten a session")

    def busy(self) -> None:
        raise AssertionError("only pullers give way")

    def _settled(self, refusals: dict[str, str] | None) -> None:
        assert refusals == {}
        self._read()

    def _read(self) -> None:
        self._store.receipts.read(self.sender, self._cursor, self._receipts)

    def _receipts(self, found: list[Waiting] | None) -> None:
        if not found:
            asyncio.get_running_loop().call_soon(self._read)
            return
        self._cursor = found[-1].cursor
        self.completed += sum(waiting.count for waiting in found)
        self._store.receipts.confirm(self.sender, self._cursor)
        if self.completed < self._sent:
            self._read()
        elif self._done is not None:
            self._done.set_result(None)


def ceiling(settings: Settings, url: str, seconds: float) -> float:
    """Messages a second over their whole life, driven by as many processes as there are instances."""
    with ProcessPoolExecutor(DRIVERS, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(_drive_alone, [(settings, url, seconds, number) for number in range(DRIVERS)]))


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
