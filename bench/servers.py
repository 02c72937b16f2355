"""A real server on a port of its own, which a test or a benchmark can break."""

import atexit
import itertools
import os
import random
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from relay.cli.up.embedded import ServerProcess, server_program

HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections: none of those can take the port of a server that restarts,
# and no client that keeps trying can end up connected to itself.
PORTS = range(20_000, 30_000)
BLOCK = 400  # of one process

DEFAULT_OPTIONS = {
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    "stream-node-max-bytes": "512",
    "lazyfree-lazy-expire": "yes",
    "enable-debug-command": "yes",
}


class RealServer:
    """A server in a folder of its own, which can be killed, stopped, paused and started again on the same port."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.public_port = self.port  # where others reach it
        self.url = f"redis://{HOST}:{self.port}"
        self.folder = Path(tempfile.mkdtemp(prefix="relay-test-"))
        self.is_paused = False
        self._options = DEFAULT_OPTIONS | dict(options or {})
        self._backup = self.folder / "backup"
        self._words: tuple[str, ...] = ()
        self._process: ServerProcess | None = None

    def option(self, name: str) -> str:
        return self._options[name]

    def announce(self, port: int, **options: str) -> None:
        """Lets others reach it through a proxy: before it starts."""
        self.public_port = port
        self._options |= options

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Starts on the data that is there; returns when the server answers."""
        own = {"bind": HOST, "port": str(self.port), "dir": str(self.folder)}
        process = ServerProcess(server_program(), self._options | own, self.folder / "server.log", words=self._words)
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
        self.is_paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False

    def back_up(self) -> None:
        """Copies what it has on disk, as an operator would; what was there before is forgotten."""
        with self.client() as client:
            client.execute_command("WAITAOF", 1, 0, 0)
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.copytree(self.folder / "appendonlydir", self._backup)

    def go_back(self) -> None:
        """Ends it by SIGKILL, and starts it on the backup."""
        self.kill()
        shutil.rmtree(self.folder / "appendonlydir")
        shutil.copytree(self._backup, self.folder / "appendonlydir")
        self.start()

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


def free_port() -> int:
    """A port that nobody listens on, and that no other process is given."""
    return next(port for port in _own_ports() if _is_free(port))


@cache
def _own_ports() -> Iterator[int]:
    """For ever those of this process. Between choosing a port and listening on it, another could choose it too."""
    lock = socket.socket()  # bound for as long as the process lives
    atexit.register(lock.close)
    for start in random.SystemRandom().sample(PORTS[::BLOCK], len(PORTS) // BLOCK):
        with suppress(OSError):
            lock.bind((HOST, start))
            return itertools.cycle(range(start + 1, start + BLOCK))
    raise RuntimeError("too many processes have servers of their own")


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind((HOST, port))
        return True
    return False
