"""Receipts of one session: each goes out once, and only what was confirmed is forgotten."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from relay.core.receipts import ReceiptReader
from relay.store.receipts import ReceiptBatch
from relay.telemetry.metrics import Metrics

SESSION = "a1.1"


class Stream:
    """A sender's stream, whose commands are answered at once."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.is_away = False

    def read(self, _: str, after: str, got: Callable[[list[ReceiptBatch] | None], None]) -> None:
        place = int(after.partition("-")[0])
        got([ReceiptBatch(one, 1, b"{}") for one in self.entries if int(one.partition("-")[0]) > place])

    def forget(self, _: str, entries: list[str], forgot: Callable[[bool], None]) -> None:
        if not self.is_away:
            self.entries = [one for one in self.entries if one not in entries]
        forgot(not self.is_away)


class Client:
    """Reads all that it is sent."""

    def __init__(self, stream: Stream) -> None:
        self.got: list[bytes] = []
        output = SimpleNamespace(room=lambda: 1_000, reserve=lambda _: None)
        link = SimpleNamespace(address="acme/alice", output=output, send=self.got.append)
        spending = SimpleNamespace(spend=lambda count, got, _: got(count, 0))
        self.reader = ReceiptReader(SESSION, *cast(Any, (link, stream, Metrics(), spending)))

    def confirm(self, entry: str) -> None:
        self.reader.confirm(f"{entry}.{SESSION}.0")


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


def test_what_could_not_be_forgotten_is_not_sent_again_and_goes_with_the_next() -> None:
    stream = Stream()
    client = Client(stream)
    stream.entries = ["100-0"]
    client.reader.read()
    stream.is_away = True
    client.confirm("100-0")

    stream.is_away = False
    stream.entries.append("200-0")
    client.reader.read()
    client.confirm("200-0")

    assert len(client.got) == 2
    assert stream.entries == []
