"""A run of the torture: everything is started, broken by the story, drained and checked."""

import asyncio
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from rich.console import Console

import relay
from bench.proxy import HOST, CutProxy
from bench.servers import free_port
from bench.torture import regress, report
from bench.torture.agent import Seat, Sender
from bench.torture.books import Books, Breach
from bench.torture.callers import Caller, Prober, Puller
from bench.torture.checks import check, is_excused
from bench.torture.clients import Client, roles
from bench.torture.drain import Drain
from bench.torture.eventlog import EventLog, Lives
from bench.torture.faults import Stage
from bench.torture.forks import Undone
from bench.torture.limits import check_limits
from bench.torture.processes import CLOCK_OFF_S, Instance, Workers
from bench.torture.report import Progress, Stall
from bench.torture.scene import SECRET, Door, Scene
from bench.torture.story import Fault, write_story
from bench.torture.topology import MAKERS, Topology
from bench.torture.topology import Client as RedisClient
from bench.torture.traffic import SEATS, Member, members
from bench.torture.variants import VARIANTS, Variant
from relay.cli import visible

INSTANCES = 3
WORKERS = 2
FOLLOW_EVERY_S = 0.3
IDLE_S = 5.0  # then clients close a connection: none of theirs may be taken for a leak of the instance
SETTINGS = {
    "token_secret": SECRET,
    "open_tenants": "*",
    "rate_per_s": "0",
    "mailbox_max_messages": "300",
    "message_ttl_s": "86400",
    "events_max_bytes": str(2**34),
    "events_max_entries": "10000000",
}


@dataclass(slots=True)
class Outcome:
    """What a run found."""

    accepted: int = 0
    faults: list[tuple[Fault, float, float]] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)
    stalls: dict[str, Stall] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Run:
    """One topology, one seed."""

    def __init__(
        self, topology: str, variant: Variant, seed: int, seconds: float, folder: Path, console: Console, code: Path
    ) -> None:
        self._name, self._variant, self._seed, self._seconds = topology, variant, seed, seconds
        self._folder = folder
        self._console = console
        self._code = code  # where the relay's packages are
        self._progress = Progress(console, seconds)
        self._log = EventLog()
        self._playing: list[asyncio.Task[None]] = []

    async def run(self) -> Outcome:
        story = write_story(self._name, self._seed, self._seconds, self._variant.goes_back)
        async with AsyncExitStack() as stack:
            stack.callback(self._progress.close)
            topology = await stack.enter_async_context(MAKERS[self._name](self._variant))
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S)
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            stage = await self._start(stack, topology, http)
            scene = Scene(self._seed, _doors(stage), http, topology.durability)
            stage.clients += self._start_clients(stack, scene)
            return await self._play(stage, scene, story)

    async def _start(self, stack: AsyncExitStack, topology: Topology, http: aiohttp.ClientSession) -> Stage:
        shared = (
            SETTINGS
            | self._variant.timings
            | {
                "shards": str(topology.shards),
                "redis_url": topology.url,
                "durability": topology.durability,
                "data_dir": str(self._folder),
            }
        )
        environ = {f"RELAY_{name.upper()}": value for name, value in shared.items()}
        instances = [Instance(n, free_port(), environ, self._folder, self._code) for n in range(INSTANCES)]
        workers = [Workers(n, environ, self._folder, self._code) for n in range(WORKERS)]
        for process in (*instances, *workers):
            process.start()
            stack.push_async_callback(asyncio.to_thread, process.end)
        for instance in instances:
            await instance.ready(http)
        doors = [await stack.enter_async_context(CutProxy(instance.port)) for instance in instances]
        return Stage(topology, instances, doors, workers, [], [], self._folder, tell=self._progress.say)

    def _start_clients(self, stack: AsyncExitStack, scene: Scene) -> list[Client]:
        urls = [door.url for door in scene.doors]
        clients = [Client(role, urls, scene.token(address), self._folder, self._code) for address, role in roles()]
        for client in clients:
            client.start()
            stack.push_async_callback(asyncio.to_thread, client.end)
        return clients

    async def _play(self, stage: Stage, scene: Scene, story: list[Fault]) -> Outcome:
        began = time.monotonic()
        stage.went_back = lambda: self._look_for_ghosts(stage, scene.books)
        everybody = members()
        senders = self._take_places(stage, scene, everybody)
        showing = asyncio.create_task(self._show(scene, story, began))
        try:
            await stage.play(story, began)
            await asyncio.sleep(max(0.0, began + self._seconds - time.monotonic()))
            scene.is_ending = True
            drain = Drain(stage, scene, everybody, self._progress, self._variant.patience)
            await drain.run(senders, self._playing)
            return await self._judge(stage, scene, drain)
        finally:
            showing.cancel()
            for task in (*senders, *self._playing):
                task.cancel()
            await asyncio.gather(showing, *senders, *self._playing, return_exceptions=True)
            await scene.give_up_errands()

    def _take_places(self, stage: Stage, scene: Scene, everybody: list[Member]) -> list[asyncio.Task[None]]:
        """Everybody begins. Returns those who will come to an end by themselves."""
        senders = []
        for member in everybody:
            if member.role == "caller":
                senders.append(asyncio.create_task(Caller(scene, member).run()))
            elif member.role == "pulled":
                self._playing += [asyncio.create_task(Puller(scene, member, n).run()) for n in range(SEATS)]
            else:
                seats = [Seat(scene, member, n) for n in range(SEATS if member.role == "shared" else 1)]
                stage.seats += seats
                self._playing += [asyncio.create_task(seat.live()) for seat in seats]
                senders.append(asyncio.create_task(Sender(scene, member, seats[0]).run()))
        self._playing.append(asyncio.create_task(Prober(scene, everybody).run()))
        self._playing.append(asyncio.create_task(self._follow(stage.topology)))
        return senders

    async def _follow(self, topology: Topology) -> None:
        while True:
            await asyncio.to_thread(topology.observe)
            await asyncio.to_thread(lambda: self._log.read(topology.clients()))
            await asyncio.sleep(FOLLOW_EVERY_S)

    async def _show(self, scene: Scene, story: list[Fault], began: float) -> None:
        while not scene.is_ending:
            now_s = time.monotonic() - began
            on = [fault.kind for fault in story if fault.at_s <= now_s <= max(fault.end_s, fault.at_s + 1)]
            self._progress.show(scene.books, on)
            await asyncio.sleep(0.5)

    async def _judge(self, stage: Stage, scene: Scene, drain: Drain) -> Outcome:
        self._progress.show(scene.books, [], "checking")
        clients = await asyncio.to_thread(stage.topology.clients)
        lives = await asyncio.to_thread(self._log.lives, clients)
        undone = stage.topology.undone()
        off_s = CLOCK_OFF_S if any(fault.kind == "clock step" for fault, _, _ in stage.done) else 0.0
        breaches = [
            *check(scene.books, lives, undone, off_s),
            *check_limits(scene.books, lives, undone, off_s),
            *self._check_regress(stage, scene.books, lives, undone, clients),
            *drain.breaches,
            *self._complaints(stage),
        ]
        breaches = [breach for breach in breaches if not is_excused(breach, scene.books, lives, undone)]
        outcome = Outcome(scene.books.counts["accepted"], stage.done, breaches, counts=dict(scene.books.counts))
        outcome.stalls = report.stalls(scene.books, stage.done)
        breaches += report.stuck(self._name, outcome.stalls, self._variant.patience)
        self._progress.close()
        title = f"{self._name}, seed {self._seed}, {self._seconds:.0f} s, {len(stage.done)} faults"
        report.print_summary(self._console, title, scene.books, outcome.stalls, undone)
        await asyncio.to_thread(report.print_breaches, self._console, breaches, scene.books, lives, clients)
        return outcome

    def _check_regress(
        self, stage: Stage, books: Books, lives: Lives, undone: Undone, clients: list[RedisClient]
    ) -> Iterator[Breach]:
        names, said = [instance.name for instance in stage.instances], regress.notices(stage.instances, self._log)
        yield from regress.check_regress(books, lives, undone, names, said)
        yield from regress.used_twice(books, lives, undone)
        if any(regress.lost_shards(books, lives, undone, one) for one in undone.went_back()):
            yield from regress.no_anomaly(clients)

    async def _look_for_ghosts(self, stage: Stage, books: Books) -> None:
        """Who has left since may still be there for a while, and nobody who left before."""
        now = time.monotonic()
        await asyncio.sleep(regress.GHOSTS_GONE_WITHIN_S)
        books.breaches += await asyncio.to_thread(
            lambda: list(regress.ghosts(stage.topology.clients(), books, ended_before=now))
        )

    def _complaints(self, stage: Stage) -> list[Breach]:
        allowed = {regress.LINE} if self._variant.goes_back else ()
        return [
            Breach("nothing unforeseen in the logs", f"{process.name}: {complaint}")
            for process in (*stage.instances, *stage.workers)
            for complaint in process.complaints(allowed)
        ]


def _doors(stage: Stage) -> list[Door]:
    return [Door(f"http://{HOST}:{door.port}") for door in stage.doors]


def torture(
    topology: str,
    seed: int,
    seconds: float,
    folder: Path,
    console: Console,
    code: Path | None = None,
    variant: str = "mixed",
) -> Outcome:
    """Raises KeyboardInterrupt when it is interrupted, after everything was ended."""
    code = code or Path(relay.__file__).parents[1]
    return asyncio.run(Run(topology, VARIANTS[variant], seed, seconds, folder, console, code).run())


def main(topology: str, seed: int | None, minutes: float, variant: str) -> int:
    """The command: prints how it goes. Returns the exit code."""
    console = visible.Console(stderr=True, soft_wrap=True, markup=True)
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also if a shell has it ignore SIGINT
    folder = Path(tempfile.mkdtemp(prefix="relay-torture-"))
    try:
        outcome = torture(topology, seed, minutes * 60, folder, console, variant=variant)
    except KeyboardInterrupt:
        console.print("interrupted; everything that it started is ended")
        shutil.rmtree(folder, ignore_errors=True)
        return 130
    if outcome.breaches:
        again = f"relay torture --topology {topology} --seed {seed} --minutes {minutes:g} --variant {variant}"
        console.print(f"[bold red]{len(outcome.breaches)} broken promises[/bold red]: {again} tells the same story")
        console.print(f"the logs of instances and workers are in {folder}", highlight=False)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    console.print("[bold green]every promise held[/bold green]")
    return 0
