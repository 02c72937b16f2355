"""Clients on bare sockets: they say what they like, and read only when they are told to."""

import asyncio
import base64
import json
import os
import socket
import time
from typing import Any

import aiohttp

SAYS_WITHIN_S = 0.5  # a relay that takes nothing for so long does not read


class Bare:
    """A TCP connection with a small window, so that what is not read piles up at the other end."""

    def __init__(self, url: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.settimeout(10)
        self._socket.connect(("127.0.0.1", int(url.rpartition(":")[2])))

    def say_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_heard(self, data: bytes) -> bool:
        """Whether the other end still takes what is said."""
        self._socket.settimeout(SAYS_WITHIN_S)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            return False
        return True

    def rest(self, within_s: float = 10.0) -> bytes:
        """Everything that there is to read, up to the end."""
        found, until = b"", time.monotonic() + within_s
        try:
            while (left_s := until - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                data = self._socket.recv(2**20)
                if not data:
                    return found
                found += data
        except ConnectionError:
            return found
        raise AssertionError("it is not closed")

    def is_closed(self, within_s: float) -> bool:
        try:
            self.rest(within_s)
        except (TimeoutError, AssertionError):
            return False
        return True

    def close(self) -> None:
        self._socket.close()


class Deaf(Bare):
    """A WebSocket that is never read after its handshake."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        key = base64.b64encode(os.urandom(16)).decode()
        self.say_bytes(
            "GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )

    def say(self, op: str, **fields: Any) -> None:
        self.say_bytes(text_frame(json.dumps({"op": op, **fields}).encode()))


def text_frame(payload: bytes) -> bytes:
    """A frame as a client writes it, with a mask of zeros."""
    if len(payload) < 126:
        size = bytes([0x80 | len(payload)])
    elif len(payload) < 65_536:
        size = b"\xfe" + len(payload).to_bytes(2)
    else:
        size = b"\xff" + len(payload).to_bytes(8)
    return b"\x81" + size + b"\0\0\0\0" + payload


async def counted(url: str, sample: str) -> float:
    """A counter as Prometheus is told it, 0 if there is none yet."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{sample} ")), 0.0)


async def until_counted(url: str, sample: str, least: float = 1, within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while (found := await counted(url, sample)) < least:
        assert time.monotonic() < deadline, f"{sample} is {found}"
        await asyncio.sleep(0.02)
