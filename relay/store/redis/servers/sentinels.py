"""The master that Sentinels name. Each Sentinel is asked separately, so one that hangs delays nothing."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakSet

from redis.asyncio import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 1.0  # a Sentinel that has not answered by then is left out
REACH_TIMEOUT_S = 2.0  # and a master that a new connection does not reach by then is looked for again
ASK_EVERY_S = 0.5  # a failover is noticed this soon, or as soon as a Sentinel knows
FRESH_S = 3.0  # what a Sentinel said longer ago does not count
STILL_COUNTS_S = 5.0  # longer than Sentinels need to tell of a replica that they have made the master
_OUT = {"s_down", "o_down", "disconnected"}  # a replica with one of these flags is not promoted

Address = tuple[str, int]
MakeConnection = Callable[[Address], Connection]


@dataclass(frozen=True, slots=True)
class View:
    """What one Sentinel says."""

    master: Address
    epoch: int  # a higher one knows of a later failover
    up: frozenset[Address]  # servers that it sees up, whichever master they follow: it may promote them
    whole: frozenset[Address]  # those of them that are masters, also former ones, or linked to one
    known: int = 0  # all replicas that it knows of
    at: float = field(default_factory=time.monotonic)


class Sentinel:
    """One Sentinel, asked over a connection that is kept."""

    def __init__(self, address: Address, make_connection: MakeConnection) -> None:
        self.address = address
        self._make_connection = make_connection
        self._connection: Connection | None = None

    def __str__(self) -> str:
        return "{}:{}".format(*self.address)

    async def ask(self, name: str) -> View:
        """Raises OSError or RedisError."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._ask(name)
        except BaseException:  # whatever was on its way must not be taken for the next answer
            await self.close()
            raise

    async def _ask(self, name: str) -> View:
        if self._connection is None:
            self._connection = self._make_connection(self.address)
            await self._connection.connect()  # type: ignore[no-untyped-call]
        master, details, replicas = await say(
            self._connection,
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name),
            ("SENTINEL", "MASTER", name),
            ("SENTINEL", "REPLICAS", name),
        )
        if master is None:
            raise RedisConnectionError(f"no master is called {name!r}")
        return _view((master[0].decode(), int(master[1])), _fields(details), [_fields(replica) for replica in replicas])

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


class Sentinels:
    """The server that a set of Sentinels watches. The latest failover that any of them knows counts."""

    def __init__(
        self, name: str, addresses: list[Address], to_sentinel: MakeConnection, to_server: MakeConnection
    ) -> None:
        self._name = name
        self._sentinels = [Sentinel(address, to_sentinel) for address in addresses]
        self._to_server = to_server
        self._views: dict[Sentinel, View] = {}
        self._away: dict[Sentinel, str] = {}  # and why
        self._asking: dict[Sentinel, asyncio.Task[bool]] = {}
        self._connections: WeakSet[Connection] = WeakSet()
        self._holders: dict[Address, float] = {}  # servers that may have all that was promised -> when last seen up
        self._linked: dict[tuple[bytes, ...], float] = {}  # replicas that the master knows -> when last
        self._linked_to: Address | None = None  # that master
        self._known = 0  # replicas that a Sentinel knows of, also those that are away
        self._looked_at = self._began_at = time.monotonic()

    def __str__(self) -> str:
        return self._name

    @property
    def replicas(self) -> int:
        """Those that may be promoted: seen lately, for one that is promoted drops its connections first.

        How a Sentinel and the master call a replica may differ, so that only their numbers are compared. Time stands
        still while no Sentinel answers, as for a process that was stopped: who went meanwhile is not known."""
        since = self._looked_at - STILL_COUNTS_S
        named = sum(at > since for address, at in self._holders.items() if address != self._linked_to)
        # Who has just begun has not seen who was there a moment ago.
        unseen = self._known if self._began_at > since else 0
        return max(named, unseen, sum(at > since for at in self._linked.values()))

    def note_role(self, role: Any) -> None:
        """The master's answer to ROLE. It knows its replicas at once, a Sentinel up to ten seconds later."""
        if isinstance(role, list) and role[0] == b"master":
            now = time.monotonic()
            self._linked |= {tuple(replica[:2]): now for replica in role[2]}

    async def connect(self) -> Connection:
        """To the master, which must itself say that it is one: a Sentinel may not know yet that it was demoted."""
        connection = self._to_server(await self._master())
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            await self._note_linked(connection)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connections.add(connection)
        self._leave_others()  # the master may have changed meanwhile
        return connection

    async def watch(self) -> None:
        """Asks all Sentinels again and again, and the master; connections to what is no longer the master are cut."""
        try:
            async with asyncio.TaskGroup() as following:
                following.create_task(self._follow_master())
                for sentinel in self._sentinels:
                    following.create_task(self._follow(sentinel))
        finally:
            for task in self._asking.values():
                task.cancel()
            for sentinel in self._sentinels:
                await sentinel.close()

    async def _follow(self, sentinel: Sentinel) -> None:
        while True:
            await asyncio.wait((self._ask(sentinel),))
            await asyncio.sleep(ASK_EVERY_S)

    async def _follow_master(self) -> None:
        while True:
            with suppress(OSError, RedisError):  # whoever else uses it tells of it
                await self._ask_master()
            await asyncio.sleep(ASK_EVERY_S)

    async def _ask_master(self) -> None:
        """Also while nothing is promised: who was linked before a failover began must be known then."""
        async with asyncio.timeout(REACH_TIMEOUT_S):
            connection = await self.connect()
        try:
            while connection in self._connections:  # else it was cut
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._note_linked(connection)
                await asyncio.sleep(ASK_EVERY_S)
        finally:
            await connection.disconnect(nowait=True)

    async def _master(self) -> Address:
        """Asks all Sentinels at once and goes by what a majority knows, or all that answer."""
        waiting = {self._ask(sentinel) for sentinel in self._sentinels}
        answers = 0
        while waiting and 2 * answers <= len(self._sentinels):
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answers += sum(task.result() for task in done)
        if not self._fresh():
            why = "; ".join(f"{sentinel}: {reason}" for sentinel, reason in self._away.items())
            raise RedisConnectionError(f"no Sentinel names the master {self._name!r}: {why}")
        master = self._named()
        if master is None:
            raise RedisConnectionError(f"the Sentinels do not agree which server is the master {self._name!r}")
        return master

    def _ask(self, sentinel: Sentinel) -> "asyncio.Task[bool]":
        """The answer that is under way, or a new one. Nobody cancels it: others may wait for it too."""
        task = self._asking.get(sentinel)
        if task is None:
            task = self._asking[sentinel] = asyncio.create_task(self._keep_view(sentinel))
            task.add_done_callback(lambda _: self._asking.pop(sentinel))
        return task

    async def _keep_view(self, sentinel: Sentinel) -> bool:
        """Whether it answered."""
        try:
            view = self._views[sentinel] = await sentinel.ask(self._name)
        except (OSError, RedisError) as error:
            if sentinel not in self._away:
                log.warning("sentinel_away", extra={"sentinel": str(sentinel), "error": str(error)})
            self._away[sentinel] = str(error) or "it does not answer"
            return False
        self._away.pop(sentinel, None)
        self._note(view)
        self._leave_others()
        return True

    def _note(self, view: View) -> None:
        """Keeps who may be promoted: a server that was whole counts for as long as a Sentinel sees it up.

        Also a former master: for some ten seconds it does not follow the new one, and may be promoted again. A replica
        that comes back after an absence lacks already what was promised meanwhile, and counts when it is linked."""
        if view.at - self._looked_at > FRESH_S:
            self._began_at = view.at
        self._looked_at = view.at
        lately = {address: at for address, at in self._holders.items() if at > view.at - STILL_COUNTS_S}
        self._holders = lately | dict.fromkeys(view.whole | view.up & lately.keys(), view.at)
        self._known = max((view.known for view in self._fresh()), default=0)
        if self._linked_to != self._named():
            self._linked_to, self._linked = self._named(), {}

    async def _note_linked(self, connection: Connection) -> None:
        """Asks a server which replicas are linked to it. Raises RedisConnectionError if it is one itself."""
        (role,) = await say(connection, ("ROLE",))
        if role[0] != b"master":
            raise RedisConnectionError(f"{connection.host}:{connection.port} is a replica, not the master")
        self.note_role(role)

    def _fresh(self) -> list[View]:
        now = time.monotonic()
        return [view for view in self._views.values() if now - view.at < FRESH_S]

    def _named(self) -> Address | None:
        """The master by the latest failover. Two may have the same epoch, as a planned one asks no other Sentinel:
        then by most of those who know of it, or none."""
        views = self._fresh()
        epoch = max((view.epoch for view in views), default=0)
        named = Counter(view.master for view in views if view.epoch == epoch).most_common(2)
        return named[0][0] if named and (len(named) == 1 or named[0][1] > named[1][1]) else None

    def _leave_others(self) -> None:
        """Cuts connections to a server that is not the master any more, although it may still take writes."""
        if not self._fresh():
            return
        master = self._named()
        for connection in list(self._connections):
            if (connection.host, connection.port) != master:
                log.warning("master_changed", extra={"master": "{}:{}".format(*master) if master else "in dispute"})
                self._cut(connection)

    def _cut(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.is_connected:
            cast(Any, connection)._writer.transport.abort()


async def say(connection: Connection, *commands: tuple[str, ...]) -> list[Any]:
    """The replies to commands that go out together."""
    for command in commands:
        await connection.send_command(*command)
    return [await connection.read_response() for _ in commands]


def _fields(flat: list[bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _view(master: Address, details: dict[str, str], replicas: list[dict[str, str]]) -> View:
    """While a failover goes on, the details are the old master's, and the new one is still listed as its replica."""
    others = [replica for replica in replicas if _address(replica) != master]
    up = [server for server in (details, *others) if not _OUT & set(server["flags"].split(","))]
    return View(
        master,
        int(details["config-epoch"]),
        frozenset(map(_address, up)),
        frozenset(_address(server) for server in up if _is_whole(server)),
        len(others),
    )


def _is_whole(server: dict[str, str]) -> bool:
    return server["role-reported"] == "master" or server["master-link-status"] == "ok"


def _address(server: dict[str, str]) -> Address:
    return server["ip"], int(server["port"])
