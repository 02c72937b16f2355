"""Receipts of one session: each goes out once, and only what was confirmed is forgotten."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import orjson

from relay.core.session.receipts import FRAME_BYTES, ReceiptReader
from relay.store.record.receipt_lines import as_json
from relay.store.replies.receipts import ReceiptBatch
from relay.store.wakes import OutboxPlace, PushedReceipts
from relay.telemetry.metrics import Metrics

SESSION = "a1.1"
AT_MS = 1_700_000_000_000
RECEIPT = f"{AT_MS}\nm-1\tbob\t12"
PUSHED = PushedReceipts(SESSION, 3, "1-1", "acme/alice", 1, RECEIPT)


class Stream:
    """A sender's stream, whose commands are answered at once."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.receipts = RECEIPT  # of each entry
        self.places: dict[str, OutboxPlace] = {}  # in outboxes, of some entries
        self.is_away = False
        self.exchange_s = 0.0  # how long one takes, while it is busy
        self._confirmed: list[OutboxPlace] = []

    def busy_s(self) -> float:
        return self.exchange_s

    def read(self, _: str, after: str, got: Callable[[list[ReceiptBatch] | None], None]) -> None:
        place = int(after.partition("-")[0])
        found = [one for one in self.entries if int(one.partition("-")[0]) > place]
        got([ReceiptBatch(one, 1, self.receipts, place=self.places.get(one)) for one in found])

    def forget(self, _: str, entries: list[str], forgot: Callable[[bool], None]) -> None:
        if not self.is_away:
            self.entries = [one for one in self.entries if one not in entries]
        forgot(not self.is_away)

    def confirmed(self, pushed: PushedReceipts) -> None:
        self._confirmed.append(pushed.place)

    def was_confirmed(self, place: OutboxPlace) -> bool:
        return place in self._confirmed


class Client:
    """Reads all that it is sent."""

    def __init__(self, stream: Stream) -> None:
        self.got: list[bytes] = []
        self.has_some = asyncio.Event()
        self.reserved = 0
        output = SimpleNamespace(room=lambda: 1_000, reserve=self._reserve)
        link = SimpleNamespace(address="acme/alice", output=output, send=self._get)
        spending = SimpleNamespace(spend=lambda count, got, _: got(count, 0))
        self.reader = ReceiptReader(SESSION, *cast(Any, (link, stream, Metrics(), spending)))

    def _get(self, frame: bytes) -> None:
        self.got.append(frame)
        self.has_some.set()

    def _reserve(self, size: int) -> None:
        self.reserved += size

    async def push(self, *pushes: PushedReceipts) -> None:
        """All in one turn of the event loop."""
        for pushed in pushes:
            assert self.reader.push(pushed)
        await asyncio.sleep(0)

    def confirm(self, entry: str, pushed: int = 0) -> None:
        self.reader.confirm(f"{entry}.{SESSION}.{pushed}")


def pushed(number: int, receipts: str = RECEIPT) -> PushedReceipts:
    return PushedReceipts(SESSION, 3, f"{number}-1", "acme/alice", 1, receipts)


def cursors(client: Client) -> list[str]:
    return [orjson.loads(frame)["cursor"] for frame in client.got]


async def test_what_is_pushed_in_one_turn_goes_out_in_one_frame_with_one_cursor() -> None:
    client = Client(Stream())

    await client.push(pushed(1), pushed(2, f"{AT_MS}\nm-2\tbob\t13"))
    await client.push(pushed(3, f"{AT_MS}\nm-3\tbob\t14"))

    frames = [orjson.loads(frame) for frame in client.got]
    assert [[receipt["id"] for receipt in frame["receipts"]] for frame in frames] == [["m-1", "m-2"], ["m-3"]]
    assert cursors(client) == [f"0-0.{SESSION}.2", f"0-0.{SESSION}.3"]


async def test_what_is_read_and_what_is_pushed_is_sent_as_json_with_the_senders_tenant() -> None:
    stream = Stream()
    client = Client(stream)
    stream.entries, stream.receipts = ["100-0"], f"{AT_MS}\nm-1\tbob\t12\nm-2\tbob\t13\t1"

    client.reader.read()
    await client.push(pushed(1, f"{AT_MS}\nm-3\tcarol\t14"))

    found = [one for frame in client.got for one in orjson.loads(frame)["receipts"]]
    assert [(one["id"], one["to"], one["at_ms"]) for one in found] == [
        ("m-1", "acme/bob", AT_MS),
        ("m-2", "acme/bob", AT_MS),
        ("m-3", "acme/carol", AT_MS),
    ]


async def test_what_is_pushed_while_the_store_is_busy_waits_for_others_and_not_for_long() -> None:
    stream = Stream()
    stream.exchange_s = 3_600.0
    client = Client(stream)

    await client.push(pushed(1))
    before = list(client.got)
    await client.push(pushed(2))
    async with asyncio.timeout(10):
        await client.has_some.wait()

    assert before == []
    assert cursors(client) == [f"0-0.{SESSION}.2"]


async def test_a_frame_of_pushed_receipts_is_bounded_and_covers_only_what_it_has() -> None:
    client = Client(Stream())
    large = f"{AT_MS}\n{'x' * FRAME_BYTES}\tbob\t12"

    await client.push(pushed(1), pushed(2, large), pushed(3))

    assert cursors(client) == [f"0-0.{SESSION}.{number}" for number in (1, 2, 3)]


async def test_what_was_pushed_goes_out_before_what_is_read_from_the_stream_meanwhile() -> None:
    stream = Stream()
    client = Client(stream)
    stream.entries = ["100-0"]

    assert client.reader.push(PUSHED)
    client.reader.read()

    assert cursors(client) == [f"0-0.{SESSION}.1", f"100-0.{SESSION}.1"]


async def test_receipts_that_wait_for_their_frame_count_as_output() -> None:
    client = Client(Stream())

    assert client.reader.push(pushed(1))
    waiting = client.reserved
    await asyncio.sleep(0)

    assert (waiting, client.reserved) == (len(as_json(RECEIPT, "acme/alice")), 0)


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


async def test_what_was_pushed_is_not_sent_from_the_stream_too_and_goes_with_its_confirmation() -> None:
    stream = Stream()
    client = Client(stream)
    await client.push(PUSHED)
    stream.entries, stream.places = ["100-0", "200-0"], {"100-0": PUSHED.place}

    client.reader.read()
    before = list(stream.entries)
    client.confirm("0-0", pushed=1)
    after = list(stream.entries)
    client.confirm("200-0", pushed=1)

    assert len(client.got) == 2
    assert (before, after, stream.entries) == (["100-0", "200-0"], ["200-0"], [])


async def test_what_was_pushed_and_confirmed_is_not_sent_from_the_stream_too() -> None:
    stream = Stream()
    client = Client(stream)
    await client.push(PUSHED)
    client.confirm("0-0", pushed=1)

    stream.entries, stream.places = ["100-0"], {"100-0": PUSHED.place}
    client.reader.read()

    assert len(client.got) == 1
    assert stream.entries == []
