"""Redis lists, the reliable queue by hand: LPUSH, BLMOVE into a list of what is in work, LREM as the ack."""

from collections.abc import Iterator
from contextlib import contextmanager

import hiredis

from bench.peers.connection import Connection
from bench.peers.peer import Closable, Count, Deliver, Letters, Peer, Sender
from bench.peers.programs import Processes
from bench.servers import RealServer

OPTIONS = {"maxclients": "20000", "appendfsync": "everysec"}


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class Pusher(Connection):
    def __init__(self, confirmed: Count) -> None:
        super().__init__()
        self._confirmed = confirmed
        self._reader = hiredis.Reader()

    def publish(self, letters: Letters) -> None:
        self.write(b"".join([command(b"LPUSH", b"box:%d" % to, payload) for to, payload in letters]))

    def _take(self, data: bytes) -> int:
        self._reader.feed(data)
        confirms = 0
        while self._reader.gets() is not False:
            confirms += 1
        if confirms:
            self._confirmed(confirms)
        return len(data)


class Popper(Connection):
    """Takes one message after the other: a connection that waits for the next one can do nothing else."""

    def __init__(self, number: int, delivered: Deliver) -> None:
        super().__init__()
        self._delivered = delivered
        self._work = b"work:%d" % number
        self._pop = command(b"BLMOVE", b"box:%d" % number, self._work, b"RIGHT", b"LEFT", b"0")
        self._reader = hiredis.Reader()

    def begin(self) -> None:
        self.write(self._pop)

    def _take(self, data: bytes) -> int:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, bytes):
                self._delivered([reply])
                self.write(command(b"LREM", self._work, b"1", reply) + self._pop)
        return len(data)


class Lists(Processes):
    tells_the_end = False

    def __init__(self, pid: int, port: int) -> None:
        super().__init__([pid])
        self._port = port

    async def declare(self, numbers: range) -> None:
        """Nothing: an empty list does not exist."""

    async def sender(self, number: int, confirmed: Count, ended: Count) -> Sender:  # noqa: ARG002 - never told
        return await Pusher(confirmed).connect(self._port)

    async def recipient(self, number: int, delivered: Deliver) -> Closable:
        popper = await Popper(number, delivered).connect(self._port)
        popper.begin()
        return popper


@contextmanager
def start() -> Iterator[Lists]:
    with RealServer(OPTIONS) as server:
        yield Lists(server.pid, server.port)


REDIS_LISTS = Peer("redis-lists", "LPUSH, BLMOVE, LREM; everysec", lambda: "", start)
