"""Faults: how each thing of a story is broken, and mended when its time is over."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from bench.proxy import CutProxy
from bench.torture.agent import Seat, Wire
from bench.torture.clients import Client
from bench.torture.processes import CLOCK_OFF_S, Instance, RelayProcess, Workers
from bench.torture.story import GOES_BACK, Fault
from bench.torture.topology import Topology

FULL_SHARE = 0.98  # of the memory in use becomes the limit
DELAY_S = 0.25

Mend = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """What takes no time needs no mending."""


@dataclass(slots=True)
class Stage:
    """Everything that can be broken."""

    topology: Topology
    instances: list[Instance]
    doors: list[CutProxy]  # before each instance
    workers: list[Workers]
    clients: list[Client]
    seats: list[Seat]
    folder: Path  # of its logs, and of what the clients keep
    done: list[tuple[Fault, float, float]] = field(default_factory=list)  # with when it began and was mended
    skipped: Counter[str] = field(default_factory=Counter)  # what was broken already when its turn came
    tell: Callable[[str], None] = print
    went_back: Callable[[], Awaitable[None]] = nothing  # is awaited after the store has
    _broken: set[str] = field(default_factory=set)  # processes, and the store, that are not mended yet

    async def play(self, story: list[Fault], began: float) -> None:
        """Every fault at its time. Ends when the last one is mended."""
        async with asyncio.TaskGroup() as group:
            for fault in story:
                await asyncio.sleep(max(0.0, began + fault.at_s - time.monotonic()))
                group.create_task(self._carry_out(fault))

    async def _carry_out(self, fault: Fault) -> None:
        at = time.monotonic()
        mend = await self._break(fault)
        if mend is None:
            self.skipped[fault.kind] += 1
            return
        self.tell(f"{fault.kind}" + (f", for {fault.for_s:g} s" if fault.for_s else ""))
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            await mend()
        self.done.append((fault, at, time.monotonic()))
        if fault.kind in GOES_BACK:
            await self.went_back()

    async def _break(self, fault: Fault) -> Mend | None:
        """Returns what mends it, or None if it could not be broken now."""
        words = fault.kind.split()
        match words:
            case ["kill" | "stop" | "drain", "instance"]:
                return await self._process(self.instances[fault.number % len(self.instances)], words[0])
            case ["kill" | "stop", "workers"]:
                return await self._process(self.workers[fault.number % len(self.workers)], words[0])
            case ["kill", "client"]:
                return await self._process(self.clients[fault.number % len(self.clients)], "kill")
            case [*_, "store", "links"]:
                return _links(self.topology.proxies[fault.number % len(self.topology.proxies)], words[0])
            case ["clock", "step"]:
                return self._clock(self.instances[fault.number % len(self.instances)], ahead=fault.number % 2 == 0)
            case ["slow", "client", "links"]:
                return _links(self.doors[fault.number % len(self.doors)], "slow")
            case ["lost", "wakes"]:
                return self._lose_wakes()
            case ["cut", "wakes"] | ["flush", "scripts"] | ["destroy", "groups"] | ["full", "server"]:
                return await self._on_masters(fault)
            case ["kill" | "stop" | "planned" | "move" | "stale", *_] | ["cut", "log"] | ["restore", "backup"]:
                return await self._store(fault)
        return await self._agent(fault, self.seats[fault.number % len(self.seats)])

    # -- processes

    async def _process(self, process: RelayProcess, how: str) -> Mend | None:
        if process.name in self._broken:
            return None
        self._broken.add(process.name)
        if how == "stop":
            process.stop()
            return self._mended(process, process.resume)
        if how == "drain":
            process.terminate()
            await asyncio.to_thread(process.end)
        else:
            await asyncio.to_thread(process.kill)
        return self._mended(process, process.start)

    def _mended(self, process: RelayProcess, mend_it: Callable[[], None]) -> Mend:
        async def mend() -> None:
            mend_it()
            self._broken.discard(process.name)

        return mend

    def _clock(self, instance: Instance, ahead: bool) -> Mend | None:
        """One step at a time: from behind to ahead it would be off by twice as much as the checks allow for."""
        clock = f"clock of {instance.name}"
        if not instance.has_clock or clock in self._broken:
            return None
        self._broken.add(clock)
        instance.set_clock(CLOCK_OFF_S if ahead else -CLOCK_OFF_S)

        async def mend() -> None:
            instance.set_clock(0)
            self._broken.discard(clock)

        return mend

    # -- the store

    async def _store(self, fault: Fault) -> Mend | None:
        """One of its servers at a time; what may go beside it are Sentinels."""
        what = "sentinel" if fault.kind.endswith("sentinel") else "store"
        if what in self._broken:
            return None
        self._broken.add(what)
        mend_it = await self.topology.fault(fault.kind, fault.number)

        async def mend() -> None:
            await asyncio.to_thread(mend_it)
            self._broken.discard(what)

        return mend

    def _lose_wakes(self) -> Mend:
        for proxy in self.topology.proxies:
            proxy.lose_published = True

        async def mend() -> None:
            for proxy in self.topology.proxies:
                proxy.lose_published = False

        return mend

    async def _on_masters(self, fault: Fault) -> Mend:
        do: dict[str, Callable[[Any], object]] = {
            "cut wakes": lambda client: client.client_kill_filter(_type="pubsub"),
            "flush scripts": lambda client: client.script_flush(),
            "destroy groups": lambda client: _destroy_group(client, fault.number),
            "full server": _fill,
        }
        await asyncio.to_thread(self.topology.each_master, do[fault.kind])
        if fault.kind != "full server":
            return nothing
        return self.give_room

    async def give_room(self) -> None:
        """Also to those that were masters when they were filled, and may be again."""
        await asyncio.to_thread(self.topology.each_server, _empty)

    # -- agents

    async def _agent(self, fault: Fault, seat: Seat) -> Mend | None:
        wire = seat.wire
        if wire is None or not wire.is_open or not seat.is_present.is_set():
            return None
        match fault.kind:
            case "offline agent":
                await seat.leave()
                return seat.come_back
            case "second session":
                seat.open_another()
                return nothing
            case "cut client":
                wire.abort()
                return nothing
        return self._hold(wire, both=fault.kind == "half-dead client")

    def _hold(self, wire: Wire, both: bool) -> Mend | None:
        link = self.doors[wire.instance].links.get(wire.port)
        if link is None:
            return None
        link.hold_replies, link.hold_requests = True, both

        async def mend() -> None:
            link.hold_replies = link.hold_requests = False

        return mend


def _links(proxy: CutProxy, how: str) -> Mend:
    """Cut at once; or slow, or half-dead: connections look open, and what is said on them arrives late."""
    if how == "cut":
        proxy.cut()
        return nothing
    proxy.delay_s = DELAY_S if how == "slow" else 0.0
    proxy.hold_requests = proxy.hold_replies = how == "half-dead"

    async def mend() -> None:
        proxy.delay_s, proxy.hold_requests, proxy.hold_replies = 0.0, False, False

    return mend


def _destroy_group(client: redis.Redis, number: int) -> None:
    boxes = sorted(client.scan_iter(match="*:box:*", count=1_000, _type="stream"))
    for box in boxes[number % 3 :: 3]:
        client.xgroup_destroy(box, "agent")


def _fill(client: redis.Redis) -> None:
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", int(used * FULL_SHARE))


def _empty(client: redis.Redis) -> None:
    client.config_set("maxmemory", 0)
