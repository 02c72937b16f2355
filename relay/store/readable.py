"""Readable records: one that is broken, or that something else has written, is left out, counted and told of.

Whoever reads many records at once reads them through this: one bad record must not keep a duty from all the others.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from relay.telemetry.logs import Seldom

R = TypeVar("R")
T = TypeVar("T")

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, msgspec.MsgspecError)
MOST_KEYS = 1_000  # of which it is counted

log = Seldom(logging.getLogger(__name__))
left_out: Counter[str] = Counter()  # by key, since the process began; a record counts each time that it is met


def readable(key: str, records: Iterable[R], read: Callable[[R], T]) -> list[T]:
    """What `read` makes of the records of a key, without those that it cannot read."""
    found: list[T] = []
    for record in records:
        try:
            found.append(read(record))
        except UNREADABLE:
            leave_out(key)
    return found


def read_or(key: str, record: R | None, read: Callable[[R], T], otherwise: T) -> T:
    """The same of one record, with what is meant when there is none or it cannot be read."""
    found = readable(key, () if record is None else (record,), read)
    return found[0] if found else otherwise


def leave_out(key: str) -> None:
    """Counts a record that cannot be read, and tells of it in the log."""
    if key in left_out or len(left_out) < MOST_KEYS:
        left_out[key] += 1
    log.warning("record_unreadable", key=key)


def pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The fields of a hash or the members of a sorted set, each with its value."""
    return zip(flat[::2], flat[1::2], strict=True)


def names(key: str, records: Iterable[bytes]) -> list[str]:
    """Those that are text."""
    return readable(key, records, bytes.decode)


def shown(value: bytes) -> str:
    """Text that nobody but a person reads."""
    return value.decode(errors="replace")


def whole(value: bytes | str | None) -> int:
    """A number; 0 if there is none or it cannot be read."""
    try:
        return int(value or 0)
    except ValueError:
        return 0


def score(value: bytes) -> int:
    """The score of a member of a sorted set, as far as a time can be."""
    number = float(value)
    return int(max(-1e15, min(1e15, number))) if number == number else 0
