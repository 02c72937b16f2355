"""The tools of the tests themselves: servers that fail on demand and a proxy that fails between."""

import asyncio
import subprocess
import sys

import pytest
import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.proxy import CutProxy
from tests.servers import RealCluster, RealServer, free_port


def a_client(proxy: CutProxy, answer_within_s: float = 10) -> Redis:
    return Redis.from_url(proxy.url, socket_timeout=answer_within_s, retry=Retry(NoBackoff(), 0), decode_responses=True)


def test_a_killed_server_comes_back_on_its_port_with_its_data() -> None:
    with RealServer({"appendfsync": "always"}) as server:
        with server.client() as client:
            client.set("kept", "yes")
        before = server.pid

        server.kill()
        server.start()

        with server.client() as client:
            assert client.get("kept") == "yes"
        assert server.pid != before


def test_two_processes_are_given_no_port_in_common() -> None:
    many = "from bench.servers import free_port; print(*(free_port() for _ in range(300)))"

    ours = {free_port() for _ in range(300)}
    theirs = {int(port) for port in subprocess.check_output([sys.executable, "-c", many]).split()}

    assert len(theirs) > 100
    assert not theirs & ours


def test_a_paused_server_answers_only_when_resumed(redis_server: RealServer) -> None:
    with redis_server.client() as client:
        client.ping()
        redis_server.pause()
        connection = client.connection_pool.get_connection()
        connection.send_command("PING")
        answered_while_paused = connection.can_read(timeout=0.05)

        redis_server.resume()

        assert not answered_while_paused
        assert connection.read_response() == "PONG"
        connection.disconnect()


def test_a_cluster_serves_every_slot_from_three_masters() -> None:
    with RealCluster() as cluster:
        node = cluster.servers[0]
        with redis.RedisCluster(host="127.0.0.1", port=node.port, decode_responses=True) as client:
            for number in range(30):
                client.set(f"key-{number}", number)
            masters = {client.get_node_from_key(f"key-{number}").port for number in range(30)}

            assert [client.get(f"key-{number}") for number in range(30)] == [str(number) for number in range(30)]
        assert masters == {server.port for server in cluster.servers}
        assert cluster.url == "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)


async def test_a_cut_drops_connections_and_lets_new_ones_through(redis_server: RealServer) -> None:
    async with CutProxy(redis_server.port) as proxy, a_client(proxy) as client:
        await client.ping()

        proxy.cut()

        with pytest.raises(redis.ConnectionError):
            await client.blpop(["proxy:nothing"], timeout=10)
        assert await client.ping()


async def test_a_refusing_proxy_accepts_again_on_the_same_port(redis_server: RealServer) -> None:
    async with CutProxy(redis_server.port) as proxy, a_client(proxy) as client:
        proxy.refuse()
        with pytest.raises(redis.ConnectionError):
            await client.ping()

        await proxy.accept()

        assert await client.ping()


async def test_a_swallowed_reply_leaves_the_request_done(redis_server: RealServer) -> None:
    async with CutProxy(redis_server.port) as proxy, a_client(proxy, answer_within_s=0.2) as client:
        await client.ping()
        proxy.swallow_replies = True

        with pytest.raises(redis.TimeoutError):
            await client.set("proxy:swallowed", "done")

        with redis_server.client() as direct:
            assert direct.get("proxy:swallowed") == "done"


async def test_a_delayed_reply_arrives_no_sooner(redis_server: RealServer) -> None:
    async with CutProxy(redis_server.port) as proxy, a_client(proxy) as client:
        await client.ping()
        proxy.delay_s = 0.05
        loop = asyncio.get_running_loop()
        asked_at = loop.time()

        await client.ping()

        assert loop.time() - asked_at >= 0.05
