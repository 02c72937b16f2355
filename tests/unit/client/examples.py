"""Runs the examples of docstrings, with `await` in them, against a fake relay where alice and bob are."""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import relay.client
from relay.client import Live
from relay.testing import FakeRelay, HandClock

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def examples_of(text: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(text)


async def run(text: str, folder: Path) -> list[str]:
    """What came out otherwise than the text says."""
    fake = FakeRelay()
    async with fake.agent("alice") as alice, fake.agent("bob") as bob:
        for agent in (alice, bob):
            await agent.live()
            assert isinstance(agent.state, Live)
        names: dict[str, Any] = {name: getattr(relay.client, name) for name in relay.client.__all__}
        names |= {"relay": fake, "alice": alice, "bob": bob, "folder": folder, "asyncio": asyncio}
        names |= {"timedelta": timedelta, "FakeRelay": FakeRelay, "HandClock": HandClock, "__name__": "__examples__"}
        try:
            return await run_examples(examples_of(text), names)
        finally:
            await _end_tasks(names)


async def _end_tasks(names: dict[str, Any]) -> None:
    """What an example leaves running would end with its agent, and nobody would ask how."""
    tasks = [value for value in names.values() if isinstance(value, asyncio.Task)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_examples(examples: list[doctest.Example], names: dict[str, Any]) -> list[str]:
    wrong = []
    for example in examples:
        got = await _output(example.source, names)
        wanted = example.want if example.exc_msg is None else f"Traceback (most recent call last):\n{example.exc_msg}"
        if not doctest.OutputChecker().check_output(wanted, got, _FLAGS):
            wrong.append(f"{example.source}wanted {wanted!r}, got {got!r}")
    return wrong


async def _output(source: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        sys.displayhook, kept = sys.__displayhook__, sys.displayhook
        try:
            # An expression's value is shown, and awaited before if it must be.
            running = eval(compile(source, "<example>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(running):
                async with asyncio.timeout(5):
                    await running
        except Exception as error:
            last = "".join(traceback.format_exception_only(type(error), error))
            return f"{out.getvalue()}Traceback (most recent call last):\n{last}"
        finally:
            sys.displayhook = kept
            names.pop("__builtins__", None)
    return out.getvalue()
