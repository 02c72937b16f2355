"""Backoff with full jitter, so that clients that failed together do not retry together."""

import random

ASKED_S = (0.05, 3_600.0)  # no shorter and no longer pause is kept to: a client is never busy, nor away for good


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
        asked_s = min(max(at_least_s, ASKED_S[0]), ASKED_S[1])
        if self.attempts == 1:
            return asked_s * random.uniform(1, 1.5)
        return max(asked_s, random.uniform(0, limit_s))

    def reset(self) -> None:
        self.attempts = 0
