"""Limits: what a session holds, how often a message is tried, and when it expires, by the log of the store."""

import time
from collections import defaultdict
from collections.abc import Iterator

from bench.torture.books import Books, Breach, Delivery, Message
from bench.torture.checks import CLOCK_MS
from bench.torture.eventlog import FINAL, HOLD_ENDS, Event, Lives
from bench.torture.forks import Undone
from bench.torture.traffic import WINDOW

FAILED = frozenset({"nacked", "overdue"})


def check_limits(books: Books, lives: Lives, undone: Undone, clock_off_s: float) -> list[Breach]:
    """Messages whose steps may have been undone are left out."""
    steady = {key: one for key, one in books.messages.items() if not undone.may_concern(one)}
    breaches = [
        Breach(promise, what, key)
        for key, message in steady.items()
        for promise, what in (
            *_attempts(message, lives.get(key, [])),
            *_expiry(message, lives.get(key, []), clock_off_s),
        )
    ]
    deliveries = [delivery for message in steady.values() for delivery in message.deliveries]
    return breaches + list(_windows(books, deliveries, lives, CLOCK_MS + clock_off_s * 1_000))


def _attempts(message: Message, life: list[Event]) -> Iterator[tuple[str, str]]:
    """Only what fails is counted, and no message is tried more often than it may be."""
    failed = sum(event.kind in FAILED for event in life)
    most = message.fields.get("max_attempts", 0)
    highest = max((one.attempt for one in message.deliveries), default=1)
    if highest > failed + 1:
        yield "attempts", f"came as attempt {highest}, and has failed {failed} times"
    if 0 < most < highest:
        yield "attempts", f"came as attempt {highest} of {most}"


def _expiry(message: Message, life: list[Event], clock_off_s: float) -> Iterator[tuple[str, str]]:
    """Its TTL begins when it is sent, at the earliest."""
    sent_ms = (message.sent_at + time.time() - time.monotonic()) * 1_000
    for event in life:
        lived_ms, ttl_ms = event.at_ms - sent_ms, message.fields.get("ttl_s", 0) * 1_000
        if event.kind == "expired" and lived_ms < ttl_ms - CLOCK_MS - clock_off_s * 1_000:
            yield "expiry", f"expired after {lived_ms:.0f} ms, and had {ttl_ms} ms"


def _windows(books: Books, deliveries: list[Delivery], lives: Lives, clock_ms: float) -> Iterator[Breach]:
    """What a session got and has not lost again, with any settlement, is never more than it may hold."""
    by_session: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for holder, began_ms, ended_ms in _holds(deliveries, lives, clock_ms):
        if holder in books.sessions:
            by_session[holder] += [(began_ms, 1), (ended_ms, -1)]
    for session, changes in by_session.items():
        held = most = 0
        for _, change in sorted(changes):  # at the same time, what ends comes first
            held += change
            most = max(most, held)
        if most > WINDOW:
            yield Breach("the window", f"{session} held {most} messages, and may hold {WINDOW}")


def _holds(deliveries: list[Delivery], lives: Lives, clock_ms: float) -> Iterator[tuple[str, float, float]]:
    """The first hold of each entry by each session: of a later one the log cannot say where it ends."""
    seen: set[tuple[str, str]] = set()
    for one in deliveries:
        if (one.entry, one.holder) in seen:
            continue
        seen.add((one.entry, one.holder))
        ends = [event.at_ms for event in lives.get(one.key, []) if _ends(event, one.holder)]
        ended_ms = min(ends, default=float("inf")) - clock_ms
        if ended_ms > one.at_ms:
            yield one.holder, one.at_ms, ended_ms


def _ends(event: Event, holder: str) -> bool:
    return event.kind in FINAL or (event.kind in HOLD_ENDS and event.who == holder)
