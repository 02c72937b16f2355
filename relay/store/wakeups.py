"""Wakes: one subscription per instance hears who has mail, and topics that somebody here follows."""

import asyncio
import logging
from collections.abc import Callable

from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from relay.store.connect import CONNECT_TIMEOUT_S
from relay.store.keys import Keys, as_packet
from relay.store.wire import Reply, Wire

log = logging.getLogger(__name__)

PING_EVERY_S = 5.0  # a subscription that does not answer a ping by the next one is cut and made again


class Wakeups:
    """Listens for ever. A wake may be lost, so whoever listens looks for itself after `resubscribed`."""

    def __init__(
        self,
        pool: ConnectionPool,
        keys: Keys,
        instance: str,
        heard: Callable[[list[list[str]]], None],
        published: Callable[[str, bytes], None],
        resubscribed: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._channels = {keys.wake_prefix(shard) + instance for shard in range(keys.shards)}
        self._tenants: dict[str, str] = {}  # channel -> tenant
        self._heard = heard
        self._published = published
        self._resubscribed = resubscribed
        self._wire: Wire | None = None
        self._unconfirmed: set[str] = set()  # channels that the server has not said yes to
        self._answered = True  # whether anything came since the last ping
        self.healthy = False

    def follow(self, tenant: str) -> None:
        """Hears what is published in a tenant, from now on and after every reconnect."""
        channel = self._keys.topics(tenant)
        if channel not in self._tenants:
            self._tenants[channel] = tenant
            self._send("SUBSCRIBE", channel)

    def unfollow(self, tenant: str) -> None:
        channel = self._keys.topics(tenant)
        if self._tenants.pop(channel, None):
            self._send("UNSUBSCRIBE", channel)

    def _send(self, *parts: str) -> None:
        if self._wire is not None and self._wire.is_open:  # else the next one subscribes to everything again
            self._wire.write(as_packet(*parts))

    async def run(self) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((OSError, RedisError)),
            wait=wait_random_exponential(multiplier=0.05, max=1),
        ):
            with attempt:
                try:
                    await self._listen()
                finally:
                    self.healthy = False
                    await self._drop_wire()

    async def _listen(self) -> None:
        """Listens until the connection is lost, which it raises."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wire = Wire(self._hear, over.set_exception)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._wire.open(self._pool)
        self._answered = True
        self._unconfirmed = set(self._channels)
        self._send("SUBSCRIBE", *sorted(self._channels | self._tenants.keys()))
        while not over.done():
            await asyncio.wait((over,), timeout=PING_EVERY_S)
            self._ping()
        log.warning("wakeups_lost", extra={"error": str(over.exception())})
        raise ConnectionResetError("the subscription was lost")

    def _ping(self) -> None:
        """Raises ConnectionResetError when the last ping was not answered."""
        if not self._answered:
            raise ConnectionResetError("the subscription does not answer")
        self._answered = False
        self._send("PING")

    def _hear(self, reply: Reply) -> None:
        self._answered = True
        if reply[0] == b"message":
            self._dispatch(reply[1].decode(), reply[2])
        elif reply[0] == b"subscribe" and self._unconfirmed:
            self._unconfirmed.discard(reply[1].decode())
            if not self._unconfirmed:
                self.healthy = True
                self._resubscribed()

    def _dispatch(self, channel: str, data: bytes) -> None:
        tenant = self._tenants.get(channel)
        if tenant is not None:
            self._published(tenant, data)
        else:
            self._heard([line.split("\t") for line in data.decode().split("\n")])

    async def _drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()
