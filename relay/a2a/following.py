"""Following a task: reads it from the store once, until it rests, or as a stream."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import orjson
from aiohttp import web

from relay.a2a.errors import TaskNotFound
from relay.a2a.forms import Json, readable
from relay.a2a.story import Story
from relay.auth import Identity
from relay.core.instance import Instance
from relay.core.task_state import task_state
from relay.errors import StoreUnavailable
from relay.http.long_poll import has_gone, wait_for
from relay.http.sse import EventStream
from relay.store.tasks import Task

LOOK_AGAIN_S = 2.0  # also how often a silent stream gives a sign of life: clients give up on less than 5 s
LOOK_APART_S = 0.1  # parts that come faster are told together, for each look tells the whole story
MAX_STREAM_S = 3_600.0

Write = Callable[[str, Json], bytes]  # an event of a stream, as the caller's generation of A2A has it


@dataclass(frozen=True, slots=True)
class FollowedTask:
    """A task with all its turns that are still kept. The last turn decides its state."""

    story: Story
    turns: list[Task]

    @property
    def last(self) -> Task:
        return self.turns[-1]

    @property
    def rests(self) -> bool:
        """Nothing more will happen unless the caller does something."""
        return self.story.has_ended or self.story.waits_for_caller


class Follower:
    """The tasks of one caller with one agent."""

    def __init__(self, instance: Instance, who: Identity, agent: str) -> None:
        self._instance = instance
        self._who = who
        self._agent = agent
        self._read_before: dict[str, Task] = {}  # a later look reads only what is new

    async def find(self, task_id: str) -> FollowedTask:
        """Raises TaskNotFound, also for another agent's or another caller's."""
        first = await self._read(task_id)
        if first is None or first.to != self._agent:
            raise TaskNotFound("Task not found")
        later = await asyncio.gather(*map(self._read_turn, first.turns))
        turns = [first, *(turn for turn in later if turn is not None)]
        return FollowedTask(await self._tell(turns), turns)

    async def _read_turn(self, turn: str) -> Task | None:
        before = self._read_before.get(turn)
        return before if before is not None and before.reply is not None else await self._read(turn)

    async def _read(self, task_id: str) -> Task | None:
        before = self._read_before.get(task_id)
        task = await self._instance.store.tasks.find(self._who.address, task_id, len(before.parts) if before else 0)
        if task is None:
            return None
        if before is not None:
            parts_bytes = before.parts_bytes + task.parts_bytes
            task = replace(task, parts=[*before.parts, *task.parts], parts_bytes=parts_bytes)
        self._read_before[task_id] = task
        return task

    async def _tell(self, turns: list[Task]) -> Story:
        first, last = turns[0], turns[-1]
        story = Story(first.id, first.thread or first.id)
        for turn in turns:
            for part in turn.parts:
                story.hear(readable(orjson.dumps(part)), is_end=False)
            if turn.reply is not None:
                story.hear(readable(orjson.dumps(turn.reply)), is_end=True)
        if last.reply is None and not story.has_ended:
            now = await task_state(self._instance.store, last)
            story.place(now.state, now.at_ms, has_parts=bool(last.parts))
        return story

    async def wait(self, request: web.Request, task_id: str, until: float) -> FollowedTask:
        """The task when it rests, or as it is at that time or when the caller has gone."""
        task = await self.find(task_id)
        if task.rests:
            return task
        with self._instance.notifier.waiting_for(("task", self._who.address, task.last.id)) as event:
            await self._instance.store.tasks.watch(self._who.address, task.last.id)
            while True:
                event.clear()
                task = await self.find(task_id)
                if task.rests or time.monotonic() >= until or self._instance.draining or has_gone(request):
                    return task
                await wait_for(event, request, min(until, time.monotonic() + LOOK_AGAIN_S))

    async def stream(self, request: web.Request, task: FollowedTask, write: Write) -> web.StreamResponse:
        """The task as it is, then whatever happens to it, until it rests; or to the end of the caller's patience."""
        stream = EventStream(request)
        with self._instance.notifier.waiting_for(("task", self._who.address, task.last.id)) as event:
            if not task.rests:
                await self._instance.store.tasks.watch(self._who.address, task.last.id)
            with suppress(ConnectionError):  # the caller has gone, and will ask again
                await stream.open()
                await stream.send("message", write("task", task.story.task()))
                await self._follow(request, stream, event, task, write)
        return await stream.close()

    async def _follow(
        self, request: web.Request, stream: EventStream, event: asyncio.Event, task: FollowedTask, write: Write
    ) -> None:
        until = self._who.until(MAX_STREAM_S)
        while not task.rests and time.monotonic() < until and not self._instance.draining and stream.is_read:
            event.clear()
            told = task.story
            try:
                task = await self.find(told.task_id)
            except StoreUnavailable:
                pass  # it comes back, or the caller's patience ends
            except TaskNotFound:
                return
            for name, body in news(told, task.story):
                await stream.send("message", write(name, body))
            if not task.rests:
                looked_at = time.monotonic()
                await wait_for(event, request, min(until, looked_at + LOOK_AGAIN_S))
                await asyncio.sleep(looked_at + LOOK_APART_S - time.monotonic())
                await stream.keep_alive(LOOK_AGAIN_S)


def news(before: Story, now: Story) -> list[tuple[str, Json]]:
    """What changed between two reads. An unchanged state is not repeated."""
    happened: list[tuple[str, Json]] = []
    state = before.state
    for name, body in now.events[len(before.events) :]:
        if name == "statusUpdate":
            if body["status"] == {"state": state}:
                continue
            state = body["status"]["state"]
        happened.append((name, body))
    return happened if now.state == state else [*happened, now.status_update()]
