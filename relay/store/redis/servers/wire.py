"""A connection to the server without asyncio streams: bytes go out unchanged, replies are parsed on arrival."""

import asyncio
from collections.abc import Callable
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from relay.store.redis.servers.connect import Server

Reply = Any  # what hiredis makes of it; an error is a ResponseError


class Wire(asyncio.Protocol):
    """Takes over the socket that redis-py has connected and authenticated.

    `heard` gets every reply, in the turn of the event loop in which it arrived; `lost` is called once, when the
    connection is over.
    """

    def __init__(self, heard: Callable[[Reply], None], lost: Callable[[Exception], None]) -> None:
        self._heard = heard
        self._lost = lost
        self._replies = hiredis.Reader(protocolError=RedisConnectionError, replyError=ResponseError)
        self._connection: Any = None  # redis-py's, whose socket this is
        self.is_open = False

    async def open(self, server: Server) -> None:
        """Takes over a new connection of its own. Raises OSError or RedisError."""
        self._connection = await server.connect()
        self._connection._writer.transport.set_protocol(self)
        self.is_open = True

    def write(self, packets: bytes) -> None:
        self._connection._writer.transport.write(packets)

    async def close(self) -> None:
        """Ends the connection; nothing is called any more."""
        self.is_open = False
        self._heard = self._lost = lambda _: None
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    def data_received(self, data: bytes) -> None:
        replies = self._replies
        try:
            replies.feed(data)
            while (reply := replies.gets()) is not False:
                self._heard(reply)
        except RedisConnectionError as error:  # what came was no reply
            self.connection_lost(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        lost, self._lost = self._lost, lambda _: None
        lost(error or RedisConnectionError("the server closed the connection"))
