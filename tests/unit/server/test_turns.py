"""Turns: many who have much to be read do not make a turn of the event loop long."""

import asyncio
import time

import pytest

from relay.server import turns
from relay.server.turns import Turns


async def some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_reads_on_once_in_a_turn_and_in_order() -> None:
    found: list[str] = []
    waiting = Turns()

    def again() -> None:
        found.append("again")
        if len(found) < 4:
            waiting.wait(again)

    waiting.wait(again)
    waiting.wait(lambda: found.append("once"))
    await asyncio.sleep(0)
    in_the_first_turn = list(found)
    await some_turns()

    assert in_the_first_turn == ["again", "once"]
    assert found == ["again", "once", "again", "again"]


async def test_a_turn_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    waiting = Turns()
    clock = iter(range(100))
    monkeypatch.setattr(turns, "A_TURN_S", 2)

    for n in range(6):
        waiting.wait(lambda n=n: found.append(n))  # type: ignore[misc]
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    waiting._go_round()
    monkeypatch.undo()
    in_the_first_turn = list(found)
    await some_turns()

    assert in_the_first_turn == [0, 1]
    assert found == list(range(6))
