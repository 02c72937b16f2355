"""The server side of every connection: limits on their number, on slow requests and on unread output."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, cast

import orjson
from aiohttp import web

from relay.core.instance.instance import Instance
from relay.core.output_budget import Output
from relay.errors import RateLimited
from relay.server.aiohttp_parts import PacedConnection, WrappingRunner
from relay.server.open_files import connection_limits
from relay.server.partial_input import PartialInput
from relay.server.strangers import Stranger
from relay.server.turns import Turns
from relay.telemetry.logs import Seldom

HEAD_WITHIN_S = 10.0  # a request whose head trickles in more slowly is not waited for
IDLE_S = 75.0  # how long a connection may wait for its next request: longer than load balancers keep one (60 s)
HEAD_BYTES = 16 * 1024  # what the head of an upgrade may have
COUNTED_FROM_BYTES = 16 * 1024  # what fills a socket's buffer beyond this is counted at once
PIECE_BYTES = 16 * 1024  # what is read of one connection in one turn of the event loop
STRANGER_PIECE_BYTES = 2 * 1024  # and what is read of a stranger without waiting for a turn
INCOMPLETE_BYTES = 64 * 1024  # what is not whole yet counts from here on
COME_BACK_MS = 1_000

log = Seldom(logging.getLogger(__name__))


class ServerConnection(PacedConnection):
    """One connection. It begins as plain HTTP; a WebSocket looks after itself from `be_socket` on."""

    __slots__ = (
        *(
            "_asked_since",
            "_is_answering",
            "_is_counted",
            "_is_known",
            "_pieces",
            "_server",
            "_waits_for_turn",
        ),
        *("incomplete_bytes", "on_lost", "on_room", "output", "remote", "stranger", "whose"),
    )

    def __init__(self, server: "Server", **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._asked_since: float | None = time.monotonic()  # since when the head of a request is waited for
        self._is_answering = False
        self.stranger = Stranger(self.pause_reading, self.resume_reading)  # until whoever is there is known
        self._pieces: deque[bytes] = deque()  # what came and is not read yet
        self._waits_for_turn = False  # for the next one
        self.incomplete_bytes = 0  # bytes of the frame or request that is not whole yet
        self._is_counted = False  # whether they are so many that they count
        self._is_known = False  # whether this is the WebSocket of one who has authenticated
        self.remote: str | None = None
        self.whose = ""  # the agent, or else the network address
        self.output: Output
        self.on_room: Callable[[], None] | None = None  # told when the reader has caught up
        self.on_lost: Callable[[], None] | None = None  # told when whoever is at the other end has gone

    # -- its life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.remote = peer[0] if isinstance(peer, tuple) else None
        self.whose = self.remote or ""
        self.output = Output(self._server.instance.output, transport)
        refusal = self._server.admit(self)
        if refusal is not None:
            self.force_close()
            transport.write(refusal)
            transport.close()
            return
        super().connection_made(transport)
        transport.set_write_buffer_limits(COUNTED_FROM_BYTES)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.output.close()
        self._server.partial_input.done(self)
        self._server.lost(self)
        self.on_room = self.stranger.on_flood = None
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def be_socket(self, unread_max: int) -> None:
        """From now on this is a WebSocket of a stranger, with a limit of unhandled bytes."""
        self._server.plain.discard(self)
        self.stranger.limit(HEAD_BYTES + unread_max)

    def be_known(self, agent: str) -> None:
        """The client has authenticated: it now counts for its agent, not for its address."""
        self._is_known, self.whose = True, agent
        self._server.forget_address(self)
        self.stranger.release()

    # -- in

    def data_received(self, data: bytes) -> None:
        """Reads it piece by piece, so that what is costly to read leaves others their turns of the event loop.

        uvloop would else read dozens of times in one turn from one that floods us.
        """
        at_once = PIECE_BYTES if self._is_known else STRANGER_PIECE_BYTES
        if len(data) <= at_once and (not self._pieces or not data):  # aiohttp says nothing to be read on itself
            self._feed(data)
            return
        self._pieces.extend(data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))
        self.pause_transport()
        self.resume_transport()

    def _feed(self, data: bytes) -> None:
        if not self._is_known:
            if not self.stranger.sent(len(data)):
                return
            if self._asked_since is None and not self._is_answering:
                self._asked_since = time.monotonic()
        self.incomplete_bytes += len(data)
        super().data_received(data)
        if self.incomplete_bytes > INCOMPLETE_BYTES:
            self._is_counted = True
            self._server.partial_input.grew(self, self.incomplete_bytes)
        elif self._is_counted:
            self._has_all()

    def has_input(self) -> bool:
        """Whether something has come that is not read, or not whole yet."""
        return bool(self._pieces) or self.incomplete_bytes > 0

    def _has_all(self) -> None:
        self.incomplete_bytes, self._is_counted = 0, False
        self._server.partial_input.done(self)

    def give_up(self) -> None:
        """Cuts the connection: incomplete input takes too much memory."""
        self._server.instance.metrics.closed["half_sent"] += 1
        log.warning("half_sent_given_up", whose=self.whose, bytes=self.incomplete_bytes)
        if self.transport is not None:
            self.transport.abort()

    def _read_on(self) -> None:
        """Reads one piece, and has the next one wait for another turn of the event loop."""
        self._waits_for_turn = False
        if self.transport is not None and not self.is_paused():
            self._feed(self._pieces.popleft())
            self.resume_transport()

    def resume_transport(self) -> None:
        """Only when all that came has been read."""
        if not self._pieces:
            super().resume_transport()
        elif not self._waits_for_turn:
            self._waits_for_turn = True
            self._server.turns.wait(self._read_on)

    def began_request(self) -> None:
        self._asked_since, self._is_answering = None, True

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.Response) and isinstance(resp.body, bytes):
            self.output.wrote(len(resp.body))
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._is_answering = False
            self.stranger.unread = 0
            self._has_all()
            self.output.flushed()

    # -- out

    def pause_writing(self) -> None:
        super().pause_writing()
        self.output.measure()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.output.measure()
        self.output.progressed()
        if self.on_room is not None:
            self.on_room()

    def tick(self, now: float) -> None:
        """Closes a plain HTTP connection that is too slow."""
        if self.transport is None:
            return
        if self._asked_since is not None and now - self._asked_since > HEAD_WITHIN_S:
            self._server.instance.metrics.closed["no_request"] += 1
            self.transport.abort()
        elif self.output.is_stuck(now):
            self._server.instance.metrics.closed["slow"] += 1
            log.warning("slow_reader_closed", remote=self.remote, unread_bytes=self.output.waiting)
            self.transport.abort()


class Server(web.Server):
    """Makes the connections of an application, and counts them."""

    def __init__(self, inner: web.Server, instance: Instance) -> None:
        super().__init__(inner.request_handler, request_factory=self._request)
        self._inner_request = inner.request_factory
        self.instance = instance
        self.turns = Turns()
        self.partial_input = PartialInput(max(instance.settings.max_buffer_bytes, instance.settings.max_frame_bytes))
        self.plain: set[ServerConnection] = set()
        self._open: set[ServerConnection] = set()  # WebSockets too
        self._limits = connection_limits(instance.settings)
        self._strangers: Counter[str] = Counter()  # connections of each address that have not authenticated
        instance.heartbeat.on_tick.append(self.tick)

    def __call__(self) -> ServerConnection:
        loop = asyncio.get_running_loop()
        # Nothing is unpacked: a body of a megabyte may hide a gigabyte, also a stranger's.
        return ServerConnection(self, loop=loop, access_log=None, keepalive_timeout=IDLE_S, auto_decompress=False)

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        protocol.began_request()
        return self._inner_request(message, payload, protocol, writer, task)

    def admit(self, connection: ServerConnection) -> bytes | None:
        """The response for a connection over the limit; None if it is admitted."""
        settings, remote, connection.remote = self.instance.settings, connection.remote, None
        if len(self.plain) >= settings.max_connections or len(self._open) >= self._limits.connections:
            return self._refuse("too_many", remote)
        if remote is not None:
            if 0 < self._limits.per_address <= self._strangers[remote]:
                return self._refuse("address", remote)
            self._strangers[remote] += 1
            connection.remote = remote  # for which it is counted
        self.plain.add(connection)
        self._open.add(connection)
        return None

    def _refuse(self, why: str, remote: str | None) -> bytes:
        self.instance.metrics.connections_refused[why] += 1
        log.warning("connection_refused", why=why, remote=remote)
        error = RateLimited("too many connections", retry_after_ms=COME_BACK_MS)
        body = orjson.dumps({"error": error.as_fields()})
        return (
            b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Retry-After: 1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )

    def lost(self, connection: ServerConnection) -> None:
        self.forget_address(connection)
        self.plain.discard(connection)
        self._open.discard(connection)

    def forget_address(self, connection: ServerConnection) -> None:
        """This connection no longer counts as a stranger's."""
        remote, connection.remote = connection.remote, None
        if remote is not None:
            self._strangers[remote] -= 1
            if not self._strangers[remote]:
                del self._strangers[remote]

    def tick(self, now: float) -> None:
        for connection in list(self.plain):
            connection.tick(now)


class Runner(WrappingRunner):
    """Runs an application on a Server."""

    def __init__(self, app: web.Application, instance: Instance, **options: Any) -> None:
        super().__init__(app, **options)
        self._instance = instance

    def wrap(self, server: web.Server) -> web.Server:
        return Server(server, self._instance)
