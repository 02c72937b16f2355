"""What the relay finds out about its server, also when that server hides its settings as managed ones do."""

from collections.abc import Iterator

import pytest

from relay.errors import ConfigurationError
from relay.settings import Settings
from relay.store import keys, meta
from relay.store.meta import Safety
from relay.store.store import open_store
from tests.builders import Desk
from tests.servers import RealServer


@pytest.fixture
def secretive() -> Iterator[RealServer]:
    with RealServer({"appendfsync": "always"}) as server:
        hide_settings(server)
        yield server


def hide_settings(server: RealServer) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-config")


async def seen(server: RealServer, durability: str | None = None) -> Safety:
    async with open_store(Settings(durability=durability), server.url) as store:
        await store.inspect()
        assert store.safety is not None
        return store.safety


async def test_a_server_that_hides_its_settings_can_be_used(secretive: RealServer) -> None:
    safety = await seen(secretive)

    assert safety.reason is None
    assert safety.level == "memory"


async def test_a_promise_that_cannot_be_checked_is_not_made(secretive: RealServer) -> None:
    safety = await seen(secretive, durability="fsync")

    assert safety.reason == "durability fsync is promised, but the server gives memory"


async def test_hidden_settings_are_asked_for_once(secretive: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    async with open_store(Settings(), secretive.url) as store:
        await store.inspect()
        await store.inspect()

    assert [record.getMessage() for record in caplog.records] == ["store_refused_a_call"]


async def test_eviction_is_seen_on_a_server_that_hides_its_settings() -> None:
    with RealServer({"maxmemory-policy": "allkeys-lru"}) as server:
        hide_settings(server)
        safety = await seen(server)

    assert safety.reason is not None
    assert "noeviction" in safety.reason


@pytest.fixture
def fifth_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this relay one that has releases before it."""
    for module in (keys, meta):
        monkeypatch.setattr(module, "SCHEMA", 5)


@pytest.mark.usefixtures("fifth_release")
@pytest.mark.parametrize(("found", "left"), [("4", "5"), ("5", "5"), ("6", "6")])
async def test_a_relay_works_beside_those_of_the_release_before_and_after(desk: Desk, found: str, left: str) -> None:
    desk.redis.hset(desk.keys.meta, mapping={"schema": found, "shards": 1, "epoch": "e"})

    await desk.store.meta.check()

    assert desk.redis.hget(desk.keys.meta, "schema") == left


@pytest.mark.usefixtures("fifth_release")
@pytest.mark.parametrize("found", ["3", "7", "-5", "x"])
async def test_a_store_of_another_age_is_refused(desk: Desk, found: str) -> None:
    desk.redis.hset(desk.keys.meta, mapping={"schema": found, "shards": 1, "epoch": "e"})

    with pytest.raises(ConfigurationError, match=f"the store has schema {found}"):
        await desk.store.meta.check()

    assert desk.redis.hget(desk.keys.meta, "schema") == found
