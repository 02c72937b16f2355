"""Tasks: what became of a request, polled, waited for or followed."""

import time
from typing import Any

import orjson
from aiohttp import web

from relay.errors import NotFound, RateLimited
from relay.http.answers import TaskState
from relay.http.calls import EVENTS, call
from relay.http.door import HUB, WAITS, has_gone, identity, json, sender_asked_for
from relay.http.parameters import FROM, Number
from relay.http.streams import EventStream, whole_number
from relay.http.waiting import wait_for
from relay.hub import Hub
from relay.store.tasks import Task

routes = web.RouteTableDef()

MAX_STREAM_S = 3_600.0
ON_ITS_WAY_MS = 10_000
ENDS = ("replied", "dead", "expired", "cancelled", "acked")
WAIT_S = Number("wait_s", 0, 60, "How long to wait for the end of the task.")
LAST_EVENT = ("Last-Event-ID", "Where a follower goes on: the id of the last event that it has seen.")


@routes.get("/v1/tasks/{id:[^/]+}")
@call(
    "send",
    query=(WAIT_S, FROM),
    headers=(LAST_EVENT,),
    answers={200: (TaskState, EVENTS), 204: None},
    errors=(NotFound, RateLimited),
)
async def task(request: web.Request) -> web.StreamResponse:
    """A task: state, parts and reply. `wait_s` waits for its end; `Accept: text/event-stream` follows it."""
    who = identity(request)
    hub = request.app[HUB]
    requester, task_id = sender_asked_for(request, who), request.match_info["id"]
    wait_s = WAIT_S.of(request) or 0.0
    if "text/event-stream" in request.headers.get("Accept", "") and request.method == "GET":
        with request.app[WAITS].one_more(who):
            return await _follow(request, hub, requester, task_id)
    if wait_s == 0:
        return json(await describe_task(hub, await _find(hub, requester, task_id)))
    with request.app[WAITS].one_more(who):
        return json(await wait_for_end(request, requester, task_id, time.monotonic() + wait_s))


async def _find(hub: Hub, requester: str, task_id: str) -> Task:
    found = await hub.store.tasks.find(requester, task_id)
    if found is None:
        raise NotFound("no such task")
    return found


async def wait_for_end(request: web.Request, requester: str, task_id: str, until: float) -> dict[str, Any]:
    """The task when it has ended, or as it is at that time. Raises NotFound."""
    hub = request.app[HUB]
    with hub.waiters.waiting_for(("task", requester, task_id)) as event:
        found = await _find(hub, requester, task_id)
        if found.reply is None and until > time.monotonic():
            await hub.store.tasks.watch(requester, task_id)
        while True:
            event.clear()
            described = await describe_task(hub, await _find(hub, requester, task_id))
            if described["state"] in ENDS or until <= time.monotonic() or hub.draining or has_gone(request):
                return described
            await wait_for(event, request, until)


async def describe_task(hub: Hub, found: Task) -> dict[str, Any]:
    """What a caller is told of a task."""
    fields: dict[str, Any] = {"id": found.id, "to": found.to, "state": "replied"}
    if found.parts:
        fields["parts"] = found.parts
    if found.reply is not None:
        fields["reply"] = found.reply
        return fields
    where = await hub.store.looks.where(found.requester, found.to, found.id)
    state = where.state if where else "queued" if found.blocked else "expired"
    if state == "delayed":
        state = "queued"
    if where and state == "acked" and hub.store.clock.now_ms() - where.at_ms < ON_ITS_WAY_MS:
        state = "held"  # a reply is acked in the recipient's shard first, and arrives with the task a moment later
    return fields | {"state": state}


async def _follow(request: web.Request, hub: Hub, requester: str, task_id: str) -> web.StreamResponse:
    """Parts as they come, then the end. An event's id is the number of the part, so a follower can go on."""
    found = await _find(hub, requester, task_id)
    stream = EventStream(request)
    sent = whole_number(stream.last_event_id) or 0
    if found.reply is not None and sent > len(found.parts):
        return web.Response(status=204)  # it has seen the end; this is how a browser's EventSource is told to stop
    await stream.open()
    await hub.store.tasks.watch(requester, task_id)
    until = time.monotonic() + MAX_STREAM_S
    with hub.waiters.waiting_for(("task", requester, task_id)) as event:
        while stream.is_read and time.monotonic() < until and not hub.draining:
            event.clear()
            latest = await hub.store.tasks.find(requester, task_id)
            if latest is None:
                break
            described = await describe_task(hub, latest)
            parts = described.pop("parts", [])
            for number, part in enumerate(parts[sent:], sent + 1):
                await stream.send("part", orjson.dumps(part), str(number))
            sent = max(sent, len(parts))
            if described["state"] in ENDS:
                await stream.send("end", orjson.dumps(described), str(sent + 1))
                break
            await wait_for(event, request, until)
            await stream.keep_alive()
    return await stream.close()
