"""A client that reads nothing: it is given up, its messages are not, and nobody else waits for it."""

import asyncio
import base64
import json
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from relay import connection
from relay.app import make_app
from relay.settings import Settings
from relay.store.store import open_store
from tests.agents import Agent, make_token, message, until
from tests.servers import RealServer

SECRET = "a secret for tests that is long enough"


@pytest.fixture
async def url(redis_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """An instance in this process, which loses its patience soon."""
    monkeypatch.setattr(connection, "SLOW_AFTER_S", 0.5)
    settings = Settings(token_secret=SECRET, shards=1, recheck_s=0.2, drain_s=0, max_buffer_bytes=2**16)
    prefix = f"test-{os.urandom(6).hex()}"
    async with open_store(settings, redis_server.url, prefix=prefix) as store:
        runner = web.AppRunner(make_app(store), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await site.stop()
        await runner.cleanup()


class Deaf:
    """A client whose socket is opened by hand, and never read after its handshake."""

    def __init__(self, url: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            "GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )

    def say(self, op: str, **fields: Any) -> None:
        payload = json.dumps({"op": op, **fields}).encode()
        size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2)
        self._socket.sendall(b"\x81" + size + b"\0\0\0\0" + payload)

    def rest(self) -> bytes:
        """Everything that was there to read, up to the end."""
        self._socket.settimeout(10)
        found = b""
        try:
            while data := self._socket.recv(65_536):
                found += data
        except ConnectionError:
            pass
        return found

    def close(self) -> None:
        self._socket.close()


async def test_a_client_that_does_not_read_is_closed_and_its_messages_wait_for_it(url: str) -> None:
    alice = await Agent.connect(url, "acme/alice")
    await alice.authenticate(token=make_token(SECRET, "acme/alice"))
    carol = await Agent.connect(url, "acme/carol")
    await carol.authenticate(token=make_token(SECRET, "acme/carol"))
    deaf = await asyncio.to_thread(Deaf, url)
    deaf.say("auth", token=make_token(SECRET, "acme/deaf"), window=1_000)

    for n in range(0, 200, 10):
        await alice.sent(*(message(f"m-{n + m}", "deaf", "x" * 60_000) for m in range(10)))
    await alice.sent(message("quick", "carol"))
    assert (await carol.delivery())["id"] == "quick"

    async def is_online() -> bool:
        await alice.say("presence", agents=["deaf"])
        return bool((await alice.expect("presence"))["agents"]["acme/deaf"]["online"])

    for _ in range(1_000):
        if not await is_online():
            break
        await asyncio.sleep(0.02)
    assert not await is_online()
    rest = await asyncio.to_thread(deaf.rest)
    assert len(rest) < 200 * 60_000, "the relay did not push everything into the buffer"

    again = await Agent.connect(url, "acme/deaf")
    await again.authenticate(token=make_token(SECRET, "acme/deaf"), window=1_000)
    assert again.queue_status["pending"] == 200
    found = await again.deliveries(200)
    assert [one["id"] for one in found] == [f"m-{n}" for n in range(200)]
    assert {one["attempt"] for one in found} == {1}
    deaf.close()
    for agent in (alice, carol, again):
        await agent.close()


async def test_a_client_that_reads_late_gets_the_rest_when_it_has_caught_up(url: str) -> None:
    alice = await Agent.connect(url, "acme/alice")
    await alice.authenticate(token=make_token(SECRET, "acme/alice"))
    for n in range(0, 60, 10):
        await alice.sent(*(message(f"l-{n + m}", "late", "x" * 60_000) for m in range(10)))

    late = await Agent.connect(url, "acme/late")
    await late.authenticate(token=make_token(SECRET, "acme/late"), window=1_000)
    found = await late.deliveries(60)

    assert [one["id"] for one in found] == [f"l-{n}" for n in range(60)]
    await until(lambda: late.got("drained"))
    for agent in (alice, late):
        await agent.close()
