"""Listening to a task: each answer is read once, and of what was read only what is needed to go on is kept."""

import asyncio
from typing import Any

import pytest

from relay.a2a import following
from relay.a2a.following import Listener, TaskReading
from relay.a2a.task_story import Story
from tests.builders import ALICE, BOB, Desk, a_message


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read of an agent's answers."""
    seen: list[Any] = []
    readable = following.readable

    def spy(text: bytes) -> object:
        seen.append(readable(text))
        return seen[-1]

    monkeypatch.setattr(following, "readable", spy)
    return seen


async def test_each_answer_is_read_once(desk: Desk, read: list[Any]) -> None:
    sent = await desk.send_one(a_message("ask", request=True))
    desk.store.tasks.open(ALICE, "ask", BOB, 60_000)
    bob = await desk.join()
    await desk.take(bob)
    listener = Listener(desk.store, TaskReading(), ALICE, BOB, "ask")

    told = []
    for n, more in enumerate((True, True, False)):
        await desk.reply(bob, sent.entry, n, more=more)
        await desk.store.pipeline.finish()
        for _ in range(2):
            story = (await listener.listen()).story
            told.append([name for name, _ in story.events])

    assert read == [0, 1, 2]
    assert told == [
        *(["statusUpdate", "artifactUpdate"], []),
        *(["artifactUpdate"], []),
        *(["artifactUpdate", "statusUpdate"], []),
    ]
    assert story.has_ended
    assert story.artifacts["reply"]["parts"] == []


async def test_others_have_as_much_time_as_one_that_is_read() -> None:
    reading, order = TaskReading(), list[str]()

    def tell() -> Story:
        order.append("story")
        return Story("t", "c")

    async def others() -> None:
        for _ in range(3):
            order.append("others")
            await asyncio.sleep(0)

    await asyncio.gather(reading.in_turn(tell), reading.in_turn(tell), others())

    assert order[:3] == ["story", "others", "others"]
