"""The private parts of aiohttp that the relay uses. No other module touches one.

tests/unit/server/test_aiohttp_contract.py and test_aiohttp_calls.py hold aiohttp to all that is relied on here.
"""

import asyncio
from typing import Any

from aiohttp import web
from aiohttp._websocket.reader import WebSocketDataQueue, WebSocketReader

__all__ = ("FrameBuffer", "FramedSocket", "PacedConnection", "WebSocketReader", "WrappingRunner")


class PacedConnection(web.RequestHandler):
    """A connection that decides when its transport is read on, whatever in aiohttp asks for it."""

    __slots__ = ()

    def is_paused(self) -> bool:
        """Whether aiohttp wants no more input now."""
        return self._reading_paused or self._buffer_paused

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp says so for each chunk of a body that is read: most often there is nothing to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def pause_transport(self) -> None:
        """Nothing more comes until the next `resume_transport`."""
        self._pause_transport_reading()

    def resume_transport(self) -> None:
        """Called whenever more input is wanted."""
        super()._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        self.resume_transport()


class FrameBuffer(WebSocketDataQueue):
    """The frames of a WebSocket that came and were not received yet."""

    def __init__(self, connection: Any, limit: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(connection, limit, loop=loop)
        self.connection = connection

    def has_frames(self) -> bool:
        """Whether some are there."""
        return bool(self._buffer)


class FramedSocket(web.WebSocketResponse):
    """A WebSocket with a buffer and a reader of its subclass."""

    def open_frames(
        self, connection: web.RequestHandler, max_bytes: int, loop: asyncio.AbstractEventLoop
    ) -> tuple[FrameBuffer, WebSocketReader]:
        """Where frames go, and what reads them. Called once, after the handshake."""
        raise NotImplementedError

    def transport(self) -> asyncio.Transport | None:
        """None when the connection is lost, and before the handshake."""
        return self._req.transport if self._req is not None else None

    def _post_start(self, request: web.BaseRequest, protocol: str | None, writer: Any) -> None:
        """aiohttp's own, without its heartbeat. It has no place to give it another buffer or reader."""
        assert self._loop is not None
        self._ws_protocol, self._writer = protocol, writer
        self._reader, self._parser = self.open_frames(request.protocol, self._max_msg_size, self._loop)
        request.protocol.set_parser(self._parser)
        request.protocol.keep_alive(False)


class WrappingRunner(web.AppRunner):
    """Runs an application on a server that its subclass makes."""

    def wrap(self, server: web.Server) -> web.Server:
        """Gets the server that aiohttp has made."""
        raise NotImplementedError

    async def _make_server(self) -> web.Server:
        return self.wrap(await super()._make_server())
