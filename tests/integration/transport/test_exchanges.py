"""The connection for calls: lost, half open, idle. What was under way is told, and nobody else waits for it."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from relay.errors import StoreUnavailable
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.resp import encode_command
from relay.store.redis.servers import link, master
from relay.store.redis.servers.connect import home_at
from tests.agents import until
from tests.proxy import CutProxy
from tests.servers import RealServer

AT_ONCE_S = 1.5  # well below what the pipeline waits for an answer


@pytest.fixture
async def proxy(redis_server: RealServer) -> AsyncIterator[CutProxy]:
    async with CutProxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def pipeline(proxy: CutProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CommandPipeline]:
    monkeypatch.setattr(master, "PING_EVERY_S", 0.05)
    pipeline = CommandPipeline(home_at(proxy.url))
    running = asyncio.create_task(pipeline.run())
    yield pipeline
    running.cancel()
    await asyncio.wait((running,))


async def test_a_connection_lost_with_nothing_to_repeat_does_not_hold_up_the_next_call(
    pipeline: CommandPipeline, proxy: CutProxy
) -> None:
    await pipeline.command("PING")
    proxy.swallow_from = b"ECHO"
    taking = asyncio.create_task(pipeline.reply(encode_command("ECHO", "once"), may_repeat=False))
    await until(lambda: proxy.swallow_replies, "it is under way")

    proxy.swallow_replies = False
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        await taking
    began = time.monotonic()
    await pipeline.command("PING")

    assert time.monotonic() - began < AT_ONCE_S


async def test_an_idle_connection_that_has_died_silently_is_noticed(
    pipeline: CommandPipeline, proxy: CutProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "EXCHANGE_TIMEOUT_S", 0.2)
    await pipeline.command("PING")

    proxy.swallow_replies = True
    await until(lambda: pipeline.masters.all[0].silent_s() > 0.3, "nothing is answered, and nobody asked for anything")
    proxy.swallow_replies = False

    await until(lambda: pipeline.masters.all[0].silent_s() < 0.2, "a new connection was made")
