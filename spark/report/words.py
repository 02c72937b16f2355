"""Formats numbers for readers."""

from datetime import UTC, datetime


def count(number: float) -> str:
    """1,234 up to 9,999; then 12.3k, 4.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{number:,.0f}"


def span(ms: float | None) -> str:
    """Milliseconds as 12 ms, 3.4 s, 5.6 min, 7.8 h or 9 d."""
    if ms is None:
        return "–"
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.0f} ms" if ms else "0"


def size(number: float) -> str:
    for unit_bytes, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= unit_bytes:
            return f"{number / unit_bytes:.3g} {unit}"
    return f"{number:.0f} B"


def moment(ms: int) -> str:
    return _utc(ms).strftime("%Y-%m-%d %H:%M")


def day(ms: int) -> str:
    return _utc(ms).strftime("%b %-d")


def clock(ms: int) -> str:
    return _utc(ms).strftime("%H:%M")


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)
