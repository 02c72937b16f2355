"""Connections that dawdle: a head or a body that does not come, an idle connection, and those that are at work."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from relay.http import body
from relay.server import connections as server
from tests.agents import Agent, make_token
from tests.deaf import Bare, until_counted
from tests.servers import RealServer
from tests.serving import SECRET, serving


@pytest.fixture
async def url(redis_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """An instance in this process, which waits for a head for half a second, and for a request for one."""
    monkeypatch.setattr(server, "HEAD_WITHIN_S", 0.5)
    monkeypatch.setattr(server, "IDLE_S", 1.0)
    async with serving(redis_server.url) as url:
        yield url


@pytest.mark.parametrize("said", [b"", b"GET /hea", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: "])
async def test_a_connection_without_a_whole_head_is_closed(url: str, said: bytes) -> None:
    client = await asyncio.to_thread(Bare, url)
    client.say_bytes(said)

    assert await asyncio.to_thread(client.is_closed, 3)
    await until_counted(url, 'relay_closed_total{code="no_request"}')
    client.close()


async def test_a_head_that_trickles_in_is_not_waited_for(url: str) -> None:
    client = await asyncio.to_thread(Bare, url)

    async def trickle() -> int:
        for n, byte in enumerate(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 10):
            try:
                client.say_bytes(bytes([byte]))
            except ConnectionError:
                return n
            await asyncio.sleep(0.1)
        return -1

    assert 0 < await trickle() < 20
    client.close()


async def test_an_idle_connection_is_closed_and_one_that_asks_again_is_not(url: str) -> None:
    client = await asyncio.to_thread(Bare, url)

    for _ in range(3):
        client.say_bytes(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.6)

    answers = await asyncio.to_thread(client.rest)
    assert answers.count(b"HTTP/1.1 200") == 3
    client.close()


async def test_a_second_head_must_come_in_time_too(url: str) -> None:
    client = await asyncio.to_thread(Bare, url)
    client.say_bytes(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.sleep(0.1)

    client.say_bytes(b"GET /healthz HT")

    assert await asyncio.to_thread(client.is_closed, 0.9)
    client.close()


@pytest.mark.parametrize("length", [{}, {"Content-Length": "1000"}], ids=["chunked", "of a known length"])
async def test_a_body_that_trickles_in_is_not_waited_for(
    url: str, monkeypatch: pytest.MonkeyPatch, length: dict[str, str]
) -> None:
    monkeypatch.setattr(body, "BODY_WITHIN_S", 0.5)
    headers = {"Authorization": f"Bearer {make_token(SECRET, 'acme/bob')}", **length}

    async def trickle() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" "
            await asyncio.sleep(0.1)

    async with (
        asyncio.timeout(5),
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{url}/v1/agents/bob/lease", data=trickle()) as answer,
    ):
        assert answer.status == 408


async def test_a_long_wait_and_a_session_are_left_alone(url: str) -> None:
    alice = await Agent.connect(url, "acme/alice")
    await alice.authenticate(token=make_token(SECRET, "acme/alice"))
    headers = {"Authorization": f"Bearer {make_token(SECRET, 'acme/bob')}"}

    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{url}/v1/agents/bob/lease", json={"wait_s": 2}) as answer,
    ):
        assert await answer.json() == {"messages": []}

    await alice.say("ping")
    await alice.expect("pong")
    await alice.close()


async def test_an_instance_has_so_many_connections_that_are_no_sessions(redis_server: RealServer) -> None:
    async with serving(redis_server.url, max_connections=3, max_connections_per_address=0) as url:
        clients = [await asyncio.to_thread(Bare, url) for _ in range(4)]

        answer = await asyncio.to_thread(clients[-1].rest)
        clients[0].say_bytes(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        served = await asyncio.to_thread(clients[0].rest)

        for client in clients:
            client.close()
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert served.startswith(b"HTTP/1.1 200 ")
