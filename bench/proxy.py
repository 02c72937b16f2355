"""A TCP proxy that cuts, refuses, delays, holds or swallows, to show a client the failures of a network."""

import asyncio
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
PUBLISHED = (
    b"*3\r\n$7\r\nmessage\r\n",
    b"*3\r\n$8\r\nsmessage\r\n",
    b">3\r\n$7\r\nmessage\r\n",
    b">3\r\n$8\r\nsmessage\r\n",
)


class Link:
    """One connection through the proxy, which may fare worse than the others."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.hold_requests = False  # what the client says waits here
        self.hold_replies = False  # what it is told waits here, as for one that does not read
        self.is_subscribed = False  # to what a Redis server publishes
        self.is_replica = False  # a Redis server that follows
        self.writers = [client]  # of both ends

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class CutProxy:
    """Stands between clients and a server on this machine, on a port of its own that stays the same."""

    def __init__(self, target_port: int) -> None:
        self.port = 0  # known once it listens
        self.delay_s = 0.0  # each piece of an answer waits for this long
        self.hold_requests = False  # requests wait here, and are passed on, late, when this ends or the client is gone
        self.hold_from = b""  # from the request on that has this in it, they wait
        self.hold_replies = False  # answers wait here
        self.swallow_replies = False  # requests arrive, their answers never do
        self.swallow_from = b""  # from the request on that has this in it, their answers never do
        self.lose_published = False  # what a Redis server publishes never arrives; everything else does
        self.links: dict[int, Link] = {}  # open connections, by the port of the client's end
        self._target_port = target_port
        self._listener: asyncio.Server | None = None  # none while it refuses
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def cut(self) -> None:
        """Drops every open connection at once; new ones are served."""
        for link in list(self.links.values()):
            link.cut()

    async def accept(self) -> None:
        """Serves new connections (again)."""
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, HOST, self.port)
            self.port = self._listener.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuses new connections; open ones live on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self.hold_requests = self.hold_replies = False
        self.cut()
        await asyncio.gather(*self._connections)

    async def _serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        port = client_writer.get_extra_info("peername")[1]
        link = self.links[port] = Link(client_writer)
        try:
            await self._join(link, client_reader, client_writer)
        finally:
            self._connections.discard(connection)
            del self.links[port]
            client_writer.transport.abort()

    async def _join(self, link: Link, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            return  # the client sees its connection end, as when the server is down
        link.writers.append(server_writer)
        requests = asyncio.create_task(self._pass_requests(link, client_reader, server_writer))
        replies = asyncio.create_task(self._pass_replies(link, server_reader, client_writer))
        try:
            await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server_writer.transport.abort()
            requests.cancel()
            replies.cancel()
            await asyncio.gather(requests, replies, return_exceptions=True)

    async def _pass_requests(self, link: Link, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while data := await client.read(65_536):
            if self.hold_from and self.hold_from in data:
                self.hold_from = b""
                self.hold_requests = True
            while self.hold_requests or link.hold_requests:  # noqa: ASYNC110 - a flag is the simplest switch
                await asyncio.sleep(0.01)
            if self.swallow_from and self.swallow_from in data:
                self.swallow_from = b""
                self.swallow_replies = True
            link.is_subscribed = link.is_subscribed or b"SUBSCRIBE" in data
            link.is_replica = link.is_replica or b"PSYNC" in data
            server.write(data)
            await server.drain()

    async def _pass_replies(self, link: Link, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        unfinished = bytearray()  # of a subscription, which is passed on value by value
        while data := await server.read(65_536):
            if self.swallow_replies:
                continue
            await asyncio.sleep(self.delay_s)
            while self.hold_replies or link.hold_replies:  # noqa: ASYNC110 - a flag is the simplest switch
                await asyncio.sleep(0.01)
            if link.is_subscribed:
                unfinished += data
                data = self._without_lost(unfinished)
            client.write(data)
            await client.drain()

    def _without_lost(self, unfinished: bytearray) -> bytes:
        """Takes the whole values off it; what was published is left out while that gets lost."""
        passed, at = bytearray(), 0
        while (end := _end_of_value(unfinished, at)) >= 0:
            if not (self.lose_published and unfinished.startswith(PUBLISHED, at)):
                passed += unfinished[at:end]
            at = end
        del unfinished[:at]
        return bytes(passed)


def _end_of_value(data: bytearray, at: int) -> int:
    """Where the value of Redis' protocol ends that begins here; -1 if not all of it is there."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        return -1
    kind, end = data[at : at + 1], line_end + 2
    if kind in b"$=" and data[at + 1 : at + 2] != b"-":
        end += int(data[at + 1 : line_end]) + 2
        return end if end <= len(data) else -1
    for _ in range(int(data[at + 1 : line_end]) if kind in b"*>~" else 0):
        end = _end_of_value(data, end)
        if end < 0:
            return -1
    return end
