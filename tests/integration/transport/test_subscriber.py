"""The subscription for wakes: refused, lost, half open. It says so, tries again, and leaves no error behind."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from relay.store.keys import Keys
from relay.store.redis import subscription
from relay.store.redis.servers.connect import home_at
from relay.store.redis.subscriber import WakeSubscriber
from tests.agents import until
from tests.proxy import CutProxy
from tests.servers import RealServer

KEYS = Keys(1, 1_000, 1_000, "wakeups")


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[WakeSubscriber]:
    heard = WakeSubscriber(home_at(url), KEYS, "here", lambda _: None, lambda *_: None, lambda: None)
    running = asyncio.create_task(heard.run())
    try:
        yield heard
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def test_a_refused_subscription_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with RealServer() as server, server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "resetchannels")
        async with listening(server.url) as heard:
            await until(lambda: _refusals(caplog), "the log says it")
            assert heard.heard_share == 0

            client.execute_command("ACL", "SETUSER", "default", "allchannels")

            await until(lambda: heard.heard_share == 1, "it was tried again")
    assert "NOPERM" in _refusals(caplog)[0].error
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def _refusals(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.getMessage() == "wakeups_lost"]


async def test_a_subscription_lost_with_a_ping_unanswered_leaves_no_error_behind(
    redis_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "PING_EVERY_S", 0.3)
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with CutProxy(redis_server.port) as proxy, listening(proxy.url) as heard:
        await until(lambda: heard.heard_share == 1)

        proxy.swallow_from = b"PING"
        await until(lambda: proxy.swallow_replies, "a ping is unanswered")
        proxy.swallow_replies = False
        proxy.refuse()
        proxy.cut()
        await until(lambda: heard.heard_share == 0, "it is lost")

        await proxy.accept()
        await until(lambda: heard.heard_share == 1, "it is there again")
    gc.collect()
    assert unhandled == []


async def test_a_subscription_that_has_died_silently_is_made_again(
    redis_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "PING_EVERY_S", 0.1)
    async with CutProxy(redis_server.port) as proxy, listening(proxy.url) as heard:
        await until(lambda: heard.heard_share == 1)

        proxy.swallow_replies = True
        await until(lambda: heard.heard_share == 0)
        proxy.swallow_replies = False

        await until(lambda: heard.heard_share == 1)
