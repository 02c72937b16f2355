"""Few open files: one address does not take them all, and the store's links keep theirs."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing

import aiohttp
import pytest

from tests.agents import until
from tests.deaf import Bare
from tests.servers import RealServer
from tests.system.conftest import Instance, Process

pytestmark = pytest.mark.xdist_group("open_files")

FEW = 300


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as server:
        yield server


def instance_with(server: RealServer, soft: int, hard: int, **settings: object) -> Instance:
    return Instance(open_files=(soft, hard), redis_url=server.url, shards=8, **settings)


async def status_from(source: str, url: str) -> int:
    """What somebody at another address is answered."""
    connector = aiohttp.TCPConnector(local_addr=(source, 0))
    async with aiohttp.ClientSession(connector=connector) as http, http.get(f"{url}/readyz") as answer:
        return answer.status


async def test_one_address_with_idle_connections_leaves_room_for_others_and_for_the_store(server: RealServer) -> None:
    with instance_with(server, FEW, FEW) as instance, ExitStack() as stack, server.client() as client:
        await instance.is_ready()
        for _ in range(FEW + 50):
            stack.enter_context(closing(Bare(instance.url)))

        assert {await status_from(f"127.0.0.{n}", instance.url) for n in range(2, 42)} == {200}

        client.client_kill_filter(_type="normal", skipme=True)
        client.client_kill_filter(_type="pubsub", skipme=True)
        await until(lambda: len(client.client_list(_type="pubsub")) > 0)
        for _ in range(200):
            if await status_from("127.0.0.2", instance.url) == 200:
                break
            await asyncio.sleep(0.05)
        assert await status_from("127.0.0.2", instance.url) == 200
        assert "Errno 24" not in str(instance.lines())


async def test_an_instance_raises_its_soft_limit_and_says_what_it_has(server: RealServer) -> None:
    with instance_with(server, 100, 2_000, max_connections=500) as instance:
        serving = instance.wait_for("serving")

    limits = {name: serving[name] for name in ("open_files", "max_connections", "max_connections_per_address")}
    assert limits == {"open_files": 1_256, "max_connections": 1_000, "max_connections_per_address": 250}


async def test_connections_of_all_kinds_together_stay_within_the_open_files(server: RealServer) -> None:
    with (
        instance_with(server, FEW, FEW, max_connections_per_address=0) as instance,
        ExitStack() as stack,
        server.client() as client,
    ):
        most = instance.wait_for("serving")["max_connections"]
        for _ in range(most):
            stack.enter_context(closing(Bare(instance.url)))

        one_more = stack.enter_context(closing(Bare(instance.url)))

        assert (await asyncio.to_thread(one_more.rest)).startswith(b"HTTP/1.1 429 ")
        client.client_kill_filter(_type="pubsub", skipme=True)
        await until(lambda: len(client.client_list(_type="pubsub")) > 0)
        assert "Errno 24" not in str(instance.lines())


def test_the_doctor_finds_a_hard_limit_that_is_too_low(server: RealServer) -> None:
    with Process("doctor", "--json", open_files=(FEW, FEW), redis_url=server.url) as doctor:
        doctor.wait()

        assert "open_files" in [line.get("check") for line in doctor.lines()]
