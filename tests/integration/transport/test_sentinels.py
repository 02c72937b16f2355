"""Finding the master through Sentinels: some are down, hang or want a password, and a named master may be none."""

import asyncio
import time
from collections.abc import Iterator

import pytest
import uvloop
from redis.exceptions import RedisError

from relay.settings import Settings
from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.sentinels import STILL_COUNTS_S, Sentinels
from relay.store.store import open_store
from spark.sources.store import connect
from tests.agents import until
from tests.servers import HOST, RealServer, SentinelSet

AT_ONCE_S = 2.0
PASSWORD = "pa/ss w%rd"
QUOTED = "pa%2Fss%20w%25rd"


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with SentinelSet() as found:
        yield found


async def connected_to(url: str) -> int:
    """The port of the server that is found."""
    server = home_at(url)
    watching = asyncio.create_task(server.watch())
    try:
        connection = await server.connect()
        await connection.disconnect(nowait=True)
        return int(connection.port)
    finally:
        watching.cancel()
        await asyncio.wait((watching,))


async def test_a_sentinel_that_is_down_keeps_nobody_waiting(sentinels: SentinelSet) -> None:
    sentinels.sentinels[0].kill()
    try:
        began = time.monotonic()
        port = await connected_to(sentinels.url)

        assert (port, time.monotonic() - began < AT_ONCE_S) == (sentinels.master.port, True)
    finally:
        sentinels.sentinels[0].start()


async def test_a_sentinel_that_hangs_keeps_nobody_waiting(sentinels: SentinelSet) -> None:
    sentinels.sentinels[0].pause()
    try:
        began = time.monotonic()
        port = await connected_to(sentinels.url)

        assert (port, time.monotonic() - began < AT_ONCE_S) == (sentinels.master.port, True)
    finally:
        sentinels.sentinels[0].resume()


async def test_the_only_sentinel_that_answers_is_enough(sentinels: SentinelSet) -> None:
    for sentinel in sentinels.sentinels[:2]:
        sentinel.pause()
    try:
        assert await connected_to(sentinels.url) == sentinels.master.port
    finally:
        for sentinel in sentinels.sentinels[:2]:
            sentinel.resume()


async def test_the_replicas_that_sentinels_see_must_have_what_is_promised(sentinels: SentinelSet) -> None:
    async with open_store(Settings(durability="replica"), sentinels.url) as store:
        await until(lambda: store.pipeline.masters.all[0].replicas_asked() == 2, "both are known")
        await store.inspect()

        assert store.safety is not None
        assert (store.safety.durability, store.safety.reason) == ("replica", None)


async def test_a_replica_that_sentinels_do_not_know_yet_must_have_it_too(sentinels: SentinelSet) -> None:
    """Else WAIT could be content with it instead of the one that they promote."""
    blind(sentinels, for_ms=60_000)
    async with open_store(Settings(durability="replica"), sentinels.url) as store:
        await until(lambda: store.pipeline.masters.all[0].replicas_asked() == 2, "both are known")
        with RealServer() as another, another.client() as client:
            client.replicaof(HOST, sentinels.master.port)

            await until(lambda: store.pipeline.masters.all[0].replicas_asked() == 3, "it counts")
    await asyncio.to_thread(sentinels.wait_until_whole)


async def test_a_former_master_must_have_it_too_although_it_follows_nobody_yet(sentinels: SentinelSet) -> None:
    """Sentinels demote it after some ten seconds, and may promote it again before."""
    former = sentinels.master
    async with open_store(Settings(durability="replica"), sentinels.url) as store:
        master = store.pipeline.masters.all[0]
        await until(lambda: master.replicas_asked() == 2, "both are known")
        master._server._began_at -= STILL_COUNTS_S  # type: ignore[attr-defined] # else it asks for all in any case

        sentinels.fail_over()
        await until(lambda: sentinels.master is not former, "another is the master", within_s=30)
        await until(lambda: linked_to(sentinels.master) == 1, "which has the other replica")
        await store.pipeline.command("PING")

        with former.client() as client:
            assert (client.role()[0], master.replicas_asked()) == ("master", 2)
    await asyncio.to_thread(sentinels.wait_until_whole)


def linked_to(server: RealServer) -> int:
    with server.client() as client:
        return int(client.info("replication")["connected_slaves"])


def blind(sentinels: SentinelSet, for_ms: int) -> None:
    """Sentinels look at the servers no more often than this."""
    for sentinel in sentinels.sentinels:
        with sentinel.client() as client:
            client.execute_command("SENTINEL", "DEBUG", "info-period", for_ms)


def test_the_pipeline_finds_the_master_too_when_a_sentinel_is_down(sentinels: SentinelSet) -> None:
    sentinels.sentinels[0].kill()
    try:
        began = time.monotonic()
        with connect(sentinels.url) as client:
            role = client.info("replication")["role"]

        assert (role, time.monotonic() - began < AT_ONCE_S) == ("master", True)
    finally:
        sentinels.sentinels[0].start()


async def test_an_unknown_name_is_said(sentinels: SentinelSet) -> None:
    with pytest.raises(RedisError, match="no Sentinel names the master 'other'"):
        await connected_to(sentinels.url.replace("/main", "/other"))


async def test_a_named_master_that_is_a_replica_is_not_used(sentinels: SentinelSet) -> None:
    demoted = sentinels.master
    other = next(server for server in sentinels.servers if server is not demoted)
    with demoted.client() as client:
        client.replicaof(HOST, other.port)
        try:
            with pytest.raises(RedisError, match="is a replica, not the master"):
                await connected_to(sentinels.url)
        finally:
            client.replicaof("no", "one")
    await asyncio.to_thread(sentinels.wait_until_whole)


async def test_what_is_no_longer_the_master_is_left(sentinels: SentinelSet) -> None:
    old = sentinels.master
    async with open_store(Settings(), sentinels.url) as store:
        await store.pipeline.command("PING")

        sentinels.fail_over()
        await until(lambda: sentinels.master is not old, within_s=30)

        await until(lambda: old.port not in _client_ports(store), "the old one is left")
        await store.pipeline.command("SET", "after", "the failover")
    with old.client() as client:
        assert client.get("after") is None
    await asyncio.to_thread(sentinels.wait_until_whole)


def test_a_master_that_is_cut_off_is_watched_again(sentinels: SentinelSet) -> None:
    server = home_at(sentinels.url)
    assert isinstance(server, Sentinels)

    async def cut_off() -> bool:
        watching = asyncio.create_task(server.watch())
        await until(lambda: len(server._connections) == 1, "the master is watched")
        (watched,) = server._connections
        server._cut(watched)
        await until(lambda: len(server._connections - {watched}) == 1 or watching.done(), "it is again, or never")
        return not watching.done() and bool(watching.cancel())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the loop that instances have
        assert runner.run(cut_off())


def _client_ports(store: object) -> set[int]:
    wire = store.pipeline.masters.all[0]._link._wire  # type: ignore[attr-defined]
    return {wire._connection.port} if wire is not None and wire.is_open else set()


@pytest.fixture
def guarded(sentinels: SentinelSet) -> Iterator[SentinelSet]:
    """Sentinels that want a password."""
    clients = [sentinel.client() for sentinel in sentinels.sentinels]
    for client in clients:
        client.execute_command("ACL", "SETUSER", "default", f">{PASSWORD}")
    yield sentinels
    for client in clients:
        client.execute_command("ACL", "SETUSER", "default", "nopass")
        client.close()


async def test_sentinels_that_want_a_password_are_given_theirs(guarded: SentinelSet) -> None:
    url = f"{guarded.url}?sentinel_password={QUOTED}"

    assert await connected_to(url) in {server.port for server in guarded.servers}
    with connect(url) as client:
        assert client.ping()


@pytest.mark.parametrize(
    ("query", "complaint"),
    [("", "Authentication required"), ("?sentinel_password=x", "invalid username-password pair")],
)
async def test_a_password_that_sentinels_do_not_take_is_said(guarded: SentinelSet, query: str, complaint: str) -> None:
    with pytest.raises(RedisError, match=complaint):
        await connected_to(guarded.url + query)
