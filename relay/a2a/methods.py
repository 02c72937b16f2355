"""A2A's methods, by their names in 1.0 and in 0.3."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from relay.a2a.call import Generation, Rpc
from relay.a2a.errors import CardNotConfigured, PushNotSupported, TaskNotCancelable, Unsupported
from relay.a2a.sending import send, stream
from relay.http.app_keys import LONG_POLLS


async def get(rpc: Rpc) -> web.StreamResponse:
    return rpc.task(await rpc.tasks.find(rpc.task_id()))


async def cancel(rpc: Rpc) -> web.StreamResponse:
    """Takes back what nobody has begun to work on."""
    task = await rpc.tasks.find(rpc.task_id())
    if task.story.has_ended:
        raise TaskNotCancelable("The task has ended")
    store, last = rpc.instance.store, task.last
    word = await store.lookup.cancel(rpc.who.address, rpc.agent, last.id, rpc.who.address)
    if word == "held":
        raise TaskNotCancelable("The agent is working on the task")
    if word != "cancelled":
        raise TaskNotCancelable("The task has ended, or waits for the caller")
    await store.tasks.close(rpc.who.address, last.id, last.to, "cancelled")
    return rpc.task(await rpc.tasks.find(rpc.task_id()))


async def resubscribe(rpc: Rpc) -> web.StreamResponse:
    """Follows a task that goes on: as it is now, then what happens."""
    with rpc.request.app[LONG_POLLS].slot(rpc.who):
        return await rpc.tasks.stream(rpc.task_id(), rpc.event, must_go_on=True)


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
