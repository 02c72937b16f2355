"""Tasks: the state of a request, polled, awaited or followed."""

import time
from typing import Annotated

import msgspec
import orjson
from aiohttp import web
from msgspec import UNSET, Meta, Raw

from relay.core.instance.instance import Instance
from relay.core.task_state import ENDS, task_state
from relay.errors import NotFound, RateLimited
from relay.http.answer_budget import reserved
from relay.http.app_keys import INSTANCE, LONG_POLLS
from relay.http.auth import check_may_see_payloads, identity, sender_asked_for
from relay.http.long_poll import has_gone, wait_for
from relay.http.operation import EVENTS, operation
from relay.http.query import SenderQuery, read_query
from relay.http.responses import json_response
from relay.http.schemas.fields import doc
from relay.http.schemas.messages import TaskState
from relay.http.sse import EventStream, whole_number
from relay.store.replies.tasks import Task

routes = web.RouteTableDef()

MAX_STREAM_S = 3_600.0
PARTS_AT_ONCE = 4  # that are read for a follower, who may not read them
LAST_EVENT = ("Last-Event-ID", "Where a follower goes on: the id of the last event that it has seen.")


class TaskQuery(SenderQuery):
    wait_s: Annotated[float, Meta(ge=0, le=60), doc("How long to wait for the end of the task.", 30)] = 0


@routes.get("/v1/tasks/{id:[^/]+}")
@operation(
    "send",
    query=TaskQuery,
    headers=(LAST_EVENT,),
    answers={200: (TaskState, EVENTS), 204: None},
    errors=(NotFound, RateLimited),
)
async def task(request: web.Request) -> web.StreamResponse:
    """Show a task.

    State, parts and reply. `wait_s` waits for its end; `Accept: text/event-stream` follows it.
    """
    who = identity(request)
    instance = request.app[INSTANCE]
    asked = read_query(request, TaskQuery)
    requester, task_id = sender_asked_for(asked.sender, who), request.match_info["id"]
    check_may_see_payloads(who, requester, "send")
    if "text/event-stream" in request.headers.get("Accept", "") and request.method == "GET":
        with request.app[LONG_POLLS].slot(who):
            return await _follow(request, instance, requester, task_id, who.until(MAX_STREAM_S))
    if asked.wait_s == 0:
        return json_response(await _whole(request, requester, task_id))
    with request.app[LONG_POLLS].slot(who):
        return json_response(await wait_for_end(request, requester, task_id, who.until(asked.wait_s)))


async def _find(instance: Instance, requester: str, task_id: str, parts_after: int | None = 0) -> Task:
    task = await instance.store.tasks.find(requester, task_id, parts_after)
    if task is None:
        raise NotFound("no such task")
    return task


async def _whole(request: web.Request, requester: str, task_id: str) -> TaskState:
    """With all its parts, which may be a megabyte. Raises NotFound, and RateLimited if there is no room for them."""
    instance = request.app[INSTANCE]
    with reserved(request, await instance.store.tasks.size(requester, task_id)):
        return await describe_task(instance, await _find(instance, requester, task_id))


async def wait_for_end(request: web.Request, requester: str, task_id: str, until: float) -> TaskState:
    """The task when it has ended, or as it is at that time. Raises NotFound."""
    instance = request.app[INSTANCE]
    with instance.notifier.waiting_for(("task", requester, task_id)) as event:
        task = await _find(instance, requester, task_id, None)
        if task.reply is None and until > time.monotonic():
            await instance.store.tasks.follow(requester, task_id)
        while True:
            event.clear()
            described = await describe_task(instance, await _find(instance, requester, task_id, None))
            if described.state in ENDS or until <= time.monotonic() or instance.draining or has_gone(request):
                return await _whole(request, requester, task_id)
            await wait_for(event, request, until)


async def describe_task(instance: Instance, task: Task) -> TaskState:
    """A task as the caller sees it."""
    state = (await task_state(instance.store, task)).state
    return TaskState(
        id=task.id,
        to=task.to,
        state="queued" if state == "delayed" else state,
        parts=[Raw(orjson.dumps(part)) for part in task.parts] or UNSET,
        reply=UNSET if task.reply is None else Raw(orjson.dumps(task.reply)),
    )


async def _follow(
    request: web.Request, instance: Instance, requester: str, task_id: str, until: float
) -> web.StreamResponse:
    """Parts as they come, then the end. An event's id is the number of the part, so a follower can go on."""
    task = await _find(instance, requester, task_id, None)
    stream = EventStream(request)
    sent = whole_number(stream.last_event_id) or 0
    if task.reply is not None and sent > task.part_count:
        return web.Response(status=204)  # it has seen the end; this is how a browser's EventSource is told to stop
    await stream.open()
    await instance.store.tasks.follow(requester, task_id)
    with instance.notifier.waiting_for(("task", requester, task_id)) as event:
        while stream.is_read and time.monotonic() < until and not instance.draining:
            event.clear()
            latest = await instance.store.tasks.find(requester, task_id, sent, PARTS_AT_ONCE)
            if latest is None:
                break
            described = await describe_task(instance, latest)
            parts, described.parts = described.parts or [], UNSET
            for number, part in enumerate(parts, sent + 1):
                await stream.send("part", bytes(part), str(number))
            sent += len(parts)
            if parts and sent < latest.part_count:
                continue
            if described.state in ENDS:
                await stream.send("end", msgspec.json.encode(described), str(sent + 1))
                break
            await wait_for(event, request, until)
            await stream.keep_alive()
    return await stream.close()
