"""What tests do with a Redis Cluster: look into it, and change who belongs to it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import redis

from tests.servers import HOST, RealCluster, RealServer

READY_S = 30.0
POLL_S = 0.02


def say(server: RealServer, command: str, *words: str | int) -> Any:
    with server.client() as client:
        return client.execute_command(command, *words)


class Cluster(RealCluster):
    """One that grows and shrinks."""

    def client(self) -> redis.RedisCluster:
        return redis.RedisCluster(host=HOST, port=self._up()[0].port, decode_responses=True)

    def owners(self, slots: Iterable[int]) -> dict[int, RealServer]:
        """The masters of these slots, by one question to one node."""
        ranges = say(self._up()[0], "CLUSTER SLOTS")
        ports = {slot: port for slot in slots for first, last, (_, port, *_), *_ in ranges if first <= slot <= last}
        return {slot: next(node for node in self.servers if node.port == port) for slot, port in ports.items()}

    def replicas_of(self, master: RealServer) -> list[RealServer]:
        """Those that run and follow it."""
        roles = {node: say(node, "ROLE") for node in self._up()}
        return [node for node, role in roles.items() if role[0] == "slave" and role[2] == master.port]

    def add_master(self) -> RealServer:
        """One more, without slots, and a replica of it."""
        master, replica = self._add(), self._add()
        self._wait_until(lambda: all(map(self._knows_all, self._up())), "all know the new ones")
        self._follow(replica, master)
        self._wait_until(lambda: say(replica, "ROLE")[3] == "connected", "it has a replica")
        return master

    def _add(self) -> RealServer:
        node = self._make()
        self._started.enter_context(node)
        self.servers.append(node)
        say(node, "CLUSTER MEET", HOST, self.servers[0].port, self.servers[0].option("cluster-port"))
        return node

    def remove(self, master: RealServer) -> None:
        """Takes a master without slots out of the Cluster, with its replicas, and ends them."""
        for node in (*self.replicas_of(master), master):
            name = say(node, "CLUSTER MYID")
            self.servers.remove(node)
            node.stop()
            for other in self._up():
                say(other, "CLUSTER FORGET", name)

    def _knows_all(self, node: RealServer) -> bool:
        info = say(node, "CLUSTER INFO")
        return bool(info["cluster_known_nodes"] == str(len(self.servers)) and info["cluster_state"] == "ok")

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            assert time.monotonic() < deadline, f"did not come true: {what}"
            time.sleep(POLL_S)

    def _up(self) -> list[RealServer]:
        return [node for node in self.servers if node.is_running and not node.is_paused]
