"""One event loop in the background, for agents that are used without `await`."""

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


class Loop:
    """One event loop on a thread of its own, for all agents of the process."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)  # threads do not come along

    def _forget(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def _get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="relay agents", daemon=True)
                self._thread.start()
            return self._loop

    def call(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Waits for work that is done on the loop. Ctrl-C ends the work, too."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a coroutine cannot wait for relay.sync: make the handler a plain function")
        running: Future[Value] = asyncio.run_coroutine_threadsafe(work, self._get())
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def run(self, step: Callable[[], Value]) -> Value:
        """Takes a step on the loop, where everything of an agent happens."""

        async def on_loop() -> Value:
            return step()

        return self.call(on_loop())

    def iterate(self, items: AsyncIterator[Value]) -> Iterator[Value]:
        async def following() -> tuple[bool, Any]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        try:
            while (found := self.call(following()))[0]:
                yield found[1]
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and not sys.is_finalizing():  # nobody runs the loop any more
                self.call(close())


LOOP = Loop()


def like(
    model: Callable[Concatenate[Any, Parameters], Any],
) -> Callable[[Callable[..., Value]], Callable[Concatenate[Any, Parameters], Value]]:
    """Gives a method the parameters of its model, for type checkers, editors and `help`."""

    def mark(method: Callable[..., Value]) -> Callable[Concatenate[Any, Parameters], Value]:
        returns = inspect.signature(method).return_annotation
        method.__signature__ = inspect.signature(model).replace(return_annotation=returns)  # type: ignore[attr-defined]
        return method

    return mark
