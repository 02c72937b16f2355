"""A TCP proxy that cuts, refuses, delays or swallows, to show a client the failures of a network."""

import asyncio
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"


class CutProxy:
    """Stands between a client and a server on this machine, on a port of its own that stays the same."""

    def __init__(self, target_port: int) -> None:
        self.port = 0  # known once it listens
        self.delay_s = 0.0  # each piece of an answer waits for this long
        self.swallow_replies = False  # requests arrive, their answers never do
        self.swallow_from = b""  # from the request on that has this in it, their answers never do
        self._target_port = target_port
        self._listener: asyncio.Server | None = None  # none while it refuses
        self._writers: set[asyncio.StreamWriter] = set()  # both ends of every open connection
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def cut(self) -> None:
        """Drops every open connection at once; new ones are served."""
        for writer in self._writers:
            writer.transport.abort()

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
        self.cut()
        await asyncio.gather(*self._connections)

    async def _serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        self._writers.add(client_writer)
        try:
            await self._join(client_reader, client_writer)
        finally:
            self._connections.discard(connection)
            self._writers.discard(client_writer)
            client_writer.transport.abort()

    async def _join(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            return  # the client sees its connection end, as when the server is down
        self._writers.add(server_writer)
        requests = asyncio.create_task(self._pass_requests(client_reader, server_writer))
        replies = asyncio.create_task(self._pass_replies(server_reader, client_writer))
        try:
            await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers.discard(server_writer)
            server_writer.transport.abort()
            requests.cancel()
            replies.cancel()
            await asyncio.gather(requests, replies, return_exceptions=True)

    async def _pass_requests(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while data := await client.read(65_536):
            if self.swallow_from and self.swallow_from in data:
                self.swallow_from = b""
                self.swallow_replies = True
            server.write(data)
            await server.drain()

    async def _pass_replies(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await server.read(65_536):
            if self.swallow_replies:
                continue
            await asyncio.sleep(self.delay_s)
            client.write(data)
            await client.drain()
