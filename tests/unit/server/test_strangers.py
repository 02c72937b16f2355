"""Who has not authenticated is not read on once too much of it waits."""

from relay.server.strangers import Stranger


def a_stranger(most: int = 100) -> tuple[Stranger, list[str]]:
    log: list[str] = []
    stranger = Stranger(lambda: log.append("paused"), lambda: log.append("resumed"))
    stranger.on_flood = lambda: log.append("flooded")
    stranger.limit(most)
    return stranger, log


def test_so_much_at_once_is_fine() -> None:
    stranger, log = a_stranger()

    assert stranger.sent(100)
    assert log == []


def test_more_is_not_read_until_it_is_dealt_with() -> None:
    stranger, log = a_stranger()

    stranger.sent(101)
    stranger.answered()

    assert log == ["paused", "flooded", "resumed"]


def test_a_flood_is_told_once() -> None:
    stranger, log = a_stranger()

    stranger.sent(101)
    stranger.sent(1)

    assert log == ["paused", "flooded", "paused"]


def test_what_is_dropped_is_forgotten_and_read_on() -> None:
    stranger, log = a_stranger()
    stranger.sent(101)

    assert stranger.drop()
    assert not stranger.sent(1_000)
    assert log == ["paused", "flooded", "resumed"]


def test_one_that_has_sent_little_is_not_dropped() -> None:
    stranger, _ = a_stranger()

    stranger.sent(100)

    assert not stranger.drop()
