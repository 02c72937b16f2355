"""WebSocket frames: encoding outgoing ones, queueing incoming ones."""

import asyncio
import fcntl
import socket
import termios
import time
from collections.abc import Callable
from typing import Any

from aiohttp import WebSocketError, WSCloseCode, WSMessage, WSMsgType, web

from relay.server.aiohttp_parts import FrameBuffer, FramedSocket, WebSocketReader

CLOSE_TIMEOUT_S = 2.0  # how long a client may take to answer a close
LINGER_POLL_S = 0.05
CONFIRM_POLL_S = 0.01
FRAMES_A_TURN = 32  # of one client, before others have their turn of the event loop
QUEUE_BYTES = 64 * 1024  # of frames that came and were not received; then the client is not read on
MASKED = 0x80
MASK_BYTES = 4
PING = b"\x89\x00"
TCP_ESTABLISHED = 1  # the first byte of TCP_INFO
KNOWS_STATE = hasattr(socket, "TCP_INFO")  # only Linux tells


def text_frame(payload: bytes) -> bytes:
    """A whole, unmasked text frame as RFC 6455 has it."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65_536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8), payload)


def close_frame(code: int, reason: str) -> bytes:
    """A whole close frame; reasons are short words."""
    payload = code.to_bytes(2) + reason.encode()
    return b"\x88%c%b" % (len(payload), payload)


def pong_frame(payload: bytes) -> bytes:
    """The answer to a ping, with what it carried."""
    return b"\x8a%c%b" % (len(payload), payload)


def is_there(transport: asyncio.Transport | None) -> bool:
    """Whether the client has not closed its end, which is known here before what it sent last is read."""
    if transport is None or transport.is_closing():
        return False  # its socket cannot be asked any more
    end: socket.socket | None = transport.get_extra_info("socket")
    if end is None or not KNOWS_STATE:
        return True
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED


async def until_confirmed(transport: asyncio.Transport | None) -> None:
    """Returns when the client's machine has received all that was written, or says that the client has gone."""
    while is_there(transport) and _is_unconfirmed(transport):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(CONFIRM_POLL_S)


def _is_unconfirmed(transport: asyncio.Transport | None) -> bool:
    if transport is None or not KNOWS_STATE:
        return False
    if transport.get_write_buffer_size():
        return True
    end: socket.socket = transport.get_extra_info("socket")
    return any(fcntl.ioctl(end.fileno(), termios.TIOCOUTQ, bytes(4)))


LOOK = WSMessage(WSMsgType.PONG, b"", None)  # nothing came: what must be waited for is looked after

WHOLE = (WSMsgType.TEXT, WSMsgType.BINARY)  # others may come between the fragments of one

OnFrame = Callable[[Any], bool]


class FrameQueue(FrameBuffer):
    """Frames that wait for their listener. While the listener only waits for frames, `on_frame` gets them at once.

    Waking a listener costs more than most frames do. After FRAMES_A_TURN frames it is woken anyway, so that other
    connections have their turn.
    """

    on_frame: OnFrame | None = None  # says whether it goes on; else the listener has to look after something
    heard: Callable[[], None]  # told of pongs, once there is an `on_frame`
    is_awaited = False
    _handled = 0

    def feed_data(self, data: Any, size: int) -> None:
        if data.type is WSMsgType.PONG and self.on_frame is not None:
            self.heard()
            return
        if (
            self.on_frame is None
            or not self.is_awaited
            or self.has_frames()
            or self._handled == FRAMES_A_TURN
            or data.type is not WSMsgType.TEXT
        ):
            if data.type in WHOLE:
                self.connection.incomplete_bytes = 0
            super().feed_data(data, size)
            return
        self.connection.incomplete_bytes = 0
        self._handled += 1
        if not self.on_frame(data.data):
            super().feed_data(LOOK, 0)

    async def read(self) -> Any:
        self._handled, self.is_awaited = 0, True
        try:
            return await super().read()
        finally:
            self.is_awaited = False


class MaskedReader(WebSocketReader):
    """Reads frames of a client, all of which must be masked (RFC 6455, 5.1). aiohttp also takes others."""

    __slots__ = ("_frames", "_head", "_skip")

    def __init__(self, frames: FrameQueue, max_bytes: int) -> None:
        super().__init__(frames, max_bytes, compress=False, decode_text=False)
        self._frames = frames
        self._head = b""  # of a frame: as much as has come
        self._skip = 0  # bytes that are still to come before the next head

    def feed_data(self, data: bytes | bytearray | memoryview) -> tuple[bool, bytes]:
        if not self._are_masked(data):
            self._frames.set_exception(WebSocketError(WSCloseCode.PROTOCOL_ERROR, "a frame without a mask"))
            return True, b""
        return super().feed_data(data)

    def _are_masked(self, more: bytes | bytearray | memoryview) -> bool:
        """Goes from head to head."""
        data, at = self._head + more, self._skip
        while at + 2 <= len(data):
            size = data[at + 1] - MASKED
            if size < 0:
                return False
            if size >= 126:
                wide = 2 if size == 126 else 8
                if at + 2 + wide > len(data):
                    break
                size = int.from_bytes(data[at + 2 : at + 2 + wide]) + wide
            at += 2 + MASK_BYTES + size
        self._head, self._skip = data[at:], max(0, at - len(data))
        return True


class Socket(FramedSocket):
    """Takes turns with other sockets. A client that sends too large a frame can still read the close code."""

    frames = 0  # that were asked for so far
    queue: FrameQueue

    def open_frames(
        self, connection: web.RequestHandler, max_bytes: int, loop: asyncio.AbstractEventLoop
    ) -> tuple[FrameQueue, MaskedReader]:
        self.queue = FrameQueue(connection, QUEUE_BYTES, loop=loop)
        return self.queue, MaskedReader(self.queue, max_bytes)

    def hand_frames_to(self, on_frame: OnFrame, heard: Callable[[], None]) -> None:
        """From now on frames need not wait to be received. Pongs are only heard."""
        self.queue.heard, self.queue.on_frame = heard, on_frame

    def has_frames(self) -> bool:
        """Whether some have come and were not received yet."""
        return self.queue.has_frames()

    async def receive_in_turn(self) -> WSMessage:
        """The next frame. Those that are there already come without waiting: only this gives others a turn."""
        self.frames += 1
        if self.frames % FRAMES_A_TURN == 0:
            await asyncio.sleep(0)
        return await self.receive()

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        transport = self.transport()
        if code == WSCloseCode.MESSAGE_TOO_BIG and transport is not None and not self.closed:
            # Closed with unread data waiting, the connection would be reset and the close frame lost with it. What
            # still comes is read and dropped meanwhile.
            transport.write(close_frame(code, "too large"))
            gone_at = time.monotonic() + CLOSE_TIMEOUT_S
            while not transport.is_closing() and time.monotonic() < gone_at:  # noqa: ASYNC110 - nobody else tells
                await asyncio.sleep(LINGER_POLL_S)
        return await super().close(code=code, message=message, drain=drain)
