"""Real servers for tests: one on a port of its own, or a cluster of three."""

import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from relay.embedded import ServerProcess, server_program

HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections: none of those can take the port of a server that restarts,
# and no client that keeps trying can end up connected to itself.
PORTS = range(20_000, 30_000)
SLOTS = 16_384
CLUSTER_READY_S = 30.0
POLL_S = 0.02

DEFAULT_OPTIONS = {
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    "stream-node-max-bytes": "512",
    "enable-debug-command": "yes",
}


class RealServer:
    """A server in a folder of its own, which can be killed, stopped, paused and started again on the same port."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"redis://{HOST}:{self.port}"
        self.folder = Path(tempfile.mkdtemp(prefix="relay-test-"))
        self._options = DEFAULT_OPTIONS | dict(options or {})
        self._process: ServerProcess | None = None

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Starts on the data that is there; returns when the server answers."""
        own = {"bind": HOST, "port": str(self.port), "dir": str(self.folder)}
        process = ServerProcess(server_program(), self._options | own, self.folder / "server.log")
        try:
            process.wait_until_ready((HOST, self.port))
        except BaseException:
            process.kill()
            raise
        self._process = process

    def stop(self) -> None:
        """Ends it in good order."""
        self.resume()
        self._running.stop()
        self._process = None

    def kill(self) -> None:
        """Ends it by SIGKILL."""
        self._running.kill()
        self._process = None

    def pause(self) -> None:
        """Leaves connections open and answers nothing, as a server on a frozen machine."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> redis.Redis:
        return redis.Redis(host=HOST, port=self.port, decode_responses=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _running(self) -> ServerProcess:
        assert self._process is not None, "the server is not running"
        return self._process


class RealCluster:
    """Three masters that share the slots evenly."""

    def __init__(self) -> None:
        self._bus_ports = [free_port() for _ in range(3)]
        self.servers = [RealServer(_cluster_options(bus_port)) for bus_port in self._bus_ports]
        self.url = "redis+cluster://" + ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for server in self.servers:
                started.enter_context(server)
            self._join()
            self._wait_until_ready()
            self._started = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()

    def _join(self) -> None:
        share = SLOTS // len(self.servers) + 1
        for number, server in enumerate(self.servers):
            first, last = number * share, min((number + 1) * share, SLOTS) - 1
            with server.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
                client.execute_command("CLUSTER MEET", HOST, self.servers[0].port, self._bus_ports[0])

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + CLUSTER_READY_S
        while not all(_sees_whole_cluster(server, len(self.servers)) for server in self.servers):
            assert time.monotonic() < deadline, "the cluster did not come together"
            time.sleep(POLL_S)


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port


def _cluster_options(bus_port: int) -> dict[str, str]:
    return {"cluster-enabled": "yes", "cluster-port": str(bus_port), "cluster-node-timeout": "2000"}


def _sees_whole_cluster(server: RealServer, size: int) -> bool:
    with server.client() as client:
        info = client.execute_command("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and info["cluster_size"] == str(size))
