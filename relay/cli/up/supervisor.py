"""`relay up`: the embedded server, instances and workers, kept running until Ctrl-C."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp

from relay.cli.up.embedded import Embedded, embedded_server
from relay.cli.up.lifeline import STOP_S, lifeline, with_lifeline
from relay.errors import ConfigurationError, cannot_listen
from relay.server.open_files import raise_limit
from relay.settings import Settings, env_name

READY_WITHIN_S = 30.0
RESTART_AFTER_S = 1.0
WATCH_S = 0.5


@dataclass(frozen=True, slots=True)
class Program:
    """One child process: its name, and its arguments after `relay`."""

    name: str
    words: tuple[str, ...]


class Supervisor:
    """Restarts child processes that die, and stops them when it stops."""

    def __init__(self, programs: list[Program], environ: dict[str, str], stop_s: float) -> None:
        self._programs = programs
        self._stop_s = stop_s  # for a child that outlives us to end
        self._environ = environ
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, ready: Callable[[], None], urls: list[str], server: "RestartingServer | None") -> None:
        """Runs until stop(). `ready` is called once every url answers that it is. Raises when one does not in time."""
        keepers = [asyncio.create_task(self._keep(program)) for program in self._programs]
        others = {asyncio.create_task(_when_ready(urls, ready))}
        if server is not None:
            others.add(asyncio.create_task(server.keep_alive()))
        stopped = asyncio.create_task(self._stopping.wait())
        running: set[asyncio.Task[Any]] = {stopped, *others}
        while not stopped.done() and not any(task.done() and task.exception() for task in others):
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        for task in (stopped, *others):
            task.cancel()
        await asyncio.gather(*keepers)
        for result in await asyncio.gather(*others, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _keep(self, program: Program) -> None:
        while not self._stopping.is_set():
            code = await self._run(program)
            if not self._stopping.is_set():
                print(f"{program.name} ended with code {code}; starting it again", file=sys.stderr)  # noqa: T201
                await asyncio.sleep(RESTART_AFTER_S)

    async def _run(self, program: Program) -> int:
        command = with_lifeline([sys.executable, "-m", "relay.cli", *program.words], self._stop_s)
        with lifeline() as end:  # not asyncio's pipe: it waits for whoever has the other end, not only for the child
            child = await asyncio.create_subprocess_exec(*command, stdin=end, env=self._environ, start_new_session=True)
            gone = asyncio.create_task(child.wait())
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait({gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not gone.done():
                child.send_signal(signal.SIGTERM)
            return await gone


class RestartingServer:
    """The embedded server, started again when it dies; its address stays the same."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = contextlib.ExitStack()
        self._server = self._start()
        self.url = self._server.url

    def _start(self) -> Embedded:
        return self._stack.enter_context(embedded_server(self._settings.data_dir, "relay up"))

    async def keep_alive(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            if not self._server.is_alive():
                print("the embedded server has died; starting it again", file=sys.stderr)  # noqa: T201
                self._stack.close()
                self._server = await asyncio.to_thread(self._start)

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def restarting_server(settings: Settings) -> Iterator[RestartingServer | None]:
    """The embedded server, or None when the settings name another one."""
    if settings.redis_url is not None:
        yield None
        return
    server = RestartingServer(settings)
    try:
        yield server
    finally:
        server.close()


async def up(settings: Settings, instances: int, announce: Callable[[list[str]], None]) -> None:
    """Starts everything, says so when it is ready, and keeps it running until SIGINT or SIGTERM."""
    raise_limit(settings)  # for the children too
    urls = [f"http://{settings.host}:{settings.port + n}" for n in range(instances)]
    for n in range(instances):
        _check_free(settings.host, settings.port + n)
    with restarting_server(settings) as server:
        url = server.url if server else settings.redis_url
        assert url is not None
        assert settings.token_secret is not None
        environ = {
            **os.environ,
            env_name("redis_url"): url,
            env_name("token_secret"): settings.token_secret,
            env_name("data_dir"): str(settings.data_dir),
            env_name("open_tenants"): ",".join(settings.open_tenants),
        }
        programs = [
            Program(f"instance {n + 1}", ("serve", "--host", settings.host, "--port", str(settings.port + n)))
            for n in range(instances)
        ]
        programs.append(Program("workers", ("workers",)))
        supervisor = Supervisor(programs, environ, settings.drain_s + STOP_S)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
        await supervisor.run(lambda: announce(urls), urls, server)


def _check_free(host: str, port: int) -> None:
    """Raises ConfigurationError if somebody listens there already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise cannot_listen(host, port, error) from None


async def _when_ready(urls: list[str], ready: Callable[[], None]) -> None:
    give_up_at = time.monotonic() + READY_WITHIN_S
    async with aiohttp.ClientSession() as http:
        for url in urls:
            while reason := await _not_ready(http, url):
                if time.monotonic() > give_up_at:
                    raise ConfigurationError(f"{url} is not ready after {READY_WITHIN_S:.0f} s: {reason}")
                await asyncio.sleep(0.1)
    ready()


async def _not_ready(http: aiohttp.ClientSession, url: str) -> str:
    """Why an instance is not ready, in its own words; nothing if it is."""
    try:
        async with http.get(f"{url}/readyz") as answer:
            return "" if answer.status == 200 else str((await answer.json())["reason"])
    except aiohttp.ClientError:
        return "it does not answer"
