"""Output: counts what all readers have not read yet, and decides how much more each may get."""

import time
from typing import Protocol

LARGEST_SHARE = 2**20  # what may wait for one reader, however much is free
FREE_PARTS = 64  # one reader may have this part of what is free: many slow ones together never use up everything
SLOW_AFTER_S = 10.0  # a reader that takes nothing for so long is given up
SLOW_WHEN_SCARCE_S = 2.0  # sooner when three quarters of everything wait to be read
PROGRESS_BYTES = 16 * 1024  # and nothing is less than this, if there is more
REFRESH_S = 0.01  # how old a count may be before something is denied because of it
REFRESH_COST = 20  # counting again may take this part of the time


class Transport(Protocol):
    def get_write_buffer_size(self) -> int: ...


class OutputBudget:
    """The bytes that wait in all sockets, and those that were requested from the store for them.

    The free part is shared as a switch shares its buffer: each reader may use a fraction of what is free now. A few
    slow readers get much, many get little, and there is always room for a reader that reads.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.outputs: set[Output] = set()  # those in which something waits
        self._fresh_until = 0.0

    def share(self) -> int:
        """How many bytes may wait for one reader now."""
        return min(LARGEST_SHARE, (self.limit - self.used) // FREE_PARTS)

    def is_scarce(self) -> bool:
        """Whether the waiting bytes may make readers wait for each other."""
        return self.used > self.limit // 4

    def patience_s(self) -> float:
        """How long a reader may take nothing."""
        return SLOW_AFTER_S if self.used < self.limit * 3 // 4 else SLOW_WHEN_SCARCE_S

    def refresh(self) -> None:
        """Counts what is really there: sockets are emptied without a word."""
        for output in list(self.outputs):
            output.measure()

    def refresh_if_old(self) -> None:
        began = time.monotonic()
        if began >= self._fresh_until:
            self.refresh()
            now = time.monotonic()
            self._fresh_until = now + max(REFRESH_S, REFRESH_COST * (now - began))


class Output:
    """What waits for one reader: in its socket, on the way there, or requested from the store."""

    __slots__ = (
        "_budget",
        "_flushed",
        "_mark",
        "_progress_at",
        "_transport",
        "_unflushed",
        "_written",
        "reserved",
        "waiting",
    )

    def __init__(self, budget: OutputBudget, transport: Transport) -> None:
        self._budget = budget
        self._transport = transport
        self.waiting = 0  # in the socket, or about to go there
        self._unflushed = 0  # of that, what is not in the socket yet
        self.reserved = 0  # asked of the store, or owed as an answer
        self._written = 0  # in all
        self._flushed = 0  # of that, what the reader's machine has taken
        self._mark = 0  # the same, at the last progress
        self._progress_at = time.monotonic()

    def close(self) -> None:
        """The reader is gone: further writes are not counted."""
        self._budget.outputs.discard(self)
        self._budget.used -= self.waiting + self.reserved
        self._budget = _NOBODYS

    def wrote(self, size: int) -> None:
        """This many bytes are about to go into the socket."""
        self._written += size
        self._unflushed += size
        self.waiting += size
        self._budget.used += size

    def flushed(self) -> None:
        """The written bytes have gone into the socket."""
        self._unflushed = 0
        self.measure()

    def measure(self) -> None:
        """Counts what the socket really has."""
        waiting = self._transport.get_write_buffer_size() + self._unflushed
        self._budget.used += waiting - self.waiting
        self.waiting = waiting
        if waiting and self._budget is not _NOBODYS:
            self._budget.outputs.add(self)
        else:
            self._budget.outputs.discard(self)
        self._flushed = self._written - waiting

    def reserve(self, size: int) -> None:
        """This many bytes will be written; a negative size cancels a reservation."""
        self.reserved += size
        self._budget.used += size

    def room(self) -> int:
        """How much more this reader may be given now; 0 when it must read first."""
        room = self._budget.share() - self.waiting - self.reserved
        if room <= 0:
            self.measure()
            self._budget.refresh_if_old()
            room = self._budget.share() - self.waiting - self.reserved
        return max(0, room)

    def progressed(self) -> None:
        """The reader has taken something, whatever was written since."""
        self._mark = self._flushed
        self._progress_at = time.monotonic()

    def is_stuck(self, now: float) -> bool:
        """Whether something waits that the reader does not take."""
        if self.waiting == 0 or self._flushed >= self._mark + PROGRESS_BYTES:
            self._mark, self._progress_at = self._flushed, now
            return False
        return now - self._progress_at > self._budget.patience_s()


_NOBODYS = OutputBudget(0)
