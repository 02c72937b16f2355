"""Backoff with full jitter, so that clients that failed together do not retry together."""

import random


class Backoff:
    """Grows with every attempt, from `first_s` doubling to `longest_s`."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.attempts = 0

    def next_s(self, at_least_s: float | None = None) -> float:
        """The next pause. What the relay asked for is kept to, and spread out by half of it at most."""
        limit_s = min(self._longest_s, self._first_s * 2 ** min(self.attempts, 30))
        self.attempts += 1
        if at_least_s is None:
            return random.uniform(0, limit_s)
        if self.attempts == 1:
            return at_least_s * random.uniform(1, 1.5)
        return max(at_least_s, random.uniform(0, limit_s))

    def reset(self) -> None:
        self.attempts = 0
