"""Which master of a Cluster has which slot. Every node is asked separately."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Connection
from redis.exceptions import RedisError

from relay.store.redis.servers.sentinels import Address, MakeConnection, say
from relay.store.redis.servers.slots import SLOTS

log = logging.getLogger(__name__)


ANSWER_TIMEOUT_S = 1.0  # a node that has not answered by then is left out
ASK_EVERY_S = 1.0  # a change is noticed this soon, or as soon as a command is turned away
ASK_AGAIN_S = 0.1  # and while something is amiss, this soon
FRESH_S = 3.0  # what a node said longer ago does not count
STILL_COUNTS_S = 5.0  # a replica that was seen lately may be promoted although it is not seen now


@dataclass(frozen=True, slots=True)
class Claim:
    """A range of slots and the master that has it."""

    epoch: int  # of the master's configuration: a higher one is a later one
    first: int
    last: int
    master: Address
    replicas: int  # that a failover may choose from


@dataclass(frozen=True, slots=True)
class View:
    """What one node says."""

    claims: list[Claim]
    at: float = field(default_factory=time.monotonic)


class Node:
    """One node of the Cluster: a Server to talk to, and a source of the slot map."""

    def __init__(self, address: Address, make_connection: MakeConnection) -> None:
        self.address = address
        self._make_connection = make_connection
        self._witness: Connection | None = None  # the connection that is kept for questions
        self._counts: dict[int, float] = {}  # how many replicas were seen -> when last

    def __str__(self) -> str:
        return "{}:{}".format(*self.address)

    @property
    def replicas(self) -> int:
        """How many replicas a failover may choose from. One that is promoted drops its connections first.

        Time stands still while nobody tells, as for a process that was stopped: who went meanwhile is not known."""
        latest = max(self._counts.values(), default=0.0)
        return max((count for count, at in self._counts.items() if latest - at < STILL_COUNTS_S), default=0)

    def note_role(self, role: Any) -> None:
        """Ignored: the nodes report all replicas, also unlinked ones."""

    def count_replicas(self, count: int) -> None:
        self._counts[count] = time.monotonic()

    async def watch(self) -> None:
        """It does not move; what it has does, which Topology follows."""

    async def connect(self) -> Connection:
        """A connection of its own, connected and authenticated. Raises OSError or RedisError."""
        connection = self._make_connection(self.address)
        await connection.connect()  # type: ignore[no-untyped-call]
        return connection

    async def ask(self) -> View:
        """Raises OSError or RedisError."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if self._witness is None:
                    self._witness = await self.connect()
                slots, nodes = await say(self._witness, ("CLUSTER", "SLOTS"), ("CLUSTER", "NODES"))
                return View(list(_claims(slots, _epochs(nodes), self.address)))
        except BaseException:  # whatever was on its way must not be taken for the next answer
            await self.forget_witness()
            raise

    async def forget_witness(self) -> None:
        witness, self._witness = self._witness, None
        if witness is not None:
            await witness.disconnect(nowait=True)


class Topology:
    """Who has which slot. Of two nodes that claim one, the one with the later configuration has it."""

    def __init__(self, seeds: Iterable[Address], make_connection: MakeConnection) -> None:
        self.on_change: list[Callable[[], None]] = []  # called when a slot has got another master
        self._make_connection = make_connection
        self._nodes: dict[Address, Node] = {}
        self._seeds = [self.node(address) for address in seeds]
        self._owners: list[Address | None] = [None] * SLOTS
        self._views: dict[Node, View] = {}
        self._away: set[Node] = set()
        self._asking: dict[Node, asyncio.Task[None]] = {}
        self._amiss = asyncio.Event()

    def node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(address, self._make_connection)
        return node

    def owner(self, slot: int) -> Address | None:
        return self._owners[slot]

    @property
    def owners(self) -> set[Address]:
        """The masters that have slots."""
        return {address for address in set(self._owners) if address is not None}

    def look_again(self) -> None:
        """Something is not where it was."""
        self._amiss.set()

    async def watch(self) -> None:
        """Asks the nodes again and again."""
        try:
            while True:
                self._amiss.clear()
                witnesses = self._witnesses()
                for node in witnesses:
                    self._ask(node)
                for node in set(self._nodes.values()) - witnesses - self._asking.keys():
                    await node.forget_witness()
                await self._pause()
        finally:
            for task in self._asking.values():
                task.cancel()
            for node in self._nodes.values():
                await node.forget_witness()

    def _witnesses(self) -> set[Node]:
        return {self.node(address) for address in self.owners} | set(self._seeds)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(ASK_EVERY_S if any(self._owners) else ASK_AGAIN_S):
                await self._amiss.wait()
            await asyncio.sleep(ASK_AGAIN_S if self._asking else 0.0)
        except TimeoutError:
            pass

    def _ask(self, node: Node) -> None:
        """Unless it is being asked: one that hangs keeps nobody waiting."""
        if node not in self._asking:
            task = self._asking[node] = asyncio.create_task(self._keep_view(node))
            task.add_done_callback(lambda _: self._asking.pop(node))

    async def _keep_view(self, node: Node) -> None:
        try:
            view = await node.ask()
        except (OSError, RedisError) as error:
            if node not in self._away:
                log.warning("cluster_node_away", extra={"node": str(node), "error": str(error)})
            self._away.add(node)
            return
        self._away.discard(node)
        before = self._views.get(node)
        self._views[node] = view
        for claim in view.claims:
            self.node(claim.master).count_replicas(claim.replicas)
        if before is None or before.claims != view.claims:
            self._merge()

    def _merge(self) -> None:
        now = time.monotonic()
        self._views = {node: view for node, view in self._views.items() if now - view.at < FRESH_S}
        owners: list[Address | None] = [None] * SLOTS
        for claim in sorted((claim for view in self._views.values() for claim in view.claims), key=_by_epoch):
            owners[claim.first : claim.last + 1] = [claim.master] * (claim.last + 1 - claim.first)
        if owners != self._owners:
            self._owners = owners
            for changed in self.on_change:
                changed()


def _by_epoch(claim: Claim) -> int:
    return claim.epoch


def _epochs(nodes: bytes) -> dict[bytes, int]:
    """The epoch of each node's configuration, by its id, from CLUSTER NODES."""
    return {(fields := line.split())[0]: int(fields[6]) for line in nodes.splitlines() if line}


def _claims(slots: list[Any], epochs: dict[bytes, int], asked: Address) -> Iterable[Claim]:
    """Parses CLUSTER SLOTS. A node without a name has the address at which it was asked."""
    for first, last, master, *replicas in slots:
        host = master[0].decode() if master[0] else asked[0]
        yield Claim(epochs.get(master[2], 0), first, last, (host, master[1]), len(replicas))
