"""Forks: which writes of which shard a failover has undone, told by what the servers say of their replication."""

from binascii import crc32
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from bench.torture.books import Message

UNWRITTEN_S = 2.0  # so long `everysec` may keep back what it writes to disk, and a server that is killed loses it


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server said of itself. A history has an id; a promoted replica leaves the old one at an offset.

    One that is not running has none.
    """

    at: float
    server: int
    is_master: bool = False
    history: str = ""
    offset: int = 0
    former: str = ""  # the history that it left
    left_at: int = -1  # the first offset that it does not have of that
    shards: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Undoing:
    """From when to when these shards took writes that are gone."""

    shards: frozenset[int]
    began: float
    ended: float
    back_at: float  # when others could see that they are gone
    breaks_promises: bool = False  # also what clients were told to last: the store has gone back in time


class Undone:
    """All undoings of a run. A check allows for one only to messages of its time and of its shards."""

    def __init__(self, undoings: list[Undoing], shards: int) -> None:
        self.undoings = undoings
        self.shards = shards

    def may_concern(self, message: Message, until: float = 0.0) -> bool:
        """Whether what became of it, in its mailbox or on the way back to its sender, may have been undone."""
        return any(self._concerns(one, message, until) for one in self.undoings)

    def may_be_lost(self, message: Message, until: float = 0.0) -> bool:
        """The same, although it was promised to last."""
        return any(one.breaks_promises and self._concerns(one, message, until) for one in self.undoings)

    def _concerns(self, undoing: Undoing, message: Message, until: float) -> bool:
        last = max(message.known_until, until)
        is_of_its_time = undoing.began <= last and message.sent_at <= undoing.ended
        return is_of_its_time and not undoing.shards.isdisjoint(map(self.shard, (message.key.to, message.key.sender)))

    def shard(self, address: str) -> int:
        return crc32(address.encode()) % self.shards

    def went_back(self) -> list[Undoing]:
        return [one for one in self.undoings if one.breaks_promises]


@dataclass(frozen=True, slots=True)
class Fork:
    """Where and when a history was left by a new master."""

    offset: int
    at: float


def undoings(samples: list[Sample], breaks_promises: bool = False) -> list[Undoing]:
    """What was written on a master after the offset up to which its successor has its history."""
    forks: dict[str, Fork] = {}
    by_server: dict[int, list[Sample]] = defaultdict(list)
    for one in samples:
        by_server[one.server].append(one)
        if one.left_at > 0 and one.is_master:
            forks.setdefault(one.former, Fork(one.left_at, one.at))
    return [undoing for of_one in by_server.values() for undoing in _of_server(of_one, forks, breaks_promises)]


def _of_server(samples: list[Sample], forks: dict[str, Fork], breaks_promises: bool) -> Iterator[Undoing]:
    reigns = [list(some) for _, some in groupby(samples, lambda one: (one.is_master, one.history))]
    for n, reign in enumerate(reigns):
        later = [one for after in reigns[n + 1 :] for one in after]
        if reign[0].is_master and later:
            fork = forks.get(reign[0].history)
            again = next((one for one in later if one.history), later[0])
            before_s = reigns[n - 1][-1].at if n else reign[0].at
            began = _kept_until(reign, again, fork, before_s)
            shards = frozenset[int]().union(*(one.shards for one in reign if one.at >= began), reign[-1].shards)
            yield Undoing(shards, began, later[0].at, fork.at if fork else again.at, breaks_promises)


def _kept_until(reign: list[Sample], again: Sample, fork: Fork | None, before_s: float) -> float:
    """When the last write that is kept was taken, at the latest. A reign begins between two looks at the server."""
    if fork is None and again.is_master:
        return reign[-1].at - UNWRITTEN_S  # it was started again on its own data
    kept = [one.at for one in reign if fork is not None and one.offset < fork.offset]
    return kept[-1] if kept else before_s
