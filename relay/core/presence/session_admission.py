"""Session admission: limits how many sessions begin per second, so that a rush does not slow existing ones."""

from collections.abc import Callable

BURST_SHARE = 0.1  # of a second's worth may begin at once; the rest evenly, so that no second has more than the limit
LATEST_S = 60.0  # nobody is told to stay away for longer


class SessionAdmission:
    """Each client over the limit gets its own time to come back, in the order of arrival."""

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._every_s = 1 / (per_s * (1 - BURST_SHARE))
        self._burst_s = max(1.0, per_s * BURST_SHARE) * self._every_s
        self._begun_until = 0.0  # when the next one would begin, had they begun evenly
        self._appointed_until = 0.0  # the last time that somebody was told

    def wait_ms(self) -> int:
        """0 if a session may begin now, else when its client should come back."""
        now = self._clock()
        begun_until = max(self._begun_until, now - self._burst_s)
        if begun_until + self._every_s <= now:
            self._begun_until = begun_until + self._every_s
            return 0
        earliest = max(self._appointed_until, self._begun_until, now)
        self._appointed_until = min(earliest + self._every_s, now + LATEST_S)
        return max(1, round((self._appointed_until - now) * 1_000))
