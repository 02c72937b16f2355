"""A WebSocket client made for load: frames in and out of a bare socket, nothing else."""

import asyncio
import base64
import os
from collections.abc import Callable
from typing import Any

import orjson


class LoadSocket(asyncio.Protocol):
    """Speaks just enough RFC 6455. Its mask is zero, so that the load costs less than what it measures."""

    def __init__(self, host: str, path: str, received: Callable[["LoadSocket", dict[str, Any]], None]) -> None:
        self._host = host
        self._path = path
        self._received = received
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.open = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.state: Any = None  # for whoever uses the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        key = base64.b64encode(os.urandom(16)).decode()
        self._write(
            f"GET {self._path} HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, _: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("closed before its session had begun"))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.open:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            if not self._buffer.startswith(b"HTTP/1.1 101"):
                raise ConnectionError(bytes(self._buffer[:80]).decode())
            del self._buffer[: end + 4]
            self.open = True
        self._take_frames()

    def _take_frames(self) -> None:
        buffer, at, size = self._buffer, 0, len(self._buffer)
        while size - at >= 2:
            length, header = buffer[at + 1] & 0x7F, 2
            if length == 126:
                if size - at < 4:
                    break
                length, header = int.from_bytes(buffer[at + 2 : at + 4]), 4
            elif length == 127:
                if size - at < 10:
                    break
                length, header = int.from_bytes(buffer[at + 2 : at + 10]), 10
            if size - at < header + length:
                break
            opcode, start = buffer[at] & 0x0F, at + header
            at = start + length
            if opcode == 1:
                self._received(self, orjson.loads(memoryview(buffer)[start:at]))
            elif opcode == 9:
                self._frame(0x8A, bytes(buffer[start:at]))
        del buffer[:at]

    def send(self, payload: bytes) -> None:
        self._frame(0x81, payload)

    def _frame(self, first: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            self._write(b"%c%c\0\0\0\0%b" % (first, 0x80 | size, payload))
        elif size < 65_536:
            self._write(b"%c\xfe%b\0\0\0\0%b" % (first, size.to_bytes(2), payload))
        else:
            self._write(b"%c\xff%b\0\0\0\0%b" % (first, size.to_bytes(8), payload))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def connect(
    port: int, token: str, received: Callable[[LoadSocket, dict[str, Any]], None], **auth: Any
) -> LoadSocket:
    """A socket whose session has drained."""
    loop = asyncio.get_running_loop()

    def opening(socket: LoadSocket, frame: dict[str, Any]) -> None:
        if frame["op"] == "hello":
            socket.send(orjson.dumps({"op": "auth", "token": token, **auth}))
        elif frame["op"] == "drained":
            socket._received = received
            socket.ready.set_result(None)
        elif frame["op"] == "error":
            socket.ready.set_exception(ConnectionError(frame["message"]))

    _, socket = await loop.create_connection(
        lambda: LoadSocket(f"127.0.0.1:{port}", "/v1/ws", opening), "127.0.0.1", port
    )
    await socket.ready
    return socket
