"""Delivery: when a session takes more from its mailbox, and what happens with the answer."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from relay.core.output_budget import LARGEST_SHARE, Output
from relay.store.mailbox.accept_plain import PUSH_BODY_BYTES
from relay.store.mailbox.take import TakeResult
from relay.store.record.taken import Taken
from relay.store.wakes import Push

TAKE_AT_ONCE = 100  # messages asked for in one take, so that one session's payloads stay few in memory
TAKE_BYTES = 64 * 1024  # and their bytes, at first; more where more is waiting
OTHERS_FIRST_S = 0.1  # head start of the other sessions for a message that this one held too long
RETRY_S = 1.0  # when a take that failed is tried again

Rows = list[Taken]


class Wish(NamedTuple):
    """What a take asks for."""

    most: int  # messages
    credits_max: int  # how many the client and its socket have room for, be they taken now or pushed later
    known: list[str] | None  # what the client really holds, if the store should compare


class DeliveryPump:
    """Moves messages from a mailbox to one client, one take at a time.

    Guarantees: the client holds at most `window` messages. The backlog goes out before `drained`, everything else
    after it. After a wake the pump takes as soon as the window and the socket have room, even if the wake came during
    a take; or it passes the wake on to another session of the agent. Messages that arrive while the session is closing
    are given back. After a take whose answer was lost, the next one lists what the client really holds, and the store
    corrects itself. Nothing here blocks: `take` asks the store, which calls `taken`.

    A take that finds nothing more leaves credits in the store. While there are credits, the store makes this session
    the holder of new messages as they are accepted, and pushes them: `pushed`. Pushed and taken messages keep their
    order: pushes wait for the answer of a take under way, a take in between lists what the client really holds, and a
    gap in the count of pushes makes the pump ask for everything since.
    """

    __slots__ = (
        *(
            "_asked",
            "_backlog",
            "_deliver",
            "_delivered",
            "_drained",
            "_early",
            "_give_back",
            "_is_doubted",
            "_is_look",
        ),
        *(
            "_is_pushed",
            "_is_quiet",
            "_is_shared",
            "_is_unsure",
            "_next_bytes",
            "_output",
            "_pass_on",
            "_pushed",
            "_take",
            "_wakes",
        ),
        *("_was_woken", "backlog_end", "granted", "has_mail", "held", "window"),
        *("is_closing", "is_drained", "is_open", "is_paused", "is_stalled", "is_taking"),
    )

    def __init__(
        self,
        window: int,
        output: Output,
        wakes: "Counter[str]",
        *,
        is_shared: bool,
        take: Callable[[], None],
        deliver: Callable[[Rows], None],
        drained: Callable[[int], None],
        give_back: Callable[[Rows], None],
        pass_on: Callable[[], None],
    ) -> None:
        self.window = window
        self.held: dict[str, Taken] = {}  # by entry
        self.is_open = False  # the mailbox is ours
        self.is_closing = False  # nothing more is delivered
        self.is_paused = False  # somebody has stopped the delivery for a while
        self.is_drained = False  # the backlog is through
        self.is_taking = False  # a take is under way
        self.is_stalled = False  # mail waits until the client has read what it was sent
        self.has_mail = False  # the mailbox may have more
        self.granted = 0  # bytes reserved for the take under way
        self._asked = 0  # messages that it asked for
        self._is_look = False  # nobody's wake caused it
        self._was_woken = False  # a wake came during it
        self._is_pushed = False  # new messages come by themselves
        self._pushed = 0  # the store's count of them
        self._is_quiet = False  # nothing has come since the last comparison
        self._early: list[Push] = []  # pushes that came during a take
        self._is_unsure = False  # the store may think that the client holds what it does not
        self._is_doubted = False  # and that came to be during the take under way, which does not settle it
        self._next_bytes = TAKE_BYTES  # how many bytes the next take asks for, if they are to be had
        self.backlog_end = "0-0"  # the last entry that was there when the session began
        self._backlog = 0  # messages that waited when the session began
        self._delivered = 0  # and those of them that went out
        self._is_shared = is_shared
        self._output = output
        self._wakes = wakes
        self._take, self._deliver, self._drained = take, deliver, drained
        self._give_back, self._pass_on = give_back, pass_on

    # -- the mailbox comes and goes

    def open(self, backlog: int, backlog_end: str) -> None:
        """The mailbox is ours. `backlog` messages wait there, up to the entry `backlog_end`.

        If it was ours before, the store had lost this session, and its messages are back in the mailbox. The backlog
        stays that of the beginning."""
        if self.is_open:
            self.held.clear()
            self._is_unsure = True
        else:
            self._backlog, self.backlog_end = backlog, backlog_end
        self.is_open = True
        self.wake()

    def shut(self) -> None:
        """The mailbox is no longer ours."""
        self.held.clear()
        self.is_open = self.has_mail = self.is_drained = self._is_pushed = False
        self._delivered = 0

    def pause(self, on: bool) -> None:
        """Stops asking, or goes on with what may have come meanwhile."""
        was_paused, self.is_paused = self.is_paused, on
        if was_paused and not on:
            self.wake()

    # -- reasons to ask

    def wake(self, pushed: int | None = None) -> bool:
        """There may be mail. False if this session cannot fetch it now, so another one of the agent should.

        If `pushed` equals the pushes that have arrived, none is on its way. For other wakes that is unknown: they may
        have crossed with a take."""
        if not self.is_open:
            return False
        if pushed == self._pushed:
            self._is_pushed = False
        self.has_mail = True
        self._was_woken = self._was_woken or self.is_taking
        self.run()
        return self.is_taking and not self.is_closing

    def look(self) -> bool:
        """The store says that mail waits: a wake may have been lost. A full window is checked against the store.

        Says whether something was asked for."""
        if not self.is_open:
            return False
        self._is_unsure = self._is_unsure or self.is_full()
        self._is_look = not self.is_taking and not self.has_mail
        self.wake()
        self._make_sure()
        return self.is_taking

    def compare(self, pushed: int) -> None:
        """Compares the store's count of pushes with ours: missing ones were lost on the way.

        If mail waits and nothing has arrived since the last comparison, the pump takes."""
        if not self._is_pushed or self.is_taking:
            return
        if pushed != self._pushed:
            self.doubt()
        elif self._is_quiet:
            self.look()
        self._is_quiet = True

    def doubt(self) -> None:
        """The store may think that the client holds what it never saw, or what it has settled long ago."""
        self._is_unsure = self._is_doubted = True
        self.wake()
        self._make_sure()

    def _make_sure(self) -> None:
        if self._is_unsure and not self.is_taking and not self.is_closing and self.is_open:
            self._ask(0)

    def lose(self, entry: str, others_first: bool) -> None:
        """Somebody else ended this hold: its place is free. What lay too long is for others first."""
        self.held.pop(entry, None)
        if others_first:
            self.has_mail = self._was_woken = True
            asyncio.get_running_loop().call_later(OTHERS_FIRST_S, self.run)
        else:
            self.run()

    def run(self) -> None:
        """Asks for what is next, if there is room and nothing is asked for yet."""
        self.is_stalled = False
        if not (self.has_mail and self.is_open) or self.is_taking or self.is_closing or self._free() == 0:
            return
        if self.is_paused:
            return
        room = self._output.room()
        if room:
            self._ask(max(TAKE_BYTES, min(self._next_bytes, room // 2)))
        else:
            self.is_stalled = True

    # -- pushes

    def pushed(self, push: Push) -> None:
        """Messages that the store pushed to this session."""
        if self.is_taking:
            self._early.append(push)
        elif self._is_pushed and push.total - len(push.rows) == self._pushed:
            self._pushed = push.total
            self._is_quiet = False
            self._receive(push.rows)
        elif push.total > self._pushed:  # else it is late, and was given again meanwhile
            self.doubt()

    def _receive(self, rows: Rows) -> None:
        if self.is_closing or not self.is_open:
            self._give_back(rows)
            self._pass_on()
            return
        self.held |= {row.entry: row for row in rows}
        self._deliver(rows)
        for row in rows:
            row.body = b""  # a large window must not keep what the client has

    # -- one take

    def _ask(self, granted: int) -> None:
        # Pushes that are on their way would come behind what this take finds.
        self._is_unsure = self._is_unsure or self._is_pushed
        self._is_pushed = False
        self.is_taking, self.granted, self._is_doubted = True, granted, False
        self._output.reserve(granted)
        self._take()

    def wish(self) -> Wish:
        """The limits of the take that goes out now, including room from recent confirmations."""
        self._asked = self._free() if self.granted else 0
        return Wish(self._asked, self._credits_max(), list(self.held) if self._is_unsure else None)

    def _credits_max(self) -> int:
        if not self.granted or not self.is_drained or self._is_shared or self.is_paused:
            return 0
        return min(self.window - len(self.held), self._output.room() // PUSH_BODY_BYTES)

    def taken(self, result: TakeResult | None) -> None:
        """The answer of a take: entries that are no longer held, and deliveries, cut off at the byte limit.

        None if the answer was lost: then the next take lists what the client really holds."""
        if result is None:
            self._fail()
            return
        gone, rows, is_cut = result.gone, result.rows, result.is_cut
        self._end_take(is_cut)
        self._is_unsure = self._is_doubted
        self._is_pushed, self._pushed, self._is_quiet = result.credits > 0, result.pushed, False
        for entry in gone:
            self.held.pop(entry, None)
        is_last = len(rows) < self._asked and not is_cut
        self.has_mail = self._was_woken if is_last else self.has_mail
        self._was_woken = False
        self._count_wake(len(rows))
        if rows or self.is_closing or not self.is_open:
            self._receive(rows)
        if not self.is_drained and self.is_open and not self.is_closing:
            self._count_backlog(len(rows), is_last)
        early, self._early = self._early, []
        for push in early:
            self.pushed(push)
        self.run()
        self._make_sure()
        if self.has_mail and self._is_shared:
            self._pass_on()

    def _fail(self) -> None:
        self._end_take(is_cut=False)
        self._early.clear()
        self._is_unsure = self.has_mail = True
        asyncio.get_running_loop().call_later(RETRY_S, self.run)

    def _end_take(self, is_cut: bool) -> None:
        """Ends a take. If it was cut off at the byte limit, the next one asks for more bytes."""
        self._output.reserve(-self.granted)
        self.granted, self.is_taking = 0, False
        self._next_bytes = min(4 * self._next_bytes, LARGEST_SHARE) if is_cut else TAKE_BYTES

    def _count_wake(self, count: int) -> None:
        if self._is_look and count:
            self._wakes["lost"] += 1
        elif self.is_drained and not count and not self._is_look:
            self._wakes["late"] += 1
        self._is_look = False

    def _count_backlog(self, count: int, is_last: bool) -> None:
        self._delivered += count
        if is_last or self._delivered >= self._backlog:
            self.is_drained = self.has_mail = True
            self._drained(self._delivered)

    # -- the window

    def _free(self) -> int:
        return max(0, min(self.window - len(self.held), TAKE_AT_ONCE))

    def is_full(self) -> bool:
        """Whether the client holds as many messages as it may."""
        return len(self.held) >= self.window
