"""An instance that does not reach the store any more: its sessions are sent elsewhere, once it is sure."""

from collections.abc import AsyncIterator

import pytest

from relay.core.instance import heartbeat
from relay.store.redis.servers import link, master
from tests.agents import Agent, make_token, until
from tests.proxy import CutProxy
from tests.servers import RealServer
from tests.serving import SECRET, serving


@pytest.fixture
async def proxy(redis_server: RealServer) -> AsyncIterator[CutProxy]:
    async with CutProxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def url(proxy: CutProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """An instance in this process, which loses its patience soon."""
    for module, name, value in (
        (heartbeat, "TICK_S", 0.02),
        (heartbeat, "SILENT_AFTER_S", 0.3),
        (heartbeat, "CUT_OFF_AFTER_S", 0.3),
        (master, "PING_EVERY_S", 0.1),
        (link, "EXCHANGE_TIMEOUT_S", 0.2),
        (master, "GIVE_UP_AFTER_S", 0.3),
        (master, "GIVE_UP_WHEN_DOWN_S", 0.1),
    ):
        monkeypatch.setattr(module, name, value)
    async with serving(proxy.url, open_tenants=("*",), recheck_s=300, heartbeat_s=300) as url:
        yield url


async def test_sessions_of_an_instance_that_is_cut_off_are_told_to_come_back(url: str, proxy: CutProxy) -> None:
    bob = await Agent.connect(url, "acme/bob")
    await bob.authenticate(token=make_token(SECRET, "acme/bob"))

    proxy.swallow_replies = True
    closing = await bob.expect("closing")
    code = await bob.closed()
    proxy.swallow_replies = False
    proxy.cut()

    assert (closing["code"], code) == ("store_unavailable", 4000)
    assert 1_000 <= closing["retry_after_ms"] < 1_000 + heartbeat.COMEBACK_MS
    await bob.close()
    again = await Agent.connect(url, "acme/bob")
    await again.authenticate(token=make_token(SECRET, "acme/bob"))
    await again.close()


async def test_a_store_that_is_away_for_a_moment_costs_no_session(url: str, proxy: CutProxy) -> None:
    bob = await Agent.connect(url, "acme/bob")
    await bob.authenticate(token=make_token(SECRET, "acme/bob"))

    proxy.cut()
    await bob.say("presence", agents=["acme/bob"])
    await bob.expect("presence")

    assert bob.is_open
    assert bob.got("closing") == []
    await bob.close()
    await until(lambda: not bob.is_open)
