"""The masters of a Cluster: each has its own connection and its own exchanges, so that none waits for another."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio import Connection
from redis.exceptions import ConnectionError as RedisConnectionError

from relay.errors import StoreUnavailable
from relay.store.redis.command import Command
from relay.store.redis.resp import first_key
from relay.store.redis.scripts import Script
from relay.store.redis.servers.link import Ask
from relay.store.redis.servers.master import GIVE_UP_AFTER_S, Master
from relay.store.redis.servers.masters import Gathering, Masters
from relay.store.redis.servers.sentinels import Address
from relay.store.redis.servers.slots import slot_of
from relay.store.redis.servers.topology import Topology

TRY_AGAIN_S = 0.02  # while a slot is on its way to another master, its commands are tried this often
MOVES_AT_ONCE = 3  # how often a command is sent on at once: nodes that know less may send it to each other
LAST_WORDS_S = 0.5  # a master that has lost all its slots has this long to answer what is under way


class NoServer:
    """Stands for the owner of slots that no known master has."""

    replicas = 0

    def note_role(self, role: Any) -> None:
        """Nobody answers."""

    async def connect(self) -> Connection:
        raise RedisConnectionError("no master of the Cluster has the slot")

    async def watch(self) -> None:
        """There is nothing to see."""


class ClusterMasters(Masters):
    """Commands go to the master that has their slot, wherever it moves.

    The commands of a slot keep their order, and so do the numbers of their exchanges. While some are astray (on their
    way from one master to another), no further commands of the slot are gathered.
    """

    def __init__(
        self, pipeline: Gathering, topology: Topology, scripts: Sequence[Script], replicate: bool, slots: Sequence[int]
    ) -> None:
        self._pipeline = pipeline
        self._topology = topology
        self._scripts = scripts
        self._replicate = replicate
        self._slots = slots  # by shard
        self._shards: dict[int, list[int]] = {}  # by slot
        for shard, slot in enumerate(slots):
            self._shards.setdefault(slot, []).append(shard)
        self._nobody = Master(NoServer(), self, (), replicate=False)
        self._masters: dict[Address, Master] = {}
        self._of_shard: list[Master] = [self._nobody] * len(slots)
        self._own: dict[Master, set[int]] = {self._nobody: set(range(len(slots)))}  # the shards of each
        self._astray: Counter[int] = Counter()  # how many commands of a slot are
        self._pausing: list[Command] = []  # those that no master carries out at the moment
        self._is_known = asyncio.Event()  # whether anybody has said who has which slot
        self._group: asyncio.TaskGroup | None = None
        topology.on_change.append(self._follow)

    @property
    def all(self) -> Sequence[Master]:
        return [master for master in self._own if master is not self._nobody] or [self._nobody]

    async def known(self) -> Sequence[Master]:
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_AFTER_S):
                await self._is_known.wait()
        return self.all

    def of_shard(self, shard: int) -> Master:
        return self._of_shard[shard]

    def of_command(self, command: Command) -> Master:
        key = first_key(command.packet)
        if key is None:  # any of them will do
            return min(self.all, key=lambda master: not master.healthy)
        command.slot = slot_of(key)
        return self._of_slot(command.slot)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            for master in (self._nobody, *self._masters.values()):
                self._group.create_task(master.run())

    async def finish(self) -> None:
        """Commands that are astray belong to no master for a moment."""
        while True:
            for master in (self._nobody, *self._masters.values()):
                await master.finish()
            if not self._astray:
                return
            await asyncio.sleep(TRY_AGAIN_S)

    # -- for the masters

    def gather(self, master: Master) -> list[Command]:
        waiting, master.waiting = master.waiting, []
        shards = self._own.get(master, set())
        if self._astray:
            held = [command for command in waiting if command.slot in self._astray]
            waiting = [command for command in waiting if command.slot not in self._astray]
            shards = {shard for shard in shards if self._slots[shard] not in self._astray}
            master.waiting = held
        commands = self._pipeline.gather(waiting, shards)
        for command in commands:
            if command.shard >= 0:
                command.slot = self._slots[command.shard]
        return commands

    def keep_own(self, master: Master, commands: list[Command]) -> list[Command]:
        self._topology.look_again()
        own = []
        for command in commands:
            if command.slot < 0 and master is self._nobody and self._masters:
                self.of_command(command).submit(command)
            elif command.slot < 0 or self._of_slot(command.slot) is master:
                own.append(command)
            else:
                self._lose(command)
                self._of_slot(command.slot).adopt([command])
        return own

    def turned_away(self, master: Master, command: Command, why: str) -> None:
        """MOVED or ASK slot host:port; TRYAGAIN and CLUSTERDOWN in words."""
        self._lose(command)
        word, *rest = why.split(" ")
        command.asking = word == "ASK"
        command.moves += word == "MOVED"
        if time.monotonic() > command.deadline:
            command.hand_out(self.refusal(command))
            self.landed(command)
        elif word == "ASK" or (word == "MOVED" and command.moves <= MOVES_AT_ONCE):
            target = self._at(self._address(rest[1], master))
            if word == "MOVED" and command.shard >= 0:
                target.doubted.add(command.shard)
            target.adopt([command])
        else:
            self._wait_with(command)
        if word != "ASK":
            self._topology.look_again()

    def landed(self, command: Command) -> None:
        """The slot may have further commands when none of its own is astray."""
        command.is_astray = False
        slot = command.slot
        self._astray[slot] -= 1
        if self._astray[slot] <= 0:
            del self._astray[slot]
            self._of_slot(slot).ring()

    def refusal(self, command: Command) -> StoreUnavailable:
        shards = [command.shard] if command.shard >= 0 else self._shards.get(command.slot)
        which = f" for shard {shards[0]}" if shards else ""
        return StoreUnavailable(f"the store does not answer{which}; the same id again is safe")

    def answered(self, after_s: float) -> None:
        self._pipeline.answered(after_s)

    def shards_of(self, master: Master) -> Iterable[int]:
        return self._own.get(master, ())

    async def compare(self, shards: Iterable[int], ask: Ask) -> bool:
        return await self._pipeline.compare(shards, ask)

    # -- where a slot is

    def _of_slot(self, slot: int) -> Master:
        address = self._topology.owner(slot)
        return self._nobody if address is None else self._at(address)

    def _at(self, address: Address) -> Master:
        master = self._masters.get(address)
        if master is None:
            master = Master(self._topology.node(address), self, self._scripts, self._replicate)
            self._masters[address] = master
            if self._group is not None:
                self._group.create_task(master.run())
        return master

    def _address(self, text: str, master: Master) -> Address:
        """Where a command should go. A node that does not tell another's name means its own."""
        host, _, port = text.rpartition(":")
        host = host or next(address[0] for address, one in self._masters.items() if one is master)
        return host, int(port)

    def _lose(self, command: Command) -> None:
        """From now on until it has its answer, the command is astray."""
        if not command.is_astray:
            command.is_astray = True
            command.deadline = command.deadline or time.monotonic() + GIVE_UP_AFTER_S
            self._astray[command.slot] += 1

    def _wait_with(self, command: Command) -> None:
        """All waiting commands are sent again together, in order."""
        if not self._pausing:
            asyncio.get_running_loop().call_later(TRY_AGAIN_S, self._send_again)
        self._pausing.append(command)

    def _send_again(self) -> None:
        commands, self._pausing = self._pausing, []
        for command in commands:
            self._of_slot(command.slot).adopt([command])

    def _follow(self) -> None:
        """The slots have new masters: what waits for them goes there, and what is under way is watched."""
        self._is_known.set()
        before, self._of_shard = self._of_shard, [self._of_slot(slot) for slot in self._slots]
        self._own = {}
        for shard, master in enumerate(self._of_shard):
            self._own.setdefault(master, set()).add(shard)
            if master is not before[shard]:
                master.doubted.add(shard)
        for master in (self._nobody, *self._masters.values()):
            self._part_with_others(master)
        for address, master in list(self._masters.items()):
            if master not in self._own and address not in self._topology.owners:
                del self._masters[address]
                master.retire()
                asyncio.get_running_loop().call_later(LAST_WORDS_S, master.abort)
        for master in self._own:
            master.ring()

    def _part_with_others(self, master: Master) -> None:
        """Commands whose slot is another's now."""
        for command in master.under_way:
            if command.slot >= 0 and self._of_slot(command.slot) is not master:
                self._lose(command)
        waiting, master.waiting = master.waiting, []
        for command in waiting:
            (master if command.slot < 0 else self._of_slot(command.slot)).submit(command)
        master.nudge()
