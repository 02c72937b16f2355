"""A master with replicas, watched by real Sentinels."""

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from bench.servers import HOST, RealServer

READY_S = 120.0  # on a busy machine Sentinels notice that their clock jumped, and do nothing for 30 s
AGREE_S = 20.0  # by then Sentinels that can agree do so
FAILOVER_TIMEOUT_MS = 6_000
INFO_PERIOD_MS, PUBLISH_PERIOD_MS = 10_000, 2_000  # the Sentinels' own
HURRIED_MS = 200
HURRIED_PUBLISH_MS = 1_000  # four of these must be longer than news takes on a busy machine, or a new master is demoted
MASTER = "main"  # its name among Sentinels
POLL_S = 0.02


class RealSentinel(RealServer):
    """Watches the master `main`, together with others. What it learns it writes into its own file."""

    def __init__(self, master: RealServer, down_after_ms: int) -> None:
        super().__init__()
        self._options = {}
        self._file = self.folder / "sentinel.conf"
        self._words = (str(self._file), "--sentinel")
        self._master = master
        self._down_after_ms = down_after_ms

    def start(self) -> None:
        if not self._file.exists():
            self._file.write_text("\n".join(self._first_lines()) + "\n")
        super().start()

    def _first_lines(self) -> list[str]:
        first = f"sentinel monitor {MASTER} {HOST} {self._master.public_port} 2"
        return [first, *(f"sentinel {name} {MASTER} {value}" for name, value in self._settings().items())]

    def _settings(self) -> dict[str, int]:
        return {
            "down-after-milliseconds": self._down_after_ms,
            "failover-timeout": FAILOVER_TIMEOUT_MS,
            "parallel-syncs": 2,
        }

    def named(self) -> int:
        """The port of the server that it takes for the master."""
        with self.client() as client:
            return int(client.sentinel_get_master_addr_by_name(MASTER)[1])

    def watch_anew(self, port: int) -> None:
        with self.client() as client:
            client.execute_command("SENTINEL", "REMOVE", MASTER)
            client.execute_command("SENTINEL", "MONITOR", MASTER, HOST, port, 2)
            for name, value in self._settings().items():
                client.execute_command("SENTINEL", "SET", MASTER, name, value)


class SentinelSet:
    """A master with two replicas, watched by three Sentinels."""

    def __init__(self, options: Mapping[str, str] | None = None, down_after_ms: int = 1_000) -> None:
        own = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"} | dict(options or {})
        self.servers = [RealServer(own) for _ in range(3)]
        self.sentinels = [RealSentinel(self.servers[0], down_after_ms) for _ in range(3)]
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{MASTER}"

    @property
    def master(self) -> RealServer:
        """The one that the Sentinels name."""
        with self._sentinel().client() as client:
            _, port = client.sentinel_get_master_addr_by_name(MASTER)
        return next(server for server in self.servers if server.public_port == port)

    def fail_over(self) -> None:
        """A planned one: makes another server the master, while the old one runs."""
        with self._sentinel().client() as client:
            client.execute_command("SENTINEL", "FAILOVER", MASTER)

    def wait_until_whole(self) -> None:
        """Until every replica that runs is linked to the master, and every Sentinel that runs knows it."""
        began, is_settled = time.monotonic(), False
        self._hurry(HURRIED_MS, HURRIED_PUBLISH_MS)
        while not all(self._sees_all(sentinel) for sentinel in self.sentinels if sentinel.is_running):
            assert time.monotonic() < began + READY_S, "the servers did not come together"
            if time.monotonic() > began + AGREE_S and not is_settled:
                self._settle_dispute()
                is_settled = True
            time.sleep(POLL_S)
        self._hurry(INFO_PERIOD_MS, PUBLISH_PERIOD_MS)

    def _settle_dispute(self) -> None:
        """A planned failover asks no other Sentinel: two may get the same epoch. Then they disagree for ever."""
        named = {sentinel: sentinel.named() for sentinel in self.sentinels if sentinel.is_running}
        ((master, _),) = Counter(named.values()).most_common(1)
        for sentinel, port in named.items():
            if port != master:
                sentinel.watch_anew(master)
        self._hurry(HURRIED_MS, HURRIED_PUBLISH_MS)

    def _hurry(self, info_ms: int, publish_ms: int) -> None:
        """How often the Sentinels look at the servers and tell each other: what they did not see they cannot mend."""
        for sentinel in self.sentinels:
            if sentinel.is_running:
                with sentinel.client() as client:
                    client.execute_command("SENTINEL", "DEBUG", "info-period", info_ms, "publish-period", publish_ms)

    def _sees_all(self, sentinel: RealServer) -> bool:
        with sentinel.client() as client:
            state, replicas = client.sentinel_master(MASTER), client.sentinel_slaves(MASTER)
        linked = [one for one in replicas if one["flags"] == "slave" and one["master-link-status"] == "ok"]
        running = sum(server.is_running for server in self.servers)
        others = sum(one.is_running for one in self.sentinels) - 1
        return len(linked) == running - 1 and state["flags"] == "master" and state["num-other-sentinels"] >= others

    def _sentinel(self) -> RealServer:
        return next(sentinel for sentinel in self.sentinels if sentinel.is_running and not sentinel.is_paused)

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for server in self.servers:
                started.enter_context(server)
            for replica in self.servers[1:]:
                with replica.client() as client:
                    client.replicaof(HOST, self.servers[0].public_port)
            for sentinel in self.sentinels:
                started.enter_context(sentinel)
            self.wait_until_whole()
            self._started = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()
