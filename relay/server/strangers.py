"""Strangers: limits how much an unauthenticated client may send before its input is handled."""

from collections.abc import Callable


class Stranger:
    """Unhandled input of one connection."""

    __slots__ = ("_is_dropped", "_is_held", "_most", "_pause", "_resume", "on_flood", "unread")

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.unread = 0  # bytes that came since the last answer, or the last frame
        self.on_flood: Callable[[], None] | None = None  # told when there are too many
        self._most = 0  # how many there may be; 0 if that is not limited here
        self._is_held = False  # whether nothing more is read
        self._is_dropped = False  # whether what comes is forgotten
        self._pause, self._resume = pause, resume

    def limit(self, most: int) -> None:
        """Sets the limit of unhandled bytes."""
        self._most = most
        self._check()

    def sent(self, size: int) -> bool:
        """Counts received bytes. False if they are to be dropped."""
        self.unread += size
        if not self._is_dropped:
            self._check()
        return not self._is_dropped

    def answered(self) -> None:
        """The input so far has been handled."""
        self.unread = 0
        self.release()

    def drop(self) -> bool:
        """Drops further input, so that the stranger can read why. False if it has sent little."""
        if self._is_held:
            self._is_dropped = True
            self.release()
        return self._is_dropped

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._resume()

    def _check(self) -> None:
        if not 0 < self._most < self.unread:
            return
        self._pause()  # again, for whoever takes a frame may have ended the pause
        if not self._is_held and self.on_flood is not None:
            self._is_held = True
            self.on_flood()
