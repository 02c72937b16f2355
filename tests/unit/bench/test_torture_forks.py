"""The torture knows what a failover has undone: of which shards, and of which time."""

from bench.torture.books import Books, Key, Message
from bench.torture.forks import Sample, Undoing, Undone, undoings

ALL = frozenset(range(8))
OLD, NEW = 7001, 7002  # servers


def master(at: float, server: int, history: str, offset: int, former: str = "", left_at: int = -1) -> Sample:
    return Sample(at, server, True, history, offset, former, left_at, ALL)


def replica(at: float, server: int, history: str) -> Sample:
    return Sample(at, server, False, history)


def test_a_master_that_stays_undoes_nothing() -> None:
    assert undoings([master(1, OLD, "a", 10), replica(1, NEW, "a"), master(2, OLD, "a", 20)]) == []


def test_what_the_successor_does_not_have_of_its_history_is_undone() -> None:
    seen = [master(1, OLD, "a", 10), master(2, OLD, "a", 20), master(3, OLD, "a", 30)]
    after = [master(4, NEW, "b", 40, former="a", left_at=25), replica(5, OLD, "b")]

    assert undoings(seen + after) == [Undoing(ALL, 2, 5, back_at=4)]


def test_a_master_that_is_dead_takes_no_writes() -> None:
    seen = [master(1, OLD, "a", 10), Sample(2, OLD), replica(9, OLD, "b")]

    assert undoings([*seen, master(5, NEW, "b", 10, former="a", left_at=11)]) == [Undoing(ALL, 1, 2, back_at=5)]


def test_what_a_former_master_takes_as_one_of_its_own_is_undone() -> None:
    seen = [master(1, OLD, "a", 10), Sample(2, OLD), master(3, OLD, "c", 10), master(4, OLD, "c", 12)]
    after = [master(3, NEW, "b", 10, former="a", left_at=11), replica(5, OLD, "b")]

    assert undoings(seen + after) == [Undoing(ALL, 1, 2, back_at=3), Undoing(ALL, 2, 5, back_at=5)]


def test_a_master_that_is_started_again_may_lack_what_was_not_written_yet() -> None:
    assert undoings([master(5, OLD, "a", 10), Sample(6, OLD), master(7, OLD, "b", 10)]) == [
        Undoing(ALL, 3, 6, back_at=7)
    ]


def a_message() -> Message:
    books, key = Books(), Key("acme/ben", "acme/ann", "1")
    books.sent(key, {"payload": {}}, is_http=False)
    books.accepted(key, is_new=True)
    return books.messages[key]


def test_an_undoing_concerns_messages_of_its_shards_and_of_its_time() -> None:
    message = a_message()
    its_shards = {Undone([], 8).shard(address) for address in (message.key.to, message.key.sender)}

    def concerns(shards: set[int] | frozenset[int], began: float, ended: float) -> bool:
        return Undone([Undoing(frozenset(shards), began, ended, ended)], 8).may_concern(message)

    assert all(concerns({shard}, message.sent_at - 1, message.sent_at + 1) for shard in its_shards)
    assert not concerns(ALL - its_shards, message.sent_at - 1, message.sent_at + 1)
    assert not concerns(ALL, message.sent_at - 2, message.sent_at - 1)
    assert not concerns(ALL, message.known_until + 1, message.known_until + 2)
