"""Handlers of any kind, called in one way. The return value of the call is the reply to a request."""

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from relay.client.inbox.message import Message

Handler = Callable[..., Any]
Call = Callable[[Message[Any]], Awaitable[Any]]


def caller(handler: Handler, threads: ThreadPoolExecutor) -> Call:
    """Coroutines run on the event loop, plain functions in threads of their own; generators answer in parts."""
    if inspect.isasyncgenfunction(handler):
        return _in_parts(handler)
    if inspect.iscoroutinefunction(handler):
        return handler
    return _in_thread(_all_parts(handler) if inspect.isgeneratorfunction(handler) else handler, threads)


def _in_parts(handler: Handler) -> Call:
    async def call(message: Message[Any]) -> None:
        async for part in handler(message):
            if message.is_request:
                message.part(part)

    return call


def _all_parts(handler: Handler) -> Handler:
    def call(message: Message[Any]) -> None:
        for part in handler(message):
            if message.is_request:
                message.part(part)

    return call


def _in_thread(handler: Handler, threads: ThreadPoolExecutor) -> Call:
    async def call(message: Message[Any]) -> Any:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(threads, copy_context().run, handler, message)
        return await value if inspect.isawaitable(value) else value  # an object whose __call__ is a coroutine

    return call


def payload_type(handler: Handler) -> Any:
    """`Job` of a handler whose parameter is `Message[Job]`; anything if it does not say."""
    try:
        hints = typing.get_type_hints(handler)
    except NameError:  # a type that only the type checker sees
        return Any
    for name in inspect.signature(handler).parameters:
        hint = hints.get(name)
        if typing.get_origin(hint) is Message:
            return typing.get_args(hint)[0]
    return Any
