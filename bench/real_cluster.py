"""A real Redis Cluster, whose masters break and whose slots move."""

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import redis

from bench.servers import HOST, RealServer, free_port

SLOTS = 16_384
MASTERS = 3
MIGRATE_MS = 5_000
READY_S = 30.0
POLL_S = 0.02


class RealCluster:
    """Three masters that share the slots evenly, each with as many replicas as are wanted, or the first with some."""

    def __init__(self, replicas: int = 0, of_the_first: int = 0, masters: int = MASTERS) -> None:
        self._masters = masters
        count = masters * (1 + replicas)
        self._leaders = [number % masters for number in range(masters, count)] + [0] * of_the_first
        self.servers = [self._make() for _ in range(count + of_the_first)]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{HOST}:{server.public_port}" for server in self.servers)

    def masters(self) -> list[RealServer]:
        """Those that run and have slots."""
        return [server for server in self.servers if server.is_running and not server.is_paused and _has_slots(server)]

    def master_of(self, slot: int) -> RealServer:
        return next(server for server in self.masters() if any(slot in slots for slots in self.slots_of(server)))

    def slots_of(self, server: RealServer) -> list[range]:
        """What it serves, as it sees it."""
        (own,) = (node for node in _nodes(server) if "myself" in node[2])
        ends = [words.partition("-") for words in own[8:] if not words.startswith("[")]
        return [range(int(first), int(last or first) + 1) for first, _, last in ends]

    def replica_of(self, master: RealServer) -> RealServer | None:
        """One that runs and is linked to it."""
        others = (one for one in self.servers if one is not master and one.is_running and not one.is_paused)
        return next((one for one in others if _replicates(one, master)), None)

    def move(self, slot: int, target: RealServer) -> int:
        """Moves a slot as redis-cli does, key by key, while everybody works on. Returns how many keys went."""
        source = self.master_of(slot)
        if source is target:
            return 0
        self.begin_move(slot, source, target)
        moved = self.move_keys(slot, source, target)
        self.end_move(slot, source, target)
        return moved

    def begin_move(self, slot: int, source: RealServer, target: RealServer) -> None:
        """From now on the slot is on its way."""
        with source.client() as old, target.client() as new:
            _set_slot(new, slot, "IMPORTING", old.execute_command("CLUSTER MYID"))
            _set_slot(old, slot, "MIGRATING", new.execute_command("CLUSTER MYID"))

    def move_keys(self, slot: int, source: RealServer, target: RealServer) -> int:
        moved = 0
        with source.client() as old:
            while keys := old.execute_command("CLUSTER GETKEYSINSLOT", slot, 10):
                try:
                    old.execute_command("MIGRATE", HOST, target.port, "", 0, MIGRATE_MS, "KEYS", *keys)
                except redis.ResponseError as error:
                    if "OOM" not in str(error):
                        raise
                    time.sleep(POLL_S)  # the target is full just now; they are still here
                else:
                    moved += len(keys)
        return moved

    def end_move(self, slot: int, source: RealServer, target: RealServer) -> None:
        with source.client() as old, target.client() as new:
            owner = new.execute_command("CLUSTER MYID")
            for client in (new, old):
                _set_slot(client, slot, "NODE", owner)

    def _make(self) -> RealServer:
        return RealServer(_cluster_options(free_port()))

    def wait_until_whole(self) -> None:
        """Until every slot is served, and every server that runs knows it and is linked to its master."""
        deadline = time.monotonic() + READY_S
        while not all(_is_whole(server, self._masters) for server in self.servers if server.is_running):
            assert time.monotonic() < deadline, "the cluster did not come together"
            time.sleep(POLL_S)

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for server in self.servers:
                started.enter_context(server)
            self._join()
            self.wait_until_whole()
            self._started = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()

    def _join(self) -> None:
        share, first = SLOTS // self._masters + 1, self.servers[0]
        for number, server in enumerate(self.servers):
            with server.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                if number < self._masters:
                    last = min((number + 1) * share, SLOTS) - 1
                    client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last)
                client.execute_command("CLUSTER MEET", HOST, first.public_port, first.option("cluster-port"))
        for server, leader in zip(self.servers[self._masters :], self._leaders, strict=True):
            self._follow(server, self.servers[leader])

    def _follow(self, replica: RealServer, master: RealServer) -> None:
        """Makes it a replica, once the two have heard of each other."""
        with master.client() as client:
            node = client.execute_command("CLUSTER MYID")
        with replica.client() as client:
            _insist(client, "CLUSTER REPLICATE", node)


def _set_slot(client: Any, slot: int, state: str, node: str) -> None:
    """Valkey asks the replicas first, and one that was away is not ready at once."""
    _insist(client, "CLUSTER SETSLOT", slot, state, node, while_told="NOREPLICAS")


def _insist(client: Any, *command: str | int, while_told: str = "") -> None:
    """Asks again as long as the refusal has these words. Raises it in the end."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            client.execute_command(*command)
            return
        except redis.ResponseError as error:
            if while_told not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _cluster_options(bus_port: int) -> dict[str, str]:
    return {
        "cluster-enabled": "yes",
        "cluster-port": str(bus_port),
        "cluster-node-timeout": "2000",
        "cluster-require-full-coverage": "no",  # what is left goes on
        "cluster-allow-replica-migration": "no",  # a master without slots stays one
        "repl-diskless-sync-delay": "0",
        "repl-ping-replica-period": "1",
    }


def _is_whole(server: RealServer, masters: int) -> bool:
    with server.client() as client:
        info = client.execute_command("CLUSTER INFO")
        state = client.info("replication")
    is_linked = state["role"] == "master" or state["master_link_status"] == "up"
    return bool(info["cluster_state"] == "ok" and info["cluster_size"] == str(masters) and is_linked)


def _has_slots(server: RealServer) -> bool:
    """Whether it is a master that serves something, as it sees it."""
    return any("myself" in node[2] and len(node) > 8 for node in _nodes(server))


def _replicates(server: RealServer, master: RealServer) -> bool:
    with server.client() as client:
        state = client.info("replication")
    return bool(state["role"] == "slave" and state["master_port"] == master.public_port)


def _nodes(server: RealServer) -> list[list[str]]:
    """CLUSTER NODES, as words: id, address, flags, master, ping, pong, epoch, link, slots."""
    raw = redis.Redis(host=HOST, port=server.port, decode_responses=True)
    raw.set_response_callback("CLUSTER NODES", lambda text, **_: text)
    with raw as client:
        text = str(client.execute_command("CLUSTER NODES"))
    return [line.split() for line in text.splitlines()]
