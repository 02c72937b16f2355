"""The state of a task, the same for WebSocket, HTTP and A2A."""

from dataclasses import dataclass

from relay.store.replies.tasks import Task
from relay.store.store import Store

REPLY_WITHIN_MS = 15_000  # an ack may be half of a reply, whose other half is on its way
ENDS = frozenset(("replied", "acked", "dead", "expired", "cancelled"))


@dataclass(frozen=True, slots=True)
class TaskState:
    """`at_ms` is when it was accepted, or when it ended, if that is still known."""

    state: str  # queued, delayed, held, or one of ENDS
    at_ms: int | None = None


async def task_state(store: Store, task: Task) -> TaskState:
    """The end of a task is kept with it, because the mailbox forgets it sooner. Raises StoreUnavailable."""
    if task.reply is not None:
        return TaskState("replied")
    if task.ended not in (None, "dead"):  # a dead letter can be revived
        return TaskState(task.ended)
    message = await store.lookup.where(task.requester, task.to, task.id)
    if message is None:
        return TaskState(task.ended or "expired")
    if message.state == "acked" and store.clock.now_ms() - message.at_ms < REPLY_WITHIN_MS:
        return TaskState("held")
    if message.state in ENDS and message.state != task.ended:
        await store.tasks.close(task.requester, task.id, task.to, message.state)
    return TaskState(message.state, message.at_ms)
