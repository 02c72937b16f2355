"""The checker of the torture allows what a failover may undo, and nothing else."""

import pytest

from bench.torture.books import Books, Delivery, Key, Session
from bench.torture.checks import check
from bench.torture.eventlog import Event, Lives
from bench.torture.forks import Undoing, Undone

REQUEST = Key("acme/ben", "acme/ann", "ask")
LATER_MS = 2_000
SHARDS = 8


def undone(had_failover: bool) -> Undone:
    """All of the time, in all shards; or nothing."""
    ever = Undoing(frozenset(range(SHARDS)), 0.0, float("inf"), 0.0)
    return Undone([ever] if had_failover else [], SHARDS)


def books_with_replies(*copies: tuple[str, str]) -> Books:
    """A request whose requester got these replies: id and entry of each."""
    books = Books()
    books.sent(REQUEST, {"payload": {}, "request": True}, is_http=False)
    for id, entry in copies:
        reply = {"id": id, "from": REQUEST.to, "reply_to": REQUEST.id, "payload": {"re": list(REQUEST)}}
        books.delivered(REQUEST.sender, "a.1", reply | {"entry": entry, "seq": 1, "attempt": 1, "was_stored": False})
    return books


def broken(books: Books, had_failover: bool) -> list[str]:
    return [breach.what for breach in check(books, {}, undone(had_failover), 0.0)]


@pytest.mark.parametrize(("had_failover", "found"), [(False, ["its requester got 2 replies"]), (True, [])])
def test_a_reply_may_come_under_another_entry_after_a_failover(had_failover: bool, found: list[str]) -> None:
    books = books_with_replies(("reply:3/1-0", "10-0"), ("reply:3/1-0", "20-0"))

    assert broken(books, had_failover) == found


def test_a_second_reply_is_never_allowed() -> None:
    books = books_with_replies(("reply:3/1-0", "10-0"), ("reply:3/2-0", "20-0"))

    assert broken(books, had_failover=True) == ["its requester got 2 replies"]


def acked_twice(*receipts: str) -> tuple[Books, Lives]:
    """A message that was acked in the end, and whose sender got receipts of these states."""
    books = books_with_replies()
    told = [
        {"id": REQUEST.id, "to": REQUEST.to, "state": state, "at_ms": 1_000 + n} for n, state in enumerate(receipts)
    ]
    books.received_receipts(REQUEST.sender, "a.1", told)
    life = [Event(kind, LATER_MS, "10-0", 1, 1, "b.1", "", "", REQUEST) for kind in ("accepted", "released", "acked")]
    return books, {REQUEST: life}


def about_receipts(books: Books, lives: Lives, had_failover: bool) -> bool:
    return any(
        breach.promise == "the sender learns the end" for breach in check(books, lives, undone(had_failover), 0.0)
    )


def test_a_receipt_of_an_end_that_was_undone_may_come_before_the_right_one() -> None:
    books, lives = acked_twice("expired", "delivered")

    assert (about_receipts(books, lives, True), about_receipts(books, lives, False)) == (False, True)


def test_a_wrong_receipt_alone_is_never_allowed() -> None:
    books, lives = acked_twice("expired")

    assert about_receipts(books, lives, had_failover=True)


@pytest.mark.parametrize("answer", ["store_unavailable", ""])
def test_what_comes_back_because_its_ack_was_undone_may_come_later_than_the_next(answer: str) -> None:
    books, first, second = Books(), Key("acme/ben", "acme/ann", "1"), Key("acme/ben", "acme/ann", "2")
    for session in ("b.1", "b.2"):
        books.sessions[session] = Session("acme/ben", session, "exclusive", 0.0)
    for key in (first, second):
        books.sent(key, {"payload": {}}, is_http=False)

    def deliver(key: Key, holder: str, entry: str) -> Delivery:
        frame = {"id": key.id, "from": key.sender, "payload": {}, "priority": 0, "entry": entry}
        return books.delivered(key.to, holder, frame | {"seq": 1, "attempt": 1, "was_stored": False})

    books.asked(deliver(first, "b.1", "10-0"), "ack", {}).answer = answer
    deliver(second, "b.2", "20-0")
    deliver(first, "b.2", "10-0")

    def is_out_of_order(had_failover: bool) -> bool:
        return any(breach.promise == "in order" for breach in check(books, {}, undone(had_failover), 0.0))

    assert (is_out_of_order(True), is_out_of_order(False)) == (False, True)
