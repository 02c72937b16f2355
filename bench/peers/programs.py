"""A peer's server program: started in a folder of its own, counted with all it starts, and ended."""

import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.servers import HOST
from bench.stand import cpu_seconds, resident_bytes
from relay.cli.up.embedded import ServerProcess

READY_WITHIN_S = 60.0
POLL_S = 0.05


class Processes:
    """The sessions that these processes lead: what all their members cost."""

    def __init__(self, leaders: Sequence[int]) -> None:
        self._leaders = set(leaders)

    def cpu_s(self) -> float:
        return sum(map(cpu_seconds, self._members()))

    def resident_bytes(self) -> int:
        return sum(map(resident_bytes, self._members()))

    def _members(self) -> list[int]:
        numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in numbers if _session(pid) in self._leaders]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


@contextmanager
def server_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="relay-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def running(program: str, words: Sequence[str], folder: Path, port: int) -> Iterator[ServerProcess]:
    """The program while it listens on the port. It ends with this process, however that ends."""
    log = folder / "server.log"
    process = ServerProcess(program, {}, log, words=words)
    try:
        _wait_until_it_listens(process, port, log)
        yield process
    finally:
        process.kill()


def _wait_until_it_listens(process: ServerProcess, port: int, log: Path) -> None:
    give_up = time.monotonic() + READY_WITHIN_S
    while not _listens(port):
        if not process.is_alive() or time.monotonic() > give_up:
            raise ConnectionError(f"{process.program} did not start:\n{log.read_text(errors='replace')[-2_000:]}")
        time.sleep(POLL_S)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
