"""Following a task: from the store to its story, once, until it rests, or as a stream."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import orjson
from aiohttp import web

from relay.auth import Identity
from relay.errors import StoreUnavailable
from relay.http.a2a.errors import TaskNotFound
from relay.http.a2a.forms import Json
from relay.http.a2a.story import Story
from relay.http.door import has_gone
from relay.http.streams import EventStream
from relay.http.waiting import wait_for
from relay.hub import Hub
from relay.store.tasks import Task

LOOK_AGAIN_S = 2.0  # also how often a silent stream gives a sign of life: clients give up on less than 5 s
MAX_STREAM_S = 3_600.0
REPLY_WITHIN_MS = 15_000  # an ack may be half of a reply, whose other half is on its way

Write = Callable[[str, Json], bytes]  # an event of a stream, as the caller's generation of A2A has it


@dataclass(frozen=True, slots=True)
class Found:
    """A task with every turn that is still kept. The last one decides what it waits for."""

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

    def __init__(self, hub: Hub, who: Identity, agent: str) -> None:
        self._hub = hub
        self._who = who
        self._agent = agent

    async def find(self, task_id: str) -> Found:
        """Raises TaskNotFound, also for another agent's or another caller's."""
        first = await self._hub.store.tasks.find(self._who.address, task_id)
        if first is None or first.to != self._agent:
            raise TaskNotFound("Task not found")
        later = await asyncio.gather(*(self._hub.store.tasks.find(self._who.address, turn) for turn in first.turns))
        turns = [first, *(turn for turn in later if turn is not None)]
        return Found(await self._tell(turns), turns)

    async def _tell(self, turns: list[Task]) -> Story:
        first, last = turns[0], turns[-1]
        story = Story(first.id, first.thread or first.id)
        for turn in turns:
            for part in turn.parts:
                story.hear(orjson.loads(orjson.dumps(part)), is_end=False)
            if turn.reply is not None:
                story.hear(orjson.loads(orjson.dumps(turn.reply)), is_end=True)
        if last.reply is None and not story.has_ended:
            where, at_ms = await self._where(last)
            story.place(where, at_ms, has_parts=bool(last.parts))
        return story

    async def _where(self, turn: Task) -> tuple[str, int | None]:
        """Where the message of a turn is. How it ended is kept, for the mailbox forgets it sooner than the task."""
        if turn.ended is not None:
            return turn.ended, None
        if turn.blocked:
            return "queued", None  # whoever is blocked waits for ever, and is not told why
        store = self._hub.store
        found = await store.looks.where(turn.requester, turn.to, turn.id)
        if found is None:
            return "expired", None
        if found.state == "acked" and store.clock.now_ms() - found.at_ms < REPLY_WITHIN_MS:
            return "held", None
        if found.state in ("acked", "dead", "expired", "cancelled"):
            await store.tasks.close(turn.requester, turn.id, turn.to, found.state)
        return found.state, found.at_ms

    async def wait(self, request: web.Request, task_id: str, until: float) -> Found:
        """The task when it rests, or as it is at that time or when the caller has gone."""
        found = await self.find(task_id)
        if found.rests:
            return found
        with self._hub.waiters.waiting_for(("task", self._who.address, found.last.id)) as event:
            await self._hub.store.tasks.watch(self._who.address, found.last.id)
            while True:
                event.clear()
                found = await self.find(task_id)
                if found.rests or time.monotonic() >= until or self._hub.draining or has_gone(request):
                    return found
                await wait_for(event, request, min(until, time.monotonic() + LOOK_AGAIN_S))

    async def stream(self, request: web.Request, found: Found, write: Write) -> web.StreamResponse:
        """The task as it is, then whatever happens to it, until it rests; or to the end of the caller's patience."""
        stream = EventStream(request)
        with self._hub.waiters.waiting_for(("task", self._who.address, found.last.id)) as event:
            if not found.rests:
                await self._hub.store.tasks.watch(self._who.address, found.last.id)
            with suppress(ConnectionError):  # the caller has gone, and will ask again
                await stream.open()
                await stream.send("message", write("task", found.story.task()))
                await self._follow(request, stream, event, found, write)
        return await stream.close()

    async def _follow(
        self, request: web.Request, stream: EventStream, event: asyncio.Event, found: Found, write: Write
    ) -> None:
        until = time.monotonic() + MAX_STREAM_S
        while not found.rests and time.monotonic() < until and self._may_go_on() and stream.is_read:
            event.clear()
            told = found.story
            try:
                found = await self.find(told.task_id)
            except StoreUnavailable:
                pass  # it comes back, or the caller's patience ends
            except TaskNotFound:
                return
            for name, body in news(told, found.story):
                await stream.send("message", write(name, body))
            if not found.rests:
                await wait_for(event, request, min(until, time.monotonic() + LOOK_AGAIN_S))
                await stream.keep_alive(LOOK_AGAIN_S)

    def _may_go_on(self) -> bool:
        return not self._hub.draining and not self._who.has_expired()


def news(before: Story, now: Story) -> list[tuple[str, Json]]:
    """What happened between two looks; a state that was told is not told again for its own sake."""
    found: list[tuple[str, Json]] = []
    state = before.state
    for name, body in now.events[len(before.events) :]:
        if name == "statusUpdate":
            if body["status"] == {"state": state}:
                continue
            state = body["status"]["state"]
        found.append((name, body))
    return found if now.state == state else [*found, now.status_update()]
