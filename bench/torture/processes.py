"""Instances and workers as processes that are killed, stopped and started again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import aiohttp

from bench.stand import resident_bytes
from relay.cli.up.lifeline import Child

READY_WITHIN_S = 60.0
ENDS_WITHIN_S = 40.0
POLL_S = 0.05
SHARED_MEMORY = Path("/dev/shm")
ERRORS = ("error", "critical")  # levels of lines that somebody must look at
CLOCK_OFF_S = 5.0  # how far a clock is set wrong, one way or the other


class RelayProcess:
    """`relay WORDS`: it ends with the torture, however that ends."""

    program = "relay.cli"

    def __init__(self, name: str, words: tuple[str, ...], environ: Mapping[str, str], folder: Path, code: Path) -> None:
        self.name = name
        self.is_stopped = False
        self._words = words
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        self._environ = inherited | {"RELAY_LOG_FORMAT": "json", "PYTHONPATH": str(code), **environ}
        self._folder = folder
        self._log = folder / f"{name.replace(' ', '-')}.log"
        self._process: Child | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, **environ: str) -> None:
        with self._log.open("ab") as log:
            self._process = Child(
                [sys.executable, "-m", self.program, *self._words],
                env=self._environ | environ,
                cwd=self._folder,  # not the checkout: a mutation must not find the real code
                stdout=log,
                stderr=log,
            )
        self.is_stopped = False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._wait()

    def stop(self) -> None:
        """As on a machine that hangs: connections stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_stopped = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_stopped = False

    def terminate(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def end(self) -> bool:
        """In good order; by force if that takes too long. Says which."""
        if not self.is_running:
            return True
        if self.is_stopped:
            self.resume()
        self.terminate()
        try:
            self._wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def _wait(self, within_s: float | None = None) -> None:
        assert self._process is not None
        self._process.wait(within_s)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it has said in good order."""
        with self._log.open(errors="replace") as log:
            for line in log:
                with suppress(ValueError):
                    yield json.loads(line)

    def complaints(self, allowed: Container[str] = ()) -> Iterator[str]:
        """What must not be in a log, whatever happens."""
        with self._log.open(errors="replace") as log:
            yield from _complaints(log, allowed)

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]


def _complaints(log: IO[str], allowed: Container[str]) -> Iterator[str]:
    for line in log:
        try:
            told = json.loads(line)
        except ValueError:
            yield line.rstrip()
            continue
        if "exception" in told:
            yield f"{told['event']}: {told['exception']}"
        elif told.get("level") in ERRORS and told["event"] not in allowed:
            yield line.rstrip()


def faketime() -> Path | None:
    """libfaketime, where the machine has it: only with it can the clock of a process be set."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


class Instance(RelayProcess):
    """`relay serve` on a port that stays the same, and with a clock of its own where that can be had."""

    def __init__(self, number: int, port: int, environ: Mapping[str, str], folder: Path, code: Path) -> None:
        self._clock = folder / f"clock-{number}"
        super().__init__(
            f"instance {number}", ("serve", "--port", str(port)), {**environ, **self._faked()}, folder, code
        )
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.fresh_bytes = 0  # its memory when it had just started

    @property
    def has_clock(self) -> bool:
        return self._clock.exists()

    def set_clock(self, off_s: float) -> None:
        """By so much wrong; timers run on."""
        self._clock.write_text(f"{off_s:+.1f}")

    def _faked(self) -> dict[str, str]:
        library = faketime()
        if library is None:
            return {}
        self.set_clock(0)
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def _wait(self, within_s: float | None = None) -> None:
        """libfaketime removes its shared memory only in a process that ends in good order."""
        super()._wait(within_s)
        for name in (f"faketime_shm_{self.pid}", f"sem.faketime_sem_{self.pid}"):
            (SHARED_MEMORY / name).unlink(missing_ok=True)

    async def ready(self, http: aiohttp.ClientSession) -> None:
        """Returns when /readyz says so. Raises TimeoutError."""
        deadline = time.monotonic() + READY_WITHIN_S
        while not await self._is_ready(http):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} is not ready after {READY_WITHIN_S:.0f} s:\n{self.tail()}")
            await asyncio.sleep(POLL_S)
        self.fresh_bytes = self.fresh_bytes or resident_bytes(self.pid)

    async def _is_ready(self, http: aiohttp.ClientSession) -> bool:
        try:
            async with http.get(f"{self.url}/readyz", timeout=aiohttp.ClientTimeout(2)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


class Workers(RelayProcess):
    """`relay workers`."""

    def __init__(self, number: int, environ: Mapping[str, str], folder: Path, code: Path) -> None:
        super().__init__(f"workers {number}", ("workers",), environ, folder, code)
