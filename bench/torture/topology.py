"""Topologies: a single server, a Sentinel set or a Cluster, each server behind a proxy, and how each can fail."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Self

import redis

from bench.proxy import HOST, CutProxy
from bench.real_cluster import RealCluster
from bench.sentinel_set import SentinelSet
from bench.servers import RealServer

Client = Any  # redis-py cannot say what its replies are: that depends on how it was made
ALWAYS = {"appendfsync": "always"}  # with a single server: what is accepted must outlive a kill


class Topology(ABC):
    """Servers that hold the data, and a url by which the relay finds them through the proxies."""

    durability = "replica"

    def __init__(self, servers: list[RealServer]) -> None:
        self.servers = servers
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
    async def fault(self, kind: str, number: int) -> Callable[[], None]:
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
        for port in ports:
            if port not in self._clients:
                self._clients[port] = redis.Redis(host=HOST, port=port, decode_responses=True, socket_timeout=5)
        return [self._clients[port] for port in ports]

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

    durability = "fsync"

    def __init__(self) -> None:
        self._server = RealServer(ALWAYS)
        super().__init__([self._server])

    @property
    def url(self) -> str:
        return self.proxies[0].url

    def masters(self) -> list[RealServer]:
        return [self._server] if self._server.is_running and not self._server.is_paused else []

    async def fault(self, kind: str, number: int) -> Callable[[], None]:  # noqa: ARG002 - there is one
        assert kind in ("kill server", "stop server"), kind
        if kind == "kill server":
            await asyncio.to_thread(self._server.kill)
            return self._server.start
        self._server.pause()
        return self._server.resume

    def _announcement(self, port: int) -> dict[str, str]:  # noqa: ARG002 - nobody asks it where it is
        return {}

    def _start(self) -> None:
        self._server.__enter__()

    def _end(self) -> None:
        self._server.__exit__(None, None, None)


class Sentinel(Topology):
    """A master with two replicas, and three Sentinels that nobody stands before."""

    def __init__(self) -> None:
        self._set = SentinelSet()
        super().__init__(self._set.servers)

    @property
    def url(self) -> str:
        return self._set.url

    def masters(self) -> list[RealServer]:
        return [self._set.master]

    async def fault(self, kind: str, number: int) -> Callable[[], None]:
        if kind == "planned failover":
            await asyncio.to_thread(self._fail_over)
            return self._set.wait_until_whole
        if kind.endswith("sentinel"):
            return await self._break(self._set.sentinels[number % 3], kind)
        master = await asyncio.to_thread(lambda: self._set.master)
        others = [server for server in self.servers if server is not master and server.is_running]
        return await self._break(others[number % len(others)] if kind == "kill replica" else master, kind)

    async def _break(self, server: RealServer, kind: str) -> Callable[[], None]:
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

    def __init__(self) -> None:
        self._cluster = RealCluster(replicas=1)
        super().__init__(self._cluster.servers)

    @property
    def url(self) -> str:
        return self._cluster.url

    def masters(self) -> list[RealServer]:
        return self._cluster.masters()

    async def fault(self, kind: str, number: int) -> Callable[[], None]:
        return await asyncio.to_thread(self._fault, kind, number)

    def _fault(self, kind: str, number: int) -> Callable[[], None]:
        masters = self._cluster.masters()
        master = masters[number % len(masters)]
        replica = self._cluster.replica_of(master)
        if kind == "move a shard":
            self._cluster.move(_slot_of_shard(master, number), masters[(number // 7) % len(masters)])
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

    def heal(self) -> None:
        super().heal()
        self._cluster.wait_until_whole()

    def _start(self) -> None:
        self._cluster.__enter__()

    def _end(self) -> None:
        self._cluster.__exit__(None, None, None)


def _slot_of_shard(server: RealServer, number: int) -> int:
    with server.client() as client:
        return int(client.execute_command("CLUSTER KEYSLOT", f"{{s{number % SHARDS:02d}}}"))


SHARDS = 8
MAKERS: dict[str, Callable[[], Topology]] = {"single": Single, "sentinel": Sentinel, "cluster": Cluster}
