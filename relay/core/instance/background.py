"""Background work: tasks that outlive their caller, and steps that repeat."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from relay.errors import RelayError

log = logging.getLogger(__name__)

Step = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Keeps tasks referenced until they end, and logs one that fails."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task_failed", exc_info=error)


async def repeat(every_s: float, step: Step) -> None:
    """Repeats a step at an interval, for ever."""
    while True:
        await attempt(step)
        await asyncio.sleep(every_s)


async def attempt(step: Step) -> None:
    """A step that fails because of the store is tried again in its next turn."""
    try:
        await step()
    except RelayError as error:
        log.warning("step_failed", extra={"step": step.__name__.strip("_"), "error": error.message})
