"""Partial input: incomplete frames and bodies, counted for all clients together."""

from collections import Counter
from typing import Protocol


class Sender(Protocol):
    whose: str  # an agent, or a network address

    def give_up(self) -> None: ...


class PartialInput:
    """When the total is too large, the sender with the most bytes loses its first one, so others do not suffer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[Sender, tuple[str, int]] = {}  # whose, and how much; who began first is first
        self._totals: Counter[str] = Counter()
        self._total = 0

    def grew(self, sender: Sender, size: int) -> None:
        """The incomplete input of this sender now has this size."""
        whose, before = self._sizes.get(sender, (sender.whose, 0))
        self._sizes[sender] = whose, size
        self._add(whose, size - before)
        while self._total > self._limit:
            ((most, _),) = self._totals.most_common(1)
            first = next(one for one, (its, _) in self._sizes.items() if its == most)
            self.done(first)
            first.give_up()

    def done(self, sender: Sender) -> None:
        """It is whole, or will never be."""
        whose, size = self._sizes.pop(sender, ("", 0))
        self._add(whose, -size)

    def _add(self, whose: str, size: int) -> None:
        self._total += size
        self._totals[whose] += size
        if not self._totals[whose]:
            del self._totals[whose]
