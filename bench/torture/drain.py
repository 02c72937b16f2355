"""The end of a run: everything is mended, everybody finishes, and what is left is looked for."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from bench.torture.agent import Seat
from bench.torture.books import Breach
from bench.torture.clients import finish
from bench.torture.faults import Stage
from bench.torture.leaks import instance_leaks, pending, store_leaks
from bench.torture.report import Progress
from bench.torture.scene import Scene
from bench.torture.topology import Client
from bench.torture.traffic import Member

DRAINED_WITHIN_S = 60.0
SENT_WITHIN_S = 60.0
CLEAN_WITHIN_S = 25.0
POLL_S = 0.3


class Drain:
    """What it finds to be stuck or left behind is in `breaches`."""

    def __init__(
        self, stage: Stage, scene: Scene, everybody: list[Member], progress: Progress, patience: float
    ) -> None:
        self.breaches: list[Breach] = []
        self._stage = stage
        self._scene = scene
        self._everybody = everybody
        self._progress = progress
        self._patience = patience
        self._late: list[Seat] = []  # of callers, who come to hear of their receipts

    async def run(self, senders: list[asyncio.Task[None]], others: list[asyncio.Task[None]]) -> None:
        await self._phase("mending", self._mend())
        await self._phase("sending the rest", self._finish(senders))
        await self._phase("ending the clients", self._finish_clients())
        await self._phase(
            "draining", self._until(self._is_drained, DRAINED_WITHIN_S, "nothing stuck", self._what_waits)
        )
        await self._phase("fetching receipts", self._fetch_receipts(others))
        await self._phase("asking for replies", self._ask_for_replies())
        await self._phase("dropping dead letters", self._drop_dead())
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.gather(*(seat.close() for seat in (*self._stage.seats, *self._late)))
        await self._phase("looking for leaks", self._look_for_leaks())

    async def _phase(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._progress.show(self._scene.books, [], name)
        self._progress.say(name)
        await work

    async def _mend(self) -> None:
        await asyncio.to_thread(self._stage.topology.heal)
        await self._stage.give_room()
        for process in (*self._stage.instances, *self._stage.workers, *self._stage.clients):
            if not process.is_running:
                self._complain("processes live", f"{process.name} has ended by itself: {process.tail()}")
                process.start()
        for instance in self._stage.instances:
            await instance.ready(self._scene.http)

    async def _finish(self, senders: list[asyncio.Task[None]]) -> None:
        _, stuck = await asyncio.wait(senders, timeout=SENT_WITHIN_S * self._patience)
        for task in senders:
            if task.done():
                task.result()
        if stuck:
            self._complain("clear answers", f"{len(stuck)} senders get no clear answer, though nothing is broken")
        await self._scene.errands_done()

    async def _finish_clients(self) -> None:
        goes_back = bool(self._stage.topology.undone().went_back())
        self.breaches += await asyncio.to_thread(
            lambda: list(finish(self._stage.clients, self._stage.folder, goes_back, self._scene.books.counts))
        )

    async def _until(
        self, condition: Callable[[], bool], within_s: float, promise: str, why: Callable[[], str]
    ) -> None:
        deadline = time.monotonic() + within_s * self._patience
        while not await asyncio.to_thread(condition):
            self._settle_all()
            if time.monotonic() > deadline:
                self._complain(promise, await asyncio.to_thread(why))
                return
            await asyncio.sleep(POLL_S)

    def _complain(self, promise: str, what: str) -> None:
        self.breaches.append(Breach(promise, what))

    def _settle_all(self) -> None:
        for seat in self._stage.seats:
            if seat.wire is not None and seat.wire.is_open:
                seat.wire.settle_all()

    def _is_drained(self) -> bool:
        return not self._lengths("box") and not self._lengths("outbox")

    def _lengths(self, kind: str) -> dict[str, int]:
        """Streams of a kind that are not empty."""
        names = [(client, name) for client in self._stage.topology.clients() for name in _streams(client, kind)]
        return {name: length for client, name in names if (length := int(client.xlen(name)))}

    def _what_waits(self) -> str:
        boxes = self._lengths("box")
        holders = [
            f"redis-cli -p {client.connection_pool.connection_kwargs['port']} XPENDING '{name}' agent - + 5\n    "
            f"{pending(client, name)}"
            for client in self._stage.topology.clients()
            for name in _streams(client, "box")
            if name in boxes
        ]
        return "\n  ".join(
            (
                f"still there after {DRAINED_WITHIN_S * self._patience:.0f} s: {boxes | self._lengths('outbox')}",
                *holders,
            )
        )

    async def _fetch_receipts(self, others: list[asyncio.Task[None]]) -> None:
        for member in self._everybody:
            if member.role in ("caller", "pulled"):
                seat = Seat(self._scene, member, 0)
                self._late.append(seat)
                if member.role == "caller":
                    others.append(asyncio.create_task(seat.live()))
        await self._until(lambda: not self._lengths("receipts"), CLEAN_WITHIN_S, "the sender learns the end",
                          lambda: f"receipts that nobody gets: {self._lengths('receipts')}")  # fmt: skip

    async def _ask_for_replies(self) -> None:
        """A request over HTTP finds its reply with its task."""
        for key, message in self._scene.books.messages.items():
            told = any(one.how == "reply" and one.answer == "settled" for one in message.settlements)
            if told and message.is_http and "ttl_s" not in message.fields:
                status, task = await self._scene.call(key.sender, "GET", f"/v1/tasks/{quote(key.id)}")
                if (status, task.get("state"), task.get("reply")) != (200, "replied", {"re": list(key)}):
                    self.breaches.append(Breach("replies arrive", f"its task is {status} {task}", key))

    async def _drop_dead(self) -> None:
        for member in self._everybody:
            path = f"/v1/agents/{member.name}/dead"
            while True:
                status, page = await self._scene.call(member.address, "GET", f"{path}?limit=500")
                if status != 200 or not page["messages"]:
                    break
                for letter in page["messages"]:
                    await self._scene.call(member.address, "DELETE", f"{path}/{quote(letter['entry'])}")

    async def _look_for_leaks(self) -> None:
        """What is about to go has some time to do so."""
        deadline = time.monotonic() + CLEAN_WITHIN_S * self._patience
        token = self._scene.token("acme/root", "metrics")
        while True:
            found = [
                *await asyncio.to_thread(self._store_leaks),
                *await instance_leaks(self._stage.instances, self._scene.http, token),
            ]
            if not found or time.monotonic() > deadline:
                self.breaches += found
                return
            await asyncio.sleep(POLL_S)

    def _store_leaks(self) -> list[Breach]:
        return list(store_leaks(self._stage.topology.clients(), len(self._stage.instances)))


def _streams(client: Client, kind: str) -> list[str]:
    pattern = f"relay:{{s*}}:{kind}" if kind == "outbox" else f"relay:{{s*}}:{kind}:*"
    return sorted(client.scan_iter(match=pattern, count=1_000, _type="stream"))
