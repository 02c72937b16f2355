"""A subscription on one server: made again when it is lost, until it is no longer wanted."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from redis.exceptions import RedisError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from relay.store.redis.resp import encode_command
from relay.store.redis.servers.connect import CONNECT_TIMEOUT_S, Server
from relay.store.redis.servers.wire import Reply, Wire

log = logging.getLogger(__name__)

PING_EVERY_S = 3.0  # a subscription that does not answer a ping by the next one is cut and made again
_NOT_HERE = ("MOVED", "CLUSTERDOWN", "TRYAGAIN")  # the channel is another node's: whoever knows the nodes sees to it


class Subscription:
    """Hears what is published on the channels that are wanted.

    `became_whole` is called when all of them are heard again: what was published before may have been missed.
    `lost_channel` is called when the server does not have a channel any more.
    """

    def __init__(
        self,
        server: Server,
        is_sharded: bool,
        heard: Callable[[str, bytes], None],
        became_whole: Callable[[], None],
        lost_channel: Callable[[], None],
    ) -> None:
        self._server = server
        self._is_sharded = is_sharded
        prefix = "S" if is_sharded else ""
        self._subscribe, self._unsubscribe = prefix + "SUBSCRIBE", prefix + "UNSUBSCRIBE"
        self._subscribed, self._unsubscribed = self._subscribe.lower().encode(), self._unsubscribe.lower().encode()
        self._message = b"smessage" if is_sharded else b"message"
        self._heard = heard
        self._became_whole = became_whole
        self._lost_channel = lost_channel
        self._wanted: set[str] = set()
        self.confirmed: set[str] = set()  # the channels that the server has said yes to
        self._wire: Wire | None = None
        self._answered = True  # whether anything came since the last ping
        self._over: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()  # why it ended

    def want(self, channels: Iterable[str]) -> None:
        """These, and no others, from now on and after every reconnect."""
        before, self._wanted = self._wanted, set(channels)
        self._send(self._subscribe, self._wanted - before)
        self._send(self._unsubscribe, before - self._wanted)
        self.confirmed &= self._wanted

    def add(self, channel: str) -> None:
        self._wanted.add(channel)
        self._send(self._subscribe, [channel])

    def drop(self, channel: str) -> None:
        self._wanted.discard(channel)
        self.confirmed.discard(channel)
        self._send(self._unsubscribe, [channel])

    async def run(self) -> None:
        """Listens for ever."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((OSError, RedisError)),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            before_sleep=_say_why,
        ):
            with attempt:
                try:
                    await self._listen()
                finally:
                    self.confirmed.clear()
                    await self._drop_wire()

    def _send(self, word: str, channels: Iterable[str]) -> None:
        """A sharded subscription is for one slot: a word for each channel."""
        if self._wire is None or not self._wire.is_open or not channels:
            return  # the next connection subscribes to everything again
        names = sorted(channels)
        commands = [[name] for name in names] if self._is_sharded else [names]
        self._wire.write(b"".join([encode_command(word, *command) for command in commands]))

    async def _listen(self) -> None:
        """Listens until the connection is lost or the subscription refused, which it raises."""
        self._over = asyncio.get_running_loop().create_future()
        self._wire = Wire(self._hear, self._end)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._wire.open(self._server)
        self._answered = True
        self._send(self._subscribe, self._wanted)
        while not self._over.done():
            await asyncio.wait((self._over,), timeout=PING_EVERY_S)
            self._ping()
        raise self._over.result()

    def _ping(self) -> None:
        """Ends the subscription when the last ping was not answered. Asks again for what was not granted."""
        if not self._answered:
            self._end(ConnectionResetError("the subscription does not answer"))
        self._answered = False
        if self._wire is not None and self._wire.is_open:
            self._wire.write(encode_command("PING"))
        self._send(self._subscribe, self._wanted - self.confirmed)

    def _end(self, error: Exception) -> None:
        if not self._over.done():
            self._over.set_result(error)

    def _hear(self, reply: Reply) -> None:
        self._answered = True
        if isinstance(reply, Exception):
            self._refused(reply)
        elif reply[0] == self._message:
            self._heard(reply[1].decode(), reply[2])
        elif reply[0] == self._subscribed:
            self._confirm(reply[1].decode())
        elif reply[0] == self._unsubscribed and reply[1].decode() in self._wanted:
            self.confirmed.discard(reply[1].decode())
            self._lost_channel()

    def _refused(self, error: Exception) -> None:
        if str(error).startswith(_NOT_HERE):
            self._lost_channel()
        else:
            self._end(error)

    def _confirm(self, channel: str) -> None:
        if channel in self._wanted and channel not in self.confirmed:
            self.confirmed.add(channel)
            if self._wanted == self.confirmed:
                self._became_whole()

    async def _drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


def _say_why(attempt: RetryCallState) -> None:
    error = attempt.outcome.exception() if attempt.outcome else None
    log.warning("wakeups_lost", extra={"error": str(error) or type(error).__name__})
