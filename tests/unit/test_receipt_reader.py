"""Receipts of one session: each goes out once, and only what was confirmed is forgotten."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from relay.core.receipts import ReceiptReader
from relay.store.receipts import ReceiptBatch
from relay.store.wakes import Place, PushedReceipts
from relay.telemetry.metrics import Metrics

SESSION = "a1.1"
PUSHED = PushedReceipts(SESSION, 3, "1-1", "acme/alice", 1, "{}")


class Stream:
    """A sender's stream, whose commands are answered at once."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.places: dict[str, Place] = {}  # in outboxes, of some entries
        self.is_away = False
        self._confirmed: list[Place] = []

    def read(self, _: str, after: str, got: Callable[[list[ReceiptBatch] | None], None]) -> None:
        place = int(after.partition("-")[0])
        found = [one for one in self.entries if int(one.partition("-")[0]) > place]
        got([ReceiptBatch(one, 1, b"{}", place=self.places.get(one)) for one in found])

    def forget(self, _: str, entries: list[str], forgot: Callable[[bool], None]) -> None:
        if not self.is_away:
            self.entries = [one for one in self.entries if one not in entries]
        forgot(not self.is_away)

    def confirmed(self, pushed: PushedReceipts) -> None:
        self._confirmed.append(pushed.place)

    def was_confirmed(self, place: Place) -> bool:
        return place in self._confirmed


class Client:
    """Reads all that it is sent."""

    def __init__(self, stream: Stream) -> None:
        self.got: list[bytes] = []
        output = SimpleNamespace(room=lambda: 1_000, reserve=lambda _: None)
        link = SimpleNamespace(address="acme/alice", output=output, send=self.got.append)
        spending = SimpleNamespace(spend=lambda count, got, _: got(count, 0))
        self.reader = ReceiptReader(SESSION, *cast(Any, (link, stream, Metrics(), spending)))

    def confirm(self, entry: str, pushed: int = 0) -> None:
        self.reader.confirm(f"{entry}.{SESSION}.{pushed}")


def test_what_a_failover_brings_back_is_read_and_not_forgotten_unread() -> None:
    stream = Stream()
    client = Client(stream)
    stream.entries = ["200-0"]
    client.reader.read()

    stream.entries.insert(0, "100-0")  # the next master has it, and the one before did not
    client.confirm("200-0")
    client.reader.read()

    assert len(client.got) == 2
    assert stream.entries == ["100-0"]


def confirmed_while_away() -> tuple[Stream, Client]:
    """A receipt that the store, which is back, could not delete."""
    stream = Stream()
    client = Client(stream)
    stream.entries = ["100-0"]
    client.reader.read()
    stream.is_away = True
    client.confirm("100-0")
    stream.is_away = False
    return stream, client


def test_what_could_not_be_forgotten_is_not_sent_again_and_goes_with_the_next() -> None:
    stream, client = confirmed_while_away()

    stream.entries.append("200-0")
    client.reader.read()
    client.confirm("200-0")

    assert len(client.got) == 2
    assert stream.entries == []


def test_what_could_not_be_forgotten_is_forgotten_at_the_next_look() -> None:
    stream, client = confirmed_while_away()

    client.reader.read()

    assert len(client.got) == 1
    assert stream.entries == []


def test_what_was_pushed_is_not_sent_from_the_stream_too_and_goes_with_its_confirmation() -> None:
    stream = Stream()
    client = Client(stream)
    client.reader.push(PUSHED)
    stream.entries, stream.places = ["100-0", "200-0"], {"100-0": PUSHED.place}

    client.reader.read()
    before = list(stream.entries)
    client.confirm("0-0", pushed=1)
    after = list(stream.entries)
    client.confirm("200-0", pushed=1)

    assert len(client.got) == 2
    assert (before, after, stream.entries) == (["100-0", "200-0"], ["200-0"], [])


def test_what_was_pushed_and_confirmed_is_not_sent_from_the_stream_too() -> None:
    stream = Stream()
    client = Client(stream)
    client.reader.push(PUSHED)
    client.confirm("0-0", pushed=1)

    stream.entries, stream.places = ["100-0"], {"100-0": PUSHED.place}
    client.reader.read()

    assert len(client.got) == 1
    assert stream.entries == []
