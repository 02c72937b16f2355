"""The torture's own reading of the event log."""

from collections.abc import Iterator
from typing import Any

from bench.torture.books import Key
from bench.torture.eventlog import Event, EventLog

FIRST = "1800000000000\t80474b79a9"
ACCEPTED = "accepted\t5-0\t7\t\t\t\t\tacme\tbob\talice\tm-1\tjob\tt\t0\t256"
JOINED = "joined\t\t\t\t.24\tshared\t\tacme\tbob"
ACKED = "acked\t5-0\t\t1\t.24\t\t30\tacme\tbob\talice\tm-1"


class OneLog:
    """A server with the log of one shard."""

    def __init__(self, *values: str) -> None:
        self._rows = [(f"{n}-0", {"e1": value}) for n, value in enumerate(values, 1)]

    def scan_iter(self, **_: Any) -> Iterator[str]:
        yield "relay:{s00}:events"

    def xrange(self, _name: str, after: str, _last: str, _count: int) -> list[tuple[str, dict[str, str]]]:
        return self._rows if after == "-" else []


def test_the_life_of_a_message_is_told_by_its_lines() -> None:
    log = OneLog("\n".join((FIRST, ACCEPTED, JOINED)), "\n".join((FIRST, ACKED)))

    lives = EventLog().lives([log])

    key, at_ms = Key("acme/bob", "acme/alice", "m-1"), 1_800_000_000_000
    assert lives == {
        key: [
            Event("accepted", at_ms, "5-0", 7, 0, "", "", "t", key),
            Event("acked", at_ms, "5-0", 0, 1, "80474b79a9.24", "", "", key),
        ]
    }
