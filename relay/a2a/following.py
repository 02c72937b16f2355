"""Following a task: reads it from the store once, until it rests, or as a stream."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import orjson
from aiohttp import web

from relay.a2a.errors import TaskNotFound, Unsupported
from relay.a2a.forms import Json, readable
from relay.a2a.task_story import Story
from relay.auth import Identity
from relay.core.instance.instance import Instance
from relay.core.task_state import task_state
from relay.errors import StoreUnavailable
from relay.http.answer_budget import reserved
from relay.http.long_poll import has_gone, wait_for
from relay.http.sse import EventStream
from relay.store.replies.tasks import Task
from relay.store.store import Store

LOOK_AGAIN_S = 2.0  # also how often a silent stream gives a sign of life: clients give up on less than 5 s
LOOK_APART_S = 0.1  # parts that come faster are told together, for each look tells the whole story
MAX_STREAM_S = 3_600.0
FETCHED_AT_ONCE = 8  # tasks of all callers of an instance

Write = Callable[[str, Json], bytes]  # an event of a stream, as the caller's generation of A2A has it


@dataclass(frozen=True, slots=True)
class FollowedTask:
    """A task with all its turns that are still kept. The last turn decides its state."""

    story: Story
    turns: list[Task]

    @property
    def last(self) -> Task:
        return self.turns[-1]


class TaskReading:
    """What all callers of an instance share: a megabyte of answers is many times that once it is read, and takes a
    while. So few are fetched at once, and they are read one by one."""

    def __init__(self) -> None:
        self.few = asyncio.Semaphore(FETCHED_AT_ONCE)
        self._one = asyncio.Lock()

    async def in_turn(self, tell: Callable[[], Story]) -> Story:
        """Before the next one has its turn, everybody else has as much time as this one took."""
        await self._one.acquire()
        began = time.monotonic()
        try:
            return tell()
        finally:
            asyncio.get_running_loop().call_later(time.monotonic() - began, self._one.release)


TASK_READING = web.AppKey("task_reading", TaskReading)


class Listener:
    """Hears what is new of one task, and keeps of what it has heard only what it needs to go on."""

    def __init__(self, store: Store, reading: TaskReading, caller: str, agent: str, task_id: str) -> None:
        self._store = store
        self._reading = reading
        self._caller = caller
        self._agent = agent
        self._task_id = task_id
        self._story: Story | None = None
        self._heard: Counter[str] = Counter()  # turn -> how many of its parts
        self._over: set[str] = set()  # turns whose last answer was heard

    async def listen(self) -> FollowedTask:
        """The task as it is now; its events, parts and answers are those that are new. Raises TaskNotFound, also for
        another agent's or another caller's, and StoreUnavailable."""
        async with self._reading.few:
            turns = await self._read()
            last = turns[-1]
            now = await task_state(self._store, last) if last.reply is None else None
            story = await self._reading.in_turn(partial(self._hear, turns))
        if now is not None and not story.has_ended:
            story.place(now.state, now.at_ms, has_parts=self._heard[last.id] > 0)
        return FollowedTask(story, turns)

    async def _read(self) -> list[Task]:
        """The turns, each with what is new of it."""
        first = await self._find(self._task_id)
        if first is None or first.to != self._agent:
            raise TaskNotFound("Task not found")
        later = await asyncio.gather(*map(self._find, first.turns))
        return [first, *(turn for turn in later if turn is not None)]

    async def _find(self, turn: str) -> Task | None:
        return await self._store.tasks.find(self._caller, turn, self._heard[turn])

    def _hear(self, turns: list[Task]) -> Story:
        story = self._story = self._story or Story(turns[0].id, turns[0].thread or turns[0].id)
        for turn in turns:
            for part in turn.parts:
                story.hear(readable(orjson.dumps(part)), is_end=False)
            self._heard[turn.id] += len(turn.parts)
            if turn.reply is not None and turn.id not in self._over:
                self._over.add(turn.id)
                story.hear(readable(orjson.dumps(turn.reply)), is_end=True)
        told = story.copy()
        story.forget()
        return told


class Follower:
    """The tasks of one caller with one agent."""

    def __init__(self, request: web.Request, instance: Instance, who: Identity, agent: str) -> None:
        self._request = request
        self._instance = instance
        self._who = who
        self._agent = agent

    def _listener(self, task_id: str) -> Listener:
        reading = self._request.app[TASK_READING]
        return Listener(self._instance.store, reading, self._who.address, self._agent, task_id)

    async def find(self, task_id: str) -> FollowedTask:
        """Raises TaskNotFound, RateLimited and StoreUnavailable."""
        return await self._first(self._listener(task_id))

    async def _first(self, listener: Listener) -> FollowedTask:
        """The whole task. Raises RateLimited while too many answers wait to be read."""
        with reserved(self._request):
            return await listener.listen()

    async def wait(self, task_id: str, until: float) -> FollowedTask:
        """The task when it rests, or as it is at that time or when the caller has gone."""
        listener = self._listener(task_id)
        last = await self._rests_or_last(listener)
        if last is not None:
            await self._until_it_rests(listener, last, until)
        return await self.find(task_id)

    async def _rests_or_last(self, listener: Listener) -> str | None:
        """Which turn is waited for, None if there is nothing to wait for."""
        task = await self._first(listener)
        return None if task.story.rests else task.last.id

    async def _until_it_rests(self, listener: Listener, last: str, until: float) -> None:
        with self._instance.notifier.waiting_for(("task", self._who.address, last)) as event:
            await self._instance.store.tasks.follow(self._who.address, last)
            while True:
                event.clear()
                if (await listener.listen()).story.rests:
                    return
                if time.monotonic() >= until or self._instance.draining or has_gone(self._request):
                    return
                await wait_for(event, self._request, min(until, time.monotonic() + LOOK_AGAIN_S))

    async def stream(self, task_id: str, write: Write, must_go_on: bool = False) -> web.StreamResponse:
        """The task as it is, then whatever happens to it, until it rests; or to the end of the caller's patience.

        Raises Unsupported for one that has ended, if it must go on."""
        listener = self._listener(task_id)
        task = await self._first(listener)
        if must_go_on and task.story.has_ended:
            raise Unsupported("The task has ended; ask for it instead")
        stream, last = EventStream(self._request), task.last.id
        state, rests, told = task.story.state, task.story.rests, write("task", task.story.task())
        del task  # it is large, and the stream may last
        with self._instance.notifier.waiting_for(("task", self._who.address, last)) as event:
            if not rests:
                await self._instance.store.tasks.follow(self._who.address, last)
            with suppress(ConnectionError):  # the caller has gone, and will ask again
                await stream.open()
                await stream.send("message", told)
                del told
                if not rests:
                    await self._follow(stream, event, listener, state, write)
        return await stream.close()

    async def _follow(
        self, stream: EventStream, event: asyncio.Event, listener: Listener, state: str, write: Write
    ) -> None:
        until = self._who.until(MAX_STREAM_S)
        while time.monotonic() < until and not self._instance.draining and stream.is_read:
            event.clear()
            looked_at = time.monotonic()
            try:
                story = (await listener.listen()).story
            except StoreUnavailable:
                pass  # it comes back, or the caller's patience ends
            except TaskNotFound:
                return
            else:
                for name, body in news(state, story):
                    await stream.send("message", write(name, body))
                if story.rests:
                    return
                state = story.state
                del story
            await wait_for(event, self._request, min(until, looked_at + LOOK_AGAIN_S))
            await asyncio.sleep(looked_at + LOOK_APART_S - time.monotonic())
            await stream.keep_alive(LOOK_AGAIN_S)


def news(state: str, now: Story) -> list[tuple[str, Json]]:
    """What happened since a look; a state that was told is not told again for its own sake."""
    happened: list[tuple[str, Json]] = []
    for name, body in now.events:
        if name == "statusUpdate":
            if body["status"] == {"state": state}:
                continue
            state = body["status"]["state"]
        happened.append((name, body))
    return happened if now.state == state else [*happened, now.status_update()]
