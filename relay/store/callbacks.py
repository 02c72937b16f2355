"""The bridge from the store's callbacks to callers that await."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

AnyAnswer = TypeVar("AnyAnswer")


async def answer_to(ask: Callable[[Callable[[AnyAnswer], None]], None]) -> AnyAnswer:
    """Awaits the value that `ask` passes to its callback. A caller that goes away does not disturb the call."""
    answer: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    return await asyncio.shield(answer)


async def answer_or_raise(ask: Callable[[Callable[[AnyAnswer | Exception], None]], None]) -> AnyAnswer:
    """Awaits the value that `ask` passes to its callback; an exception is raised."""
    answer = await answer_to(ask)
    if isinstance(answer, Exception):
        raise answer
    return answer
