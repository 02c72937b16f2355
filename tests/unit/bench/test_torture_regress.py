"""The torture sees whether everybody notices that the store has gone back in time, and whether it has."""

from typing import Any

import pytest

from bench.torture.books import Books, Breach, Key, Session
from bench.torture.checks import is_excused
from bench.torture.eventlog import Event, Lives
from bench.torture.forks import Undoing, Undone
from bench.torture.regress import Notice, check_regress, ghosts, used_twice

SHARDS = 8
BEGAN = 100.0
BACK = BEGAN + 20
LOST = Key("acme/ben", "acme/ann", "1")
SHARD = Undone([], SHARDS).shard(LOST.to)
INSTANCES = ["instance 0", "instance 1"]
EVERYBODY = ["", *INSTANCES]  # with the event log


def went_back(is_true: bool = True) -> Undone:
    back = Undoing(frozenset(range(SHARDS)), BEGAN, BEGAN + 10, BACK, breaks_promises=True)
    return Undone([back] if is_true else [], SHARDS)


def an_accepted_message() -> Books:
    books = Books()
    books.sent(LOST, {"payload": {}}, is_http=False)
    books.accepted(LOST, is_new=True)
    message = books.messages[LOST]
    message.sent_at, message.accepted_at = BEGAN + 1, BEGAN + 2
    return books


def says(who: str, after_s: float = 1.0, kept: str = "10-0") -> Notice:
    return Notice(who, SHARD, BACK + after_s, kept, "20-0")


def found(books: Books, said: list[Notice], undone: Undone | None = None) -> list[str]:
    return [breach.what for breach in check_regress(books, {}, undone or went_back(), INSTANCES, said)]


def test_a_store_that_has_gone_back_is_noticed_by_every_instance_and_its_log() -> None:
    assert found(an_accepted_message(), [says(who) for who in EVERYBODY]) == []


@pytest.mark.parametrize("silent", EVERYBODY)
def test_one_that_says_nothing_is_found(silent: str) -> None:
    (only,) = found(an_accepted_message(), [says(who) for who in EVERYBODY if who != silent])

    assert only.startswith(silent or "the event log")


def test_whoever_notices_too_late_is_found() -> None:
    (only,) = found(an_accepted_message(), [says(who, after_s=9 if who else 1) for who in ("", "instance 0")]
                    + [says("instance 1")])  # fmt: skip

    assert only == f"instance 0 said so 9.0 s after shard {SHARD} was back"


def test_whoever_cannot_say_how_far_is_found() -> None:
    (only,) = found(an_accepted_message(), [says(who, kept="20-0" if not who else "10-0") for who in EVERYBODY])

    assert "kept '20-0' of '20-0'" in only


def test_an_alarm_without_a_reason_is_found() -> None:
    (only,) = found(Books(), [says("instance 1")], went_back(is_true=False))

    assert only == f"instance 1 says that shard {SHARD} has gone back"


def a_session(books: Books, name: str, *epochs: tuple[float, str]) -> Session:
    books.sessions[name] = Session("acme/ben", name, "exclusive", BEGAN - 1, epochs=list(epochs))
    return books.sessions[name]


def test_a_session_that_is_not_told_the_new_epoch_is_found() -> None:
    books = an_accepted_message()
    a_session(books, "a.1", (BEGAN - 1, "old"), (BACK + 1, "new"))
    a_session(books, "a.2", (BEGAN - 1, "old"))

    assert found(books, [says(who) for who in EVERYBODY]) == ["a.2 of acme/ben was not told of a new epoch"]


def test_a_new_epoch_without_a_reason_is_found() -> None:
    books = Books()
    a_session(books, "a.1", (BEGAN, "old"), (BEGAN + 1, "new"))

    assert len(found(books, [], went_back(is_true=False))) == 1


def test_only_messages_of_the_lost_time_are_excused() -> None:
    books = an_accepted_message()
    breach = Breach("accepted means stored", "is not there", LOST)

    assert is_excused(breach, books, {}, went_back())
    assert not is_excused(breach, books, {}, went_back(is_true=False))
    assert not is_excused(Breach("payloads unchanged", "is another", LOST), books, {}, went_back())


@pytest.mark.parametrize(("number", "breaches"), [(1, 1), (2, 0)])
def test_a_number_that_was_delivered_and_forgotten_is_not_given_again(number: int, breaches: int) -> None:
    books, later = an_accepted_message(), Key(LOST.to, LOST.sender, "2")
    frame = {"id": LOST.id, "from": LOST.sender, "payload": {}, "priority": 0, "entry": "10-0", "seq": 1}
    books.delivered(LOST.to, "b.1", frame | {"attempt": 1, "was_stored": False}).at = BEGAN + 2
    books.sent(later, {"payload": {}}, is_http=False)
    lives: Lives = {later: [Event("accepted", 2_000, "20-0", number, 0, "", "", "", later)]}

    assert len(list(used_twice(books, lives, went_back()))) == breaches


class OneServer:
    """A store with a session in it, and a mailbox of which it holds something."""

    def __init__(self, session: str, pending: int) -> None:
        self._session = session
        self._pending = pending

    def scan_iter(self, match: str, **_: Any) -> list[str]:
        return [match.replace("*", "00", 1).replace("*", "acme/ben")]

    def hvals(self, _name: str) -> list[str]:
        return [f"{self._session}\texclusive"]

    def xinfo_consumers(self, _box: str, _group: str) -> list[dict[str, Any]]:
        return [{"name": self._session, "pending": self._pending}]


def test_a_session_that_has_left_and_is_in_the_store_is_a_ghost() -> None:
    books = Books()
    a_session(books, "a.1").ended_at = BEGAN
    a_session(books, "a.2")

    assert len(list(ghosts([OneServer("a.1", 2)], books, ended_before=BACK))) == 2
    assert list(ghosts([OneServer("a.1", 2)], books, ended_before=BEGAN - 1)) == []
    assert list(ghosts([OneServer("a.2", 2)], books, ended_before=BACK)) == []
