"""Sending by A2A: a message becomes a request to the agent."""

import uuid

import orjson
from aiohttp import web
from msgspec import Raw

from relay.a2a import forms
from relay.a2a.call import MAX_ID, Rpc
from relay.a2a.errors import InvalidParams, PushNotSupported, Unsupported
from relay.a2a.following import FollowedTask
from relay.a2a.forms import Json
from relay.core.intake import checked, send_one
from relay.http.app_keys import LONG_POLLS
from relay.protocol.message import Message
from relay.telemetry.tracing import in_trace

MESSAGE = "a2a.message"  # the type of what reaches the agent
MAX_WAIT_S = 60.0  # how long a blocking send waits before it answers with the task as it is
MAX_CONTEXT = 128
MAX_TURNS = 100
TASK_IDS = uuid.UUID("8a6f1f0e-6a1c-4b8e-9d53-0c5b2f6b7a11")


async def send(rpc: Rpc) -> web.StreamResponse:
    """The message becomes a request to the agent; unless the caller wants it at once, the answer waits for its end."""
    rpc.history_length()
    if not _is_blocking(rpc):
        return rpc.task(await rpc.tasks.find(await _send(rpc)), is_answer_to_send=True)
    with rpc.request.app[LONG_POLLS].slot(rpc.who):
        task = await rpc.tasks.wait(await _send(rpc), rpc.who.until(MAX_WAIT_S))
    return rpc.task(task, is_answer_to_send=True)


async def stream(rpc: Rpc) -> web.StreamResponse:
    """The message becomes a request to the agent, whose task is followed as it goes."""
    with rpc.request.app[LONG_POLLS].slot(rpc.who):
        return await rpc.tasks.stream(await _send(rpc), rpc.event)


def _is_blocking(rpc: Rpc) -> bool:
    name, default = ("returnImmediately", False) if rpc.generation == "1.0" else ("blocking", True)
    asked = rpc.configuration().get(name)
    if asked is not None and not isinstance(asked, bool):
        raise InvalidParams(f"{name}: expected true or false")
    chosen = default if asked is None else asked
    return not chosen if rpc.generation == "1.0" else chosen


async def _send(rpc: Rpc) -> str:
    """Sends the message, at most once however often it comes. Returns the task that it belongs to."""
    message = _message(rpc)
    own = str(uuid.uuid5(TASK_IDS, f"{rpc.agent}\0{message['messageId']}"))
    known = await rpc.instance.store.tasks.find(rpc.who.address, own)
    task_id: str = message.get("taskId", own)
    if task_id != own:
        context = _may_go_on(await rpc.tasks.find(task_id), own, message, rpc.instance.settings.reply_max_bytes)
    else:
        context = (known and known.thread) or message.get("contextId", own)
    sent = _relay_message(rpc, own, task_id, {**message, "taskId": task_id, "contextId": context})
    if known is None or (known.reply is None and known.ended is None):
        await send_one(rpc.instance.store, rpc.instance.metrics, rpc.who, sent)
    if task_id != own:
        await rpc.instance.store.tasks.go_on(rpc.who.address, task_id, own, rpc.instance.store.accepting.lives_ms(sent))
    return task_id


def _message(rpc: Rpc) -> Json:
    configuration = rpc.configuration()
    if configuration.get("taskPushNotificationConfig") or configuration.get("pushNotificationConfig"):
        raise PushNotSupported("Push notifications are not supported; poll or stream instead")
    try:
        message = forms.message(rpc.params.get("message"), role="user")
    except forms.NotA2A as error:
        raise InvalidParams(f"message: {error}") from None
    if len(message.get("contextId", "")) > MAX_CONTEXT or len(message.get("taskId", "")) > MAX_ID:
        raise InvalidParams("contextId, taskId: expected at most 128 characters")
    return message


def _may_go_on(task: FollowedTask, own: str, message: Json, max_bytes: int) -> str:
    """The context of a task that may be gone on with. Raises Unsupported or InvalidParams."""
    context = task.story.context_id
    if own in task.turns[0].turns:
        return context
    if message.get("contextId", context) != context:
        raise InvalidParams("contextId: not the task's")
    if task.story.has_ended:
        raise Unsupported("The task has ended; a message without taskId begins a new one in the same context")
    if len(task.turns) > MAX_TURNS:
        raise Unsupported(f"A task has at most {MAX_TURNS} further messages")
    if sum(turn.parts_bytes + turn.reply_bytes for turn in task.turns) > max_bytes:
        raise Unsupported(
            f"A task that has more than {max_bytes} bytes of answers is not gone on with; begin a new one"
        )
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
    modes = rpc.configuration().get("acceptedOutputModes")
    if isinstance(modes, list) and modes and all(isinstance(mode, str) for mode in modes):
        fields["headers"] = {"a2a-accepted-output-modes": ", ".join(modes)}
    sent = checked(Raw(orjson.dumps(fields)), rpc.who, rpc.instance.settings.max_payload_bytes)
    return in_trace(sent, rpc.request.headers)
