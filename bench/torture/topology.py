"""Topologies: a single server, a Sentinel set or a Cluster, each server behind a proxy, and how each can fail."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self

import redis
from redis.crc import key_slot

from bench.proxy import HOST, CutProxy
from bench.real_cluster import RealCluster
from bench.sentinel_set import SentinelSet
from bench.servers import RealServer
from bench.torture.forks import Sample, Undoing, Undone, undoings
from bench.torture.variants import Variant

Mend = Callable[[], None]  # blocks
REPLACED_WITHIN_S = 20.0
POLL_S = 0.05
Client = Any  # redis-py cannot say what its replies are: that depends on how it was made
ALWAYS = {"appendfsync": "always"}  # with a single server: what is accepted must outlive a kill


class Topology(ABC):
    """Servers that hold the data, and a url by which the relay finds them through the proxies."""

    durability = "replica"

    def __init__(self, servers: list[RealServer], variant: Variant) -> None:
        self.servers = servers
        self.shards = variant.shards
        if variant.goes_back:
            self.durability = "memory"  # else nothing is promised that a stale replica does not have
        self._samples: list[Sample] = []
        self.proxies: list[CutProxy] = []
        self._stack = AsyncExitStack()
        self._clients: dict[int, Client] = {}  # by port

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def masters(self) -> list[RealServer]:
        """Those that have the data now."""

    @abstractmethod
    async def fault(self, kind: str, number: int) -> Mend:
        """Breaks a server in a way that this topology has. Returns what mends it, which blocks."""

    async def __aenter__(self) -> Self:
        for server in self.servers:
            proxy = await self._stack.enter_async_context(CutProxy(server.port))
            self.proxies.append(proxy)
            server.announce(proxy.port, **self._announcement(proxy.port))
        try:
            await asyncio.to_thread(self._start)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        await asyncio.to_thread(self._end)
        await self._stack.aclose()

    def _announcement(self, port: int) -> dict[str, str]:
        return {"replica-announce-ip": HOST, "replica-announce-port": str(port)}

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...

    def _fails_over_stale(self, master: RealServer, is_replaced: Callable[[], bool]) -> Mend:
        """From now on replicas hear nothing of their master, and it believes that they do. Mending makes one of them
        its successor."""
        proxy, loop = self.proxies[self.servers.index(master)], asyncio.get_running_loop()
        links = [link for link in proxy.links.values() if link.is_replica]
        for link in links:
            link.hold_replies = True

        def mend() -> None:
            master.kill()
            for link in links:
                loop.call_soon_threadsafe(link.cut)
            deadline = time.monotonic() + REPLACED_WITHIN_S
            while not is_replaced() and time.monotonic() < deadline:
                time.sleep(POLL_S)
            master.start()

        return mend

    def heal(self) -> None:
        """Waits until everything is as it was: blocks."""
        for server in self.servers:
            if server.is_paused:
                server.resume()
            if not server.is_running:
                server.start()

    def clients(self) -> list[Client]:
        """One for each server that has data, past the proxies."""
        try:
            ports = [server.port for server in self.masters()]
        except (redis.RedisError, StopIteration):  # nobody can tell just now
            return []
        return [self._client(port) for port in ports]

    def _client(self, port: int) -> Client:
        if port not in self._clients:
            self._clients[port] = redis.Redis(host=HOST, port=port, decode_responses=True, socket_timeout=5)
        return self._clients[port]

    def observe(self) -> None:
        """Notes what each server that answers says of its replication now."""
        for server in self.servers:
            if not server.is_paused:
                with suppress(redis.RedisError):
                    self._samples.append(self._sample(server))

    def undone(self) -> Undone:
        """Which writes are gone, as far as it was observed."""
        return Undone(undoings(self._samples, breaks_promises=self.durability == "memory"), self.shards)

    def _sample(self, server: RealServer) -> Sample:
        if not server.is_running:
            return Sample(time.monotonic(), server.port)
        at, told = time.monotonic(), self._client(server.port).info("replication")
        return Sample(
            *(at, server.port, told["role"] == "master", told["master_replid"], told["master_repl_offset"]),
            *(told["master_replid2"], told["second_repl_offset"], self._shards_of(server)),
        )

    def _shards_of(self, server: RealServer) -> frozenset[int]:  # noqa: ARG002 - unless they are distributed
        return frozenset(range(self.shards))

    def each_master(self, do: Callable[[Client], object]) -> None:
        """Does something on every server that has data, if it answers."""
        for client in self.clients():
            try:
                do(client)
            except redis.RedisError:
                continue  # it is broken in another way just now

    def each_server(self, do: Callable[[Client], object]) -> None:
        """The same on every server that answers, whatever it is just now."""
        for server in self.servers:
            with redis.Redis(host=HOST, port=server.port, socket_timeout=5) as client, suppress(redis.RedisError):
                do(client)


class Single(Topology):
    """One server, which keeps its data when it is killed."""

    def __init__(self, variant: Variant) -> None:
        self._server = RealServer(ALWAYS)
        super().__init__([self._server], variant)
        self.durability = "fsync"
        self._undoings: list[Undoing] = []

    @property
    def url(self) -> str:
        return self.proxies[0].url

    def masters(self) -> list[RealServer]:
        return [self._server] if self._server.is_running and not self._server.is_paused else []

    async def fault(self, kind: str, number: int) -> Mend:  # noqa: ARG002 - there is one
        match kind:
            case "kill server":
                await asyncio.to_thread(self._server.kill)
                return self._server.start
            case "stop server":
                self._server.pause()
                return self._server.resume
        end = {"cut log": self._server.kill, "restore backup": self._server.stop}[kind]
        return self._goes_back(end, time.monotonic(), await asyncio.to_thread(self._files))

    def _files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (self._server.folder / "appendonlydir").iterdir()}

    def _goes_back(self, end: Mend, began: float, past: dict[Path, bytes]) -> Mend:
        """When it is mended, the server ends, and begins again with what was on its disk then."""

        def mend() -> None:
            end()
            ended = time.monotonic()
            for path in self._files():
                path.unlink()
            for path, content in past.items():
                path.write_bytes(content)
            self._server.start()
            shards = frozenset(range(self.shards))
            self._undoings.append(Undoing(shards, began, ended, time.monotonic(), breaks_promises=True))

        return mend

    def observe(self) -> None:
        """Nobody else has its history, and it writes to disk what it has done before it says so."""

    def undone(self) -> Undone:
        return Undone(self._undoings, self.shards)

    def _announcement(self, port: int) -> dict[str, str]:  # noqa: ARG002 - nobody asks it where it is
        return {}

    def _start(self) -> None:
        self._server.__enter__()

    def _end(self) -> None:
        self._server.__exit__(None, None, None)


class Sentinel(Topology):
    """A master with two replicas, and three Sentinels that nobody stands before."""

    def __init__(self, variant: Variant) -> None:
        self._set = SentinelSet()
        super().__init__(self._set.servers, variant)

    @property
    def url(self) -> str:
        return self._set.url

    def masters(self) -> list[RealServer]:
        return [self._set.master]

    async def fault(self, kind: str, number: int) -> Mend:
        if kind == "planned failover":
            await asyncio.to_thread(self._fail_over)
            return self._set.wait_until_whole
        if kind.endswith("sentinel"):
            return await self._break(self._set.sentinels[number % 3], kind)
        master = await asyncio.to_thread(lambda: self._set.master)
        if kind == "stale failover":
            return self._fails_over_stale(master, lambda: self._set.master is not master)
        others = [server for server in self.servers if server is not master and server.is_running]
        return await self._break(others[number % len(others)] if kind == "kill replica" else master, kind)

    async def _break(self, server: RealServer, kind: str) -> Mend:
        if kind.startswith("kill"):
            await asyncio.to_thread(server.kill)
            mend = server.start
        else:
            server.pause()
            mend = server.resume
        return mend

    def _fail_over(self) -> None:
        try:
            self._set.fail_over()
        except redis.ResponseError:  # no replica is good enough just now, or it is under way
            return

    def heal(self) -> None:
        super().heal()
        for sentinel in self._set.sentinels:
            if sentinel.is_paused:
                sentinel.resume()
            if not sentinel.is_running:
                sentinel.start()
        self._set.wait_until_whole()

    def _start(self) -> None:
        self._set.__enter__()

    def _end(self) -> None:
        self._set.__exit__(None, None, None)


class Cluster(Topology):
    """Three masters with a replica each. The bus is not behind the proxies: what they break is broken for clients."""

    def __init__(self, variant: Variant) -> None:
        self._cluster = RealCluster(replicas=1)
        super().__init__(self._cluster.servers, variant)

    @property
    def url(self) -> str:
        return self._cluster.url

    def masters(self) -> list[RealServer]:
        return self._cluster.masters()

    async def fault(self, kind: str, number: int) -> Mend:
        if kind == "stale failover":
            masters = await asyncio.to_thread(self._cluster.masters)
            master = masters[number % len(masters)]
            return self._fails_over_stale(master, lambda: len(self._cluster.masters()) == len(masters))
        return await asyncio.to_thread(self._fault, kind, number)

    def _fault(self, kind: str, number: int) -> Mend:
        masters = self._cluster.masters()
        master = masters[number % len(masters)]
        replica = self._cluster.replica_of(master)
        if kind == "move a shard":
            self._cluster.move(_slot(number % self.shards), masters[(number // 7) % len(masters)])
            return self._cluster.wait_until_whole
        if kind == "planned failover" and replica is not None:
            with replica.client() as client:
                client.execute_command("CLUSTER FAILOVER")
            return self._cluster.wait_until_whole
        if replica is None:  # nobody could take over
            return self._cluster.wait_until_whole
        if kind == "stop master":
            master.pause()
            return master.resume
        broken = replica if kind == "kill replica" else master
        broken.kill()
        return broken.start

    def _announcement(self, port: int) -> dict[str, str]:
        return {"cluster-announce-port": str(port), "cluster-announce-ip": HOST}

    def _shards_of(self, server: RealServer) -> frozenset[int]:
        served = self._cluster.slots_of(server)
        return frozenset(shard for shard in range(self.shards) if any(_slot(shard) in slots for slots in served))

    def heal(self) -> None:
        super().heal()
        self._cluster.wait_until_whole()

    def _start(self) -> None:
        self._cluster.__enter__()

    def _end(self) -> None:
        self._cluster.__exit__(None, None, None)


def _slot(shard: int) -> int:
    return key_slot(b"{s%02d}" % shard)


MAKERS: dict[str, Callable[[Variant], Topology]] = {"single": Single, "sentinel": Sentinel, "cluster": Cluster}
