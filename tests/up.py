"""`relay up` for tests: everything on this machine, in a folder of its own."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.cli.up.lifeline import Child
from tests.servers import free_port

WITHIN_S = 300.0


def environ(**settings: str) -> dict[str, str]:
    """The environment without settings of whoever runs the tests, and with these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    return inherited | {f"RELAY_{name.upper()}": value for name, value in settings.items()}


class Up:
    """`relay up` on a folder of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.port = free_port()
        self.urls = [f"http://127.0.0.1:{self.port + n}" for n in range(2)]
        self.folder = folder
        self._told = folder.with_suffix(".err")
        with self._told.open("wb") as told:
            self.process = Child(
                [sys.executable, "-m", "relay.cli", "up", "--port", str(self.port), "--data", str(folder), *words],
                stderr=told,
                stdout=told,
                env=environ(shards="4", heartbeat_s="2"),
            )

    def told(self) -> str:
        return self._told.read_text()

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + WITHIN_S
        while "The relay is up" not in self.told():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(WITHIN_S)


@contextmanager
def up(folder: Path, *words: str) -> Iterator[Up]:
    running = Up(folder, *words)
    try:
        running.wait_until_up()
        yield running
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGTERM)
