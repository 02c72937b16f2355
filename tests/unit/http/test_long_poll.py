"""A long poll sleeps until something happens, its time has come, or its caller has gone."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from relay.http.long_poll import wait_for

PATIENCE_S = 0.5  # of the test; far less than the waits in it


@pytest.fixture
def request_() -> Any:
    """As much of a request as a wait looks at."""
    transport = SimpleNamespace(is_closing=lambda: False)
    return SimpleNamespace(transport=transport, protocol=SimpleNamespace(on_lost=None))


async def waits(request: Any, event: asyncio.Event, wait_s: float = 60.0) -> "asyncio.Task[None]":
    task = asyncio.create_task(wait_for(event, request, time.monotonic() + wait_s))
    await asyncio.sleep(0)
    return task


async def test_it_ends_when_something_happens(request_: Any) -> None:
    event = asyncio.Event()
    task = await waits(request_, event)

    event.set()

    await asyncio.wait_for(task, PATIENCE_S)
    assert request_.protocol.on_lost is None


async def test_it_ends_when_the_caller_goes(request_: Any) -> None:
    task = await waits(request_, asyncio.Event())

    request_.protocol.on_lost()

    await asyncio.wait_for(task, PATIENCE_S)


async def test_it_does_not_begin_when_the_caller_has_gone(request_: Any) -> None:
    request_.transport = None

    await asyncio.wait_for(wait_for(asyncio.Event(), request_, time.monotonic() + 60), PATIENCE_S)


async def test_it_ends_when_its_time_has_come(request_: Any) -> None:
    await asyncio.wait_for(wait_for(asyncio.Event(), request_, time.monotonic() - 1), PATIENCE_S)


async def test_it_sleeps_meanwhile(request_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *more: Any, **named: Any) -> asyncio.TimerHandle:
        timers.append(when - loop.time())
        return call_at(when, *more, **named)

    monkeypatch.setattr(loop, "call_at", counted)

    task = await waits(request_, asyncio.Event())

    assert [left_s > 4 for left_s in timers] == [True]  # one timer, and none that looks in between
    task.cancel()
