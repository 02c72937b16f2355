"""Repeats: messages with the same sender and id are not handled again."""

from collections import deque

from relay.client.inbox.message import Key
from relay.client.journal import Journal, Statement

WINDOW = 100_000  # the newest so many are remembered
REPLY_BYTES = (
    32 * 2**20
)  # of replies that are said again to a repeated request; of an older one only that it was answered

NOTE = "INSERT INTO relay_handled VALUES (?, ?, ?, ?)"
FORGET = "DELETE FROM relay_handled WHERE serial <= ?"
FORGET_REPLY = "UPDATE relay_handled SET reply = NULL WHERE serial = ?"


class Repeats:
    """The window of handled messages: in memory, and in the outbox file if there is one."""

    def __init__(self, journal: Journal, window: int = WINDOW) -> None:
        self._journal = journal
        self._window = window
        self._serial = 0
        self._replies: dict[Key, bytes | None] = {}  # what a request was answered with
        self._with_reply: deque[tuple[int, Key, int]] = deque()  # serial and bytes of those, oldest first
        self._reply_bytes = 0

    async def open(self) -> None:
        for serial, sender, id, reply in await self._journal.rows("SELECT * FROM relay_handled ORDER BY serial"):
            self._serial = serial
            self._remember((sender, id), reply)

    def __contains__(self, key: Key) -> bool:
        return key in self._replies

    def reply_to(self, key: Key) -> bytes | None:
        return self._replies[key]

    def note(self, key: Key, reply: bytes | None) -> None:
        """It is handled."""
        self._journal.put(*self.noting(key, reply))

    def noting(self, key: Key, reply: bytes | None) -> Statement:
        """The statement that records it, for the caller's transaction."""
        self._serial += 1
        self._remember(key, reply)
        if len(self._replies) > self._window * 1.1:
            self._trim()
        return NOTE, (self._serial, *key, reply)

    def _remember(self, key: Key, reply: bytes | None) -> None:
        self._replies[key] = reply
        if reply is not None:
            self._with_reply.append((self._serial, key, len(reply)))
            self._reply_bytes += len(reply)
            while self._reply_bytes > REPLY_BYTES:
                self._forget_reply()

    def _forget_reply(self) -> None:
        serial, key, size = self._with_reply.popleft()
        self._reply_bytes -= size
        if key in self._replies:
            self._replies[key] = None
            self._journal.put(FORGET_REPLY, (serial,))

    def forget(self, key: Key) -> None:
        """It was not handled after all."""
        self._replies.pop(key, None)

    def _trim(self) -> None:
        """A tenth at a time, so that it is seldom done."""
        for key in list(self._replies)[: len(self._replies) - self._window]:
            del self._replies[key]
        oldest = self._serial - self._window
        while self._with_reply and self._with_reply[0][0] <= oldest:
            self._reply_bytes -= self._with_reply.popleft()[2]
        self._journal.put(FORGET, (oldest,))
