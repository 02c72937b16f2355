"""A2A's JSON-RPC: one route for each agent, in the names of 1.0 and of 0.3."""

import math
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import orjson
from aiohttp import web
from msgspec import Raw

from relay.auth import Identity
from relay.errors import Forbidden, Malformed, NotFound, RelayError
from relay.http.a2a import forms, older
from relay.http.a2a.errors import (
    CardNotConfigured,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    PushNotSupported,
    RpcError,
    TaskNotCancelable,
    Unsupported,
    VersionNotSupported,
    told,
)
from relay.http.a2a.following import Follower, Found
from relay.http.a2a.forms import Json
from relay.http.door import HUB, WAITS, SlowBody, identity, json, read
from relay.hub import Hub
from relay.protocol import Message, is_agent
from relay.sending import checked, send_all

routes = web.RouteTableDef()

MESSAGE = "a2a.message"  # the type of what reaches the agent
MAX_WAIT_S = 60.0  # how long a blocking send waits before it answers with the task as it is
MAX_CONTEXT = 128
MAX_ID = 128
MAX_TURNS = 100
TASK_IDS = uuid.UUID("8a6f1f0e-6a1c-4b8e-9d53-0c5b2f6b7a11")

Generation = Literal["1.0", "0.3"]


@dataclass(frozen=True, slots=True)
class Rpc:
    """One call, whose caller is known."""

    request: web.Request
    who: Identity
    agent: str
    generation: Generation
    id: str | int | float | None
    params: Json

    @property
    def hub(self) -> Hub:
        return self.request.app[HUB]

    @property
    def tasks(self) -> Follower:
        return Follower(self.hub, self.who, self.agent)

    def result(self, value: Json) -> Json:
        return {"jsonrpc": "2.0", "id": self.id, "result": value}

    def event(self, name: str, value: Json) -> bytes:
        """An event of a stream, which is a response of its own."""
        return orjson.dumps(self.result({name: value} if self.generation == "1.0" else older.event(name, value)))

    def task(self, found: Found, is_answer_to_send: bool = False) -> web.Response:
        task = found.story.task(self.history_length())
        if self.generation == "0.3":
            return json(self.result(older.task(task)))
        return json(self.result({"task": task} if is_answer_to_send else task))

    def history_length(self) -> int | None:
        """How much of the history is wanted; None: all. In 0.3, 0 is all of it too."""
        asked = _configuration(self.params).get("historyLength", self.params.get("historyLength"))
        if asked is None or (asked == 0 and self.generation == "0.3"):
            return None
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            raise InvalidParams("historyLength: expected a number from 0")
        return asked

    def task_id(self) -> str:
        task_id = self.params.get("id")
        if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_ID:
            raise InvalidParams("id: expected the id of a task")
        return task_id


def _configuration(params: Json) -> Json:
    found = params.get("configuration")
    if found is not None and not isinstance(found, dict):
        raise InvalidParams("configuration: expected an object")
    return found or {}


# -- the route


@routes.post("/a2a/{tenant}/{agent}")
async def call(request: web.Request) -> web.StreamResponse:
    """A2A's JSON-RPC 2.0, one request for each call; streams are Server-Sent Events.

    Needs the scope send. What JSON-RPC or A2A itself refuses is answered 200 with an `error`; what the relay refuses
    (401 403 404 413 429 503) has its usual status, and from 404 on an `error` of JSON-RPC too.
    """
    who = identity(request, "send")
    agent = _agent(request, who)
    call_id: str | int | float | None = None
    try:
        envelope = _parse(await _text(request))
        call_id = envelope.get("id")
        generation, method = _method(request, envelope)
        return await method(Rpc(request, who, agent, generation, call_id, _params(envelope)))
    except RpcError as error:
        return _refuse(call_id, error)
    except Forbidden:
        raise
    except RelayError as error:
        return _refuse(call_id, told(error))


def _agent(request: web.Request, who: Identity) -> str:
    tenant, agent = request.match_info["tenant"], request.match_info["agent"]
    if not is_agent(tenant) or not is_agent(agent):
        raise NotFound("no such agent")
    if tenant != who.tenant:
        raise Forbidden("agents of another tenant")
    return f"{tenant}/{agent}"


def _refuse(call_id: str | int | float | None, error: RpcError) -> web.Response:
    body = {"jsonrpc": "2.0", "id": call_id, "error": error.as_fields()}
    headers = {}
    if "retry_after_ms" in error.details:
        headers["Retry-After"] = str(max(1, math.ceil(error.details["retry_after_ms"] / 1_000)))
    return json(body, status=error.status, **headers)


async def _text(request: web.Request) -> str:
    try:
        return await read(request)
    except Malformed as error:
        raise ParseError(error.message, error.status if isinstance(error, SlowBody) else 200) from None


def _parse(text: str) -> Json:
    try:
        envelope = orjson.loads(text)
    except (orjson.JSONDecodeError, RecursionError):
        raise ParseError("Invalid JSON payload") from None
    if not isinstance(envelope, dict):
        raise InvalidRequest("A request is one JSON object; batches are not supported")
    call_id = envelope.get("id")
    if isinstance(call_id, bool) or not isinstance(call_id, str | int | float | None):
        envelope["id"] = None
        raise InvalidRequest("id: expected a string, a number or null")
    return envelope


def _method(request: web.Request, envelope: Json) -> tuple[Generation, "Method"]:
    if envelope.get("jsonrpc") != "2.0":
        raise InvalidRequest("jsonrpc: expected 2.0")
    name = envelope.get("method")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("method: expected a string")
    version = request.headers.get("A2A-Version", "")
    if version and version.split(".")[0] != "1" and version.split(".")[:2] != ["0", "3"]:
        raise VersionNotSupported("The relay speaks A2A 1.0 and 0.3")
    if name not in METHODS:
        raise MethodNotFound("Method not found")
    return METHODS[name]


def _params(envelope: Json) -> Json:
    params = envelope.get("params", {})
    if not isinstance(params, dict):
        raise InvalidParams("params: expected an object")
    return params


# -- sending


async def send(rpc: Rpc) -> web.StreamResponse:
    """The message becomes a request to the agent; unless told to return at once, its end is waited for."""
    rpc.history_length()
    if not _is_blocking(rpc):
        return rpc.task(await rpc.tasks.find(await _send(rpc)), is_answer_to_send=True)
    with rpc.request.app[WAITS].one_more(rpc.who):
        found = await rpc.tasks.wait(rpc.request, await _send(rpc), time.monotonic() + MAX_WAIT_S)
    return rpc.task(found, is_answer_to_send=True)


async def stream(rpc: Rpc) -> web.StreamResponse:
    """The same, followed as it goes."""
    with rpc.request.app[WAITS].one_more(rpc.who):
        found = await rpc.tasks.find(await _send(rpc))
        return await rpc.tasks.stream(rpc.request, found, rpc.event)


def _is_blocking(rpc: Rpc) -> bool:
    name, default = ("returnImmediately", False) if rpc.generation == "1.0" else ("blocking", True)
    asked = _configuration(rpc.params).get(name)
    if asked is not None and not isinstance(asked, bool):
        raise InvalidParams(f"{name}: expected true or false")
    chosen = default if asked is None else asked
    return not chosen if rpc.generation == "1.0" else chosen


async def _send(rpc: Rpc) -> str:
    """Sends the message, at most once however often it comes. Returns the task that it belongs to."""
    message = _message(rpc)
    own = str(uuid.uuid5(TASK_IDS, f"{rpc.agent}\0{message['messageId']}"))
    known = await rpc.hub.store.tasks.find(rpc.who.address, own)
    task_id: str = message.get("taskId", own)
    if task_id != own:
        context = _may_go_on(await rpc.tasks.find(task_id), own, message)
    else:
        context = (known and known.thread) or message.get("contextId", own)
    sent = _relay_message(rpc, own, task_id, {**message, "taskId": task_id, "contextId": context})
    if known is None or (known.reply is None and known.ended is None):
        (answer,) = await send_all(rpc.hub.store, rpc.hub.metrics, rpc.who, [sent])
        if isinstance(answer, RelayError):
            raise answer
    if task_id != own:
        await rpc.hub.store.tasks.go_on(rpc.who.address, task_id, own, rpc.hub.store.mailboxes.lives_ms(sent))
    return task_id


def _message(rpc: Rpc) -> Json:
    configuration = _configuration(rpc.params)
    if configuration.get("taskPushNotificationConfig") or configuration.get("pushNotificationConfig"):
        raise PushNotSupported("Push notifications are not supported; poll or stream instead")
    try:
        message = forms.message(rpc.params.get("message"), role="user")
    except forms.NotA2A as error:
        raise InvalidParams(f"message: {error}") from None
    if len(message.get("contextId", "")) > MAX_CONTEXT or len(message.get("taskId", "")) > MAX_ID:
        raise InvalidParams("contextId, taskId: expected at most 128 characters")
    return message


def _may_go_on(found: Found, own: str, message: Json) -> str:
    """The context of a task that may be gone on with. Raises Unsupported or InvalidParams."""
    context = found.story.context_id
    if own in found.turns[0].turns:
        return context
    if message.get("contextId", context) != context:
        raise InvalidParams("contextId: not the task's")
    if found.story.has_ended:
        raise Unsupported("The task has ended; a message without taskId begins a new one in the same context")
    if len(found.turns) > MAX_TURNS:
        raise Unsupported(f"A task has at most {MAX_TURNS} further messages")
    return context


def _relay_message(rpc: Rpc, own: str, task_id: str, message: Json) -> Message:
    fields: Json = {
        "id": own,
        "to": rpc.agent,
        "type": MESSAGE,
        "thread": message["contextId"],
        "request": True,
        "receipt": False,
        "payload": message,
    }
    if task_id != own:
        fields["reply_to"] = task_id
    modes = _configuration(rpc.params).get("acceptedOutputModes")
    if isinstance(modes, list) and modes and all(isinstance(mode, str) for mode in modes):
        fields["headers"] = {"a2a-accepted-output-modes": ", ".join(modes)}
    return checked(Raw(orjson.dumps(fields)), rpc.who, rpc.hub.settings.max_payload_bytes)


# -- tasks


async def get(rpc: Rpc) -> web.StreamResponse:
    return rpc.task(await rpc.tasks.find(rpc.task_id()))


async def cancel(rpc: Rpc) -> web.StreamResponse:
    """Takes back what nobody has begun to work on."""
    found = await rpc.tasks.find(rpc.task_id())
    if found.story.has_ended:
        raise TaskNotCancelable("The task has ended")
    store, last = rpc.hub.store, found.last
    word = "cancelled" if last.blocked else await store.looks.cancel(rpc.who.address, rpc.agent, last.id)
    if word == "held":
        raise TaskNotCancelable("The agent is working on the task")
    if word != "cancelled":
        raise TaskNotCancelable("The task has ended, or waits for the caller")
    await store.tasks.close(rpc.who.address, last.id, last.to, "cancelled")
    return rpc.task(await rpc.tasks.find(rpc.task_id()))


async def resubscribe(rpc: Rpc) -> web.StreamResponse:
    """Follows a task that goes on: as it is now, then what happens."""
    found = await rpc.tasks.find(rpc.task_id())
    if found.story.has_ended:
        raise Unsupported("The task has ended; ask for it instead")
    with rpc.request.app[WAITS].one_more(rpc.who):
        return await rpc.tasks.stream(rpc.request, found, rpc.event)


async def listing(_: Rpc) -> web.StreamResponse:
    raise Unsupported("Tasks are not listed")


async def push(_: Rpc) -> web.StreamResponse:
    raise PushNotSupported("Push notifications are not supported; poll or stream instead")


async def extended_card(_: Rpc) -> web.StreamResponse:
    raise CardNotConfigured("There is no extended card")


Method = Callable[[Rpc], Awaitable[web.StreamResponse]]
METHODS: dict[str, tuple[Generation, Method]] = {
    "SendMessage": ("1.0", send),
    "SendStreamingMessage": ("1.0", stream),
    "GetTask": ("1.0", get),
    "CancelTask": ("1.0", cancel),
    "SubscribeToTask": ("1.0", resubscribe),
    "ListTasks": ("1.0", listing),
    "GetExtendedAgentCard": ("1.0", extended_card),
    "CreateTaskPushNotificationConfig": ("1.0", push),
    "GetTaskPushNotificationConfig": ("1.0", push),
    "ListTaskPushNotificationConfigs": ("1.0", push),
    "DeleteTaskPushNotificationConfig": ("1.0", push),
    "message/send": ("0.3", send),
    "message/stream": ("0.3", stream),
    "tasks/get": ("0.3", get),
    "tasks/cancel": ("0.3", cancel),
    "tasks/resubscribe": ("0.3", resubscribe),
    "tasks/list": ("0.3", listing),
    "agent/getAuthenticatedExtendedCard": ("0.3", extended_card),
    "tasks/pushNotificationConfig/set": ("0.3", push),
    "tasks/pushNotificationConfig/get": ("0.3", push),
    "tasks/pushNotificationConfig/list": ("0.3", push),
    "tasks/pushNotificationConfig/delete": ("0.3", push),
}
