"""What all families of commands share."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any

import click
import uvloop

DEFAULT_TENANT = "demo"
_SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Span(click.ParamType[float]):
    """A duration: 90, 90s, 15m, 1h, 7d."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a length of time such as 90s, 15m, 1h or 7d", param, ctx)
        return float(match[1]) * _SPANS[match[2] or "s"]


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)
