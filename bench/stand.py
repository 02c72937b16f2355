"""The test stand: a server and instances of their own, and how much processor time each has used."""

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from relay.cli.up.embedded import embedded_server, load_or_create_secret
from relay.cli.up.lifeline import Child
from relay.settings import Settings

_SERVING = re.compile(r"url=http://[^:]+:(\d+)")
POLL_S = 0.01
MAILBOX_MAX = 100_000
RATE = "10000000"  # the rate limit is there and asked, and is not what is measured


@dataclass(frozen=True, slots=True)
class Stand:
    """What runs: the store's url, the instances' ports, and everybody's process ids."""

    settings: Settings
    url: str
    ports: list[int]
    server_pid: int
    instance_pids: list[int]
    environ: dict[str, str]  # what the instances were started with

    def cpu_s(self) -> tuple[float, float]:
        """Processor seconds so far: instances, server."""
        return sum(map(cpu_seconds, self.instance_pids)), cpu_seconds(self.server_pid)


def resident_bytes(pid: int) -> int:
    """Memory of a process; 0 where the machine does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1_024 for line in status.splitlines() if line.startswith("VmRSS")), 0)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 where the machine does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def stand(
    instances: int = 2, module: str = "relay.cli", *, fsync: str = "always", program: str = "", **chosen: str
) -> Iterator[Stand]:
    """An embedded server in a temporary folder, and instances of `module` on it.

    `chosen` are settings that count for more than those for measuring; an empty one leaves the relay's default.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-bench-")))
        server = stack.enter_context(embedded_server(folder, "relay bench", program))
        redis.Redis.from_url(server.url).config_set("appendfsync", fsync)
        settings = measuring(folder)
        environ = environment(settings, server.url, **chosen)
        children = [stack.enter_context(instance(module, environ)) for _ in range(instances)]
        ports = [port for _, port in children]
        pids = [child.pid for child, _ in children]
        yield Stand(settings, server.url, ports, server.pid, pids, environ)


def measuring(folder: Path) -> Settings:
    """Settings that let a load through."""
    return Settings(
        data_dir=folder,
        token_secret=load_or_create_secret(folder),
        mailbox_max_messages=MAILBOX_MAX,
        sender_max_mailboxes=MAILBOX_MAX,
        open_tenants=("*",),
    )


def environment(settings: Settings, url: str, **chosen: str) -> dict[str, str]:
    """The same for a process, with `chosen` on top."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")} | {
        "RELAY_REDIS_URL": url,
        "RELAY_TOKEN_SECRET": str(settings.token_secret),
        "RELAY_DATA_DIR": str(settings.data_dir),
        "RELAY_OPEN_TENANTS": "*",
        "RELAY_RATE_PER_S": RATE,
        "RELAY_RATE_BURST": RATE,
        "RELAY_MAILBOX_MAX_MESSAGES": str(MAILBOX_MAX),
        "RELAY_LOG_FORMAT": "text",
    }
    return environ | {f"RELAY_{name.upper()}": value for name, value in chosen.items()}


@contextmanager
def instance(module: str, environ: dict[str, str]) -> Iterator[tuple[Child, int]]:
    command = [sys.executable, "-m", module, "serve", "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:
        child = Child(command, env=environ, stderr=log)
        try:
            yield child, _port(child, log.fileno())
        finally:
            child.terminate()
            child.communicate(timeout=40)


def _port(child: Child, log: int) -> int:
    while child.poll() is None:
        match = _SERVING.search(os.pread(log, 65_536, 0).decode())
        if match:
            return int(match[1])
        time.sleep(POLL_S)  # the instance needs the core more
    raise RuntimeError(f"an instance did not start:\n{os.pread(log, 65_536, 0).decode()}")
