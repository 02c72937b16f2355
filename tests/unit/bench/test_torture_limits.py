"""The torture sees what is held beyond a window, tried too often, or expired too early."""

import time

import pytest

from bench.torture.books import Books, Key, Session
from bench.torture.eventlog import Event, Lives
from bench.torture.forks import Undone
from bench.torture.limits import check_limits
from bench.torture.traffic import WINDOW

MESSAGE = Key("acme/ben", "acme/ann", "1")


def found(books: Books, lives: Lives) -> list[str]:
    return [breach.promise for breach in check_limits(books, lives, Undone([], 8), 0.0)]


def an_event(kind: str, key: Key = MESSAGE, after_ms: float = 0.0) -> Event:
    return Event(kind, int(time.time() * 1_000 + after_ms), "10-0", 1, 1, "b.1", "", "", key)


def sent(books: Books, key: Key = MESSAGE, **fields: int) -> None:
    books.sent(key, {"payload": {}, **fields}, is_http=False)


def delivered(books: Books, key: Key = MESSAGE, entry: str = "10-0", attempt: int = 1) -> None:
    books.sessions["b.1"] = Session(key.to, "b.1", "exclusive", 0.0)
    frame = {"id": key.id, "from": key.sender, "payload": {}, "priority": 0, "entry": entry, "seq": 1}
    books.delivered(key.to, "b.1", frame | {"attempt": attempt, "was_stored": False})


@pytest.mark.parametrize(("after_ms", "promises"), [(500, ["expiry"]), (2_100, [])])
def test_what_expires_before_its_time_is_found(after_ms: float, promises: list[str]) -> None:
    books = Books()
    sent(books, ttl_s=2)

    assert found(books, {MESSAGE: [an_event("expired", after_ms=after_ms)]}) == promises


@pytest.mark.parametrize(("failures", "promises"), [(0, ["attempts"]), (1, [])])
def test_an_attempt_that_nothing_has_failed_for_is_found(failures: int, promises: list[str]) -> None:
    books = Books()
    sent(books)
    delivered(books, attempt=2)

    assert found(books, {MESSAGE: [an_event("nacked")] * failures}) == promises


def test_an_attempt_too_many_is_found() -> None:
    books = Books()
    sent(books, max_attempts=1)
    delivered(books, attempt=2)

    assert found(books, {MESSAGE: [an_event("overdue")]}) == ["attempts"]


@pytest.mark.parametrize(
    ("count", "are_acked", "promises"),
    [(WINDOW, False, []), (WINDOW + 1, False, ["the window"]), (WINDOW + 1, True, [])],
)
def test_more_than_the_window_that_came_one_by_one_is_found(count: int, are_acked: bool, promises: list[str]) -> None:
    books, lives = Books(), Lives()
    for n in range(count):
        key = Key(MESSAGE.to, MESSAGE.sender, str(n))
        sent(books, key)
        delivered(books, key, f"{n}-0")
        lives[key] = [an_event("acked", key)] if are_acked else []

    assert found(books, lives) == promises
