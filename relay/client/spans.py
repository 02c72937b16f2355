"""Durations and options: from the caller's form to the wire's."""

import math
from datetime import timedelta
from typing import Any

Span = float | timedelta


def seconds(span: Span) -> float:
    """Raises ValueError for what is no span, such as one that never ends."""
    found = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not math.isfinite(found) or found < 0:
        raise ValueError(f"{span!r} is not a span of time")
    return found


def maybe_seconds(span: Span | None) -> float | None:
    return None if span is None else seconds(span)


def fields(**options: Any) -> dict[str, Any]:
    """Options of a message that were given, as the wire has them."""
    return {
        name: seconds(value) if isinstance(value, timedelta) else value
        for name, value in options.items()
        if value is not None
    }
