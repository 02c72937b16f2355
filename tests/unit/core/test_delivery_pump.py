"""The pump of a session, without a socket and without a store: what it asks for, when, and what it hands out."""

import asyncio
from collections import Counter

import pytest

from relay.core.output_budget import Output, OutputBudget
from relay.core.session import delivery
from relay.core.session.deliver_frame import deliver_frame
from relay.core.session.delivery import TAKE_BYTES, DeliveryPump
from relay.store.mailbox.take import TakeResult
from relay.store.record.taken import Taken
from relay.store.wakes import Push

MIB = 2**20


class Buffer:
    """What a reader has not read yet."""

    size = 0

    def get_write_buffer_size(self) -> int:
        return self.size


class Client:
    """A pump whose store is the test: takes are counted here and answered by hand."""

    def __init__(self, window: int = 10, is_shared: bool = False) -> None:
        self.takes: list[list[str] | None] = []  # what each said that it holds
        self.got: list[str] = []  # entries, and "drained"
        self.given_back: list[str] = []
        self.passed_on = 0
        self.wakes: Counter[str] = Counter()
        self.buffer = Buffer()
        self.output = Output(OutputBudget(64 * MIB), self.buffer)
        self.pump = DeliveryPump(
            *(window, self.output, self.wakes),
            is_shared=is_shared,
            take=self._take,
            deliver=lambda rows: self.got.extend(row.entry for row in rows),
            drained=lambda count: self.got.append(f"drained after {count}"),
            give_back=lambda rows: self.given_back.extend(row.entry for row in rows),
            pass_on=self._pass_on,
        )

    def _take(self) -> None:
        self.takes.append(self.pump.wish().known)

    def _pass_on(self) -> None:
        self.passed_on += 1

    def receives(
        self, *entries: str, gone: tuple[str, ...] = (), is_cut: bool = False, credits: int = 0, pushed: int = 0
    ) -> None:
        """The store answers the take under way."""
        self.pump.taken(TakeResult(list(gone), [a_row(entry) for entry in entries], is_cut, credits, pushed))

    def is_pushed(self, *entries: str, total: int) -> None:
        """The store pushes; it has pushed so many by now."""
        self.pump.pushed(Push("i.1", total, [a_row(entry) for entry in entries]))

    def stops_reading(self) -> None:
        self.buffer.size = 8 * MIB
        self.output.measure()

    def reads_on(self) -> None:
        self.buffer.size = 0
        self.output.measure()


def a_row(entry: str) -> Taken:
    return Taken(entry, 1, "acme\tbob\talice\tm-1\t\t\t0\t2", "1\t1\t2\t0\t0\t0\t1\t0\t0\t", b"17")


def an_idle_client(window: int = 10, is_shared: bool = False) -> Client:
    """Its backlog is through, and nothing is asked for."""
    client = Client(window, is_shared)
    client.pump.open(0, "0-0")
    client.receives()
    client.receives()
    client.got.clear()
    client.takes.clear()
    client.wakes.clear()
    client.passed_on = 0
    return client


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_S", 0.0)
    monkeypatch.setattr(delivery, "OTHERS_FIRST_S", 0.0)


def a_pushed_client(window: int = 10) -> Client:
    """What comes for it is pushed; the count starts at 100."""
    client = an_idle_client(window)
    client.pump.wake()
    client.receives(credits=window, pushed=100)
    client.takes.clear()
    return client


async def timers() -> None:
    """Lets what is due happen."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_the_backlog_comes_before_drained() -> None:
    client = Client(window=2)

    client.pump.open(3, "9-0")
    client.receives("1-0", "2-0")
    client.pump.held.clear()
    client.pump.run()
    client.receives("3-0")

    assert client.got == ["1-0", "2-0", "3-0", "drained after 3"]


def test_a_backlog_that_vanished_meanwhile_is_drained_too() -> None:
    client = Client()

    client.pump.open(3, "9-0")
    client.receives("1-0")

    assert client.got == ["1-0", "drained after 1"]


def test_after_drained_it_asks_for_what_came_since() -> None:
    client = Client()
    client.pump.open(0, "0-0")

    client.receives()

    assert client.got == ["drained after 0"]
    assert client.pump.is_taking


def test_an_empty_mailbox_is_left_alone_until_a_wake() -> None:
    client = an_idle_client()

    client.pump.run()
    before = len(client.takes)
    fetches = client.pump.wake()

    assert before == 0
    assert fetches
    assert len(client.takes) == 1


def test_a_wake_during_a_take_is_not_forgotten() -> None:
    client = an_idle_client()
    client.pump.wake()

    client.pump.wake()
    client.receives()

    assert len(client.takes) == 2


def test_a_wake_before_the_mailbox_is_ours_is_for_somebody_else() -> None:
    client = Client()

    assert not client.pump.wake()
    assert not client.takes


async def test_after_a_failed_take_the_next_one_says_what_is_held() -> None:
    client = an_idle_client()
    client.pump.wake()
    client.receives("1-0")
    client.pump.wake()

    client.pump.taken(None)
    await timers()

    assert client.takes == [None, None, ["1-0"]]


async def test_what_the_store_gave_to_somebody_else_is_forgotten() -> None:
    client = an_idle_client()
    client.pump.wake()
    client.receives("1-0", "2-0")
    client.pump.wake()
    client.pump.taken(None)
    await timers()

    client.receives(gone=("1-0",))

    assert list(client.pump.held) == ["2-0"]
    assert client.pump.wish().known is None


def test_a_full_window_asks_for_nothing_until_there_is_room() -> None:
    client = an_idle_client(window=1)
    client.pump.wake()
    client.receives("1-0")

    fetches = client.pump.wake()
    del client.pump.held["1-0"]
    client.pump.run()

    assert not fetches
    assert len(client.takes) == 2


def test_who_does_not_read_is_asked_for_nothing_until_it_does() -> None:
    client = an_idle_client()
    client.stops_reading()

    fetches = client.pump.wake()
    stalled = client.pump.is_stalled
    client.reads_on()
    client.pump.run()

    assert not fetches
    assert stalled
    assert len(client.takes) == 1


def test_what_a_take_may_bring_is_reserved_only_while_it_is_under_way() -> None:
    client = an_idle_client()

    client.pump.wake()
    during = client.output.reserved
    client.receives("1-0")

    assert during == TAKE_BYTES
    assert client.output.reserved == 0


def test_a_take_that_was_cut_off_lets_the_next_one_have_more() -> None:
    client = an_idle_client()
    client.pump.wake()

    client.receives("1-0", is_cut=True)

    assert client.pump.granted == 4 * TAKE_BYTES


def test_what_comes_while_closing_goes_back_and_others_hear_of_it() -> None:
    client = an_idle_client()
    client.pump.wake()

    client.pump.is_closing = True
    client.receives("1-0")

    assert (client.got, client.given_back, client.passed_on) == ([], ["1-0"], 1)


def test_one_that_closes_sends_wakes_to_others() -> None:
    client = an_idle_client()
    client.pump.is_closing = True

    assert not client.pump.wake()
    assert not client.takes
    assert client.pump.has_mail


def test_what_comes_after_the_mailbox_was_given_up_goes_back() -> None:
    client = an_idle_client()
    client.pump.wake()

    client.pump.shut()
    client.receives("1-0")

    assert (client.got, client.given_back) == ([], ["1-0"])


def test_a_look_finds_what_a_lost_wake_left() -> None:
    client = an_idle_client()

    asked = client.pump.look()
    client.receives("1-0")

    assert asked
    assert client.got == ["1-0"]
    assert client.wakes == {"lost": 1}


def test_a_wake_for_what_is_gone_is_counted_as_late() -> None:
    client = an_idle_client()

    client.pump.wake()
    client.receives()

    assert client.wakes == {"late": 1}


def test_a_look_compares_a_full_window_with_the_store() -> None:
    client = an_idle_client(window=1)
    client.pump.wake()
    client.receives("1-0")

    client.pump.look()
    client.receives(gone=("1-0",))

    assert client.takes[1] == ["1-0"]
    assert client.takes[2:] == [None]  # there is room again


def test_a_store_that_went_back_is_told_what_the_client_holds() -> None:
    client = an_idle_client()

    client.pump.doubt()

    assert client.takes == [[]]


def test_a_doubt_during_a_take_outlasts_it() -> None:
    client = an_idle_client()
    client.pump.wake()
    client.takes.clear()

    client.pump.doubt()
    client.receives("1-0")

    assert client.takes == [["1-0"]]


async def test_what_lay_too_long_is_for_others_first() -> None:
    client = an_idle_client()
    client.pump.wake()
    client.receives("1-0")

    client.pump.lose("1-0", others_first=True)
    at_once = len(client.takes)
    await timers()

    assert at_once == 1
    assert len(client.takes) == 2


def test_a_shared_session_with_more_than_it_can_fetch_tells_the_next_one() -> None:
    client = an_idle_client(window=1, is_shared=True)
    client.pump.wake()

    client.receives("1-0")

    assert client.passed_on == 1


def test_a_session_that_the_store_had_lost_holds_nothing_and_says_so() -> None:
    client = an_idle_client()
    client.pump.wake()
    client.receives("1-0")

    client.pump.open(0, "5-0")

    assert client.takes[-1] == []
    assert client.pump.backlog_end == "0-0", "what has come since it began is no backlog"


@pytest.mark.parametrize(
    ("entry", "was_stored"),
    [("4-9", True), ("5-1", True), ("5-2", True), ("5-3", False), ("5-3p1", False), ("6-0", False)],
)
def test_a_delivery_says_whether_it_was_there_before_the_session(entry: str, was_stored: bool) -> None:
    frame = deliver_frame([a_row(entry)], "5-2")

    assert (b'"was_stored":true' in frame) is was_stored


# -- a pause


def test_a_paused_pump_asks_for_nothing_and_goes_on_where_it_stopped() -> None:
    client = Client()
    client.pump.open(1, "1-0")
    client.receives("1-0")
    client.receives()
    asked = len(client.takes)

    client.pump.pause(True)
    client.pump.wake()
    client.pump.look()
    while_paused = len(client.takes)
    client.pump.pause(False)

    assert while_paused == asked
    assert len(client.takes) == asked + 1


def test_what_was_under_way_when_the_pause_came_is_delivered() -> None:
    client = Client()
    client.pump.open(2, "2-0")

    client.pump.pause(True)
    client.receives("1-0")

    assert client.got[0] == "1-0"
    assert len(client.takes) == 1


# -- pushes


def test_what_is_pushed_is_delivered_without_a_take() -> None:
    client = a_pushed_client()

    client.is_pushed("1-0", "2-0", total=102)
    client.is_pushed("3-0", total=103)

    assert client.got == ["1-0", "2-0", "3-0"]
    assert list(client.pump.held) == ["1-0", "2-0", "3-0"]
    assert client.takes == []


def test_credits_are_the_free_window_of_a_drained_exclusive_session() -> None:
    client, shared = an_idle_client(window=10), an_idle_client(is_shared=True)
    before = client.pump.wish().credits_max
    client.pump.wake()
    shared.pump.wake()
    during = client.pump.wish().credits_max
    client.receives("1-0")
    client.pump.wake()

    assert (before, during, client.pump.wish().credits_max, shared.pump.wish().credits_max) == (0, 10, 9, 0)


def test_a_client_that_does_not_read_gets_no_credits() -> None:
    client = an_idle_client()
    client.pump.wake()
    client.stops_reading()

    assert client.pump.wish().credits_max == 0


def test_a_push_that_was_lost_is_asked_for_with_what_came_behind_it() -> None:
    client = a_pushed_client()
    client.is_pushed("1-0", total=101)

    client.is_pushed("3-0", total=103)
    client.receives("2-0", "3-0", credits=7, pushed=200)

    assert client.takes == [["1-0"]]
    assert client.got == ["1-0", "2-0", "3-0"]


def test_pushes_wait_for_the_answer_of_a_take() -> None:
    client = an_idle_client()
    client.pump.wake()

    client.is_pushed("2-0", total=101)
    client.receives("1-0", credits=9, pushed=100)

    assert client.got == ["1-0", "2-0"]


def test_a_push_that_is_late_and_was_given_again_is_not_delivered_twice() -> None:
    client = a_pushed_client()
    client.pump.look()

    client.receives("1-0", credits=9, pushed=200)
    client.is_pushed("1-0", total=101)

    assert client.takes == [[]]
    assert client.got == ["1-0"]


def test_a_take_between_pushes_says_what_is_held() -> None:
    client = a_pushed_client()
    client.is_pushed("1-0", total=101)

    client.pump.look()

    assert client.takes == [["1-0"]]


def test_when_all_that_was_pushed_is_there_nothing_needs_comparing() -> None:
    client = a_pushed_client()
    client.is_pushed("1-0", total=101)

    client.pump.wake(pushed=101)

    assert client.takes == [None]


@pytest.mark.parametrize("pushed", [None, 99, 102])
def test_a_wake_that_may_have_crossed_with_a_take_does_not_make_pushes_late(pushed: int | None) -> None:
    client = a_pushed_client()
    client.is_pushed("1-0", total=101)

    client.pump.wake(pushed)

    assert client.takes == [["1-0"]]


def test_what_is_pushed_to_one_that_closes_goes_back() -> None:
    client = a_pushed_client()
    client.pump.is_closing = True

    client.is_pushed("1-0", total=101)

    assert (client.got, client.given_back) == ([], ["1-0"])


def test_a_count_that_the_store_is_ahead_of_makes_it_ask() -> None:
    client = a_pushed_client()
    client.is_pushed("1-0", total=101)

    client.pump.compare(101)
    before = list(client.takes)
    client.pump.compare(102)

    assert (before, client.takes) == ([], [["1-0"]])


def test_mail_that_waits_while_nothing_comes_is_looked_for() -> None:
    client = a_pushed_client()

    for _ in range(3):
        client.pump.compare(100)

    assert client.takes == [[]]


def test_what_was_delivered_is_kept_without_its_body() -> None:
    client = a_pushed_client()

    client.is_pushed("1-0", total=101)

    assert client.pump.held["1-0"].body == b""
