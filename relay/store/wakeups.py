"""Wakes: one subscription per instance hears who has mail, and topics that somebody here follows."""

import asyncio
import logging
import math
from collections.abc import Callable

from redis.asyncio import Connection, ConnectionPool
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from relay.store.connect import open_connection
from relay.store.keys import Keys, as_packet

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
        self._connection: Connection | None = None
        self._answered = True
        self.healthy = False

    async def follow(self, tenant: str) -> None:
        """Hears what is published in a tenant, from now on and after every reconnect."""
        channel = self._keys.topics(tenant)
        if channel not in self._tenants:
            self._tenants[channel] = tenant
            await self._send("SUBSCRIBE", channel)

    async def unfollow(self, tenant: str) -> None:
        channel = self._keys.topics(tenant)
        if self._tenants.pop(channel, None):
            await self._send("UNSUBSCRIBE", channel)

    async def _send(self, *parts: str) -> None:
        if self._connection is not None:
            try:
                await self._connection.send_packed_command(as_packet(*parts), check_health=False)
            except (OSError, RedisError):
                self._connection = None  # the listener notices and subscribes to everything again

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
                    await self._drop_connection()

    async def _listen(self) -> None:
        connection = await open_connection(self._pool)
        await connection.send_packed_command(
            as_packet("SUBSCRIBE", *sorted(self._channels | self._tenants.keys())), check_health=False
        )
        self._connection = connection
        self._answered = True
        confirmed = 0
        async with asyncio.TaskGroup() as tasks:
            pinger = tasks.create_task(self._ping(connection))
            try:
                while True:
                    reply = await connection.read_response(timeout=math.inf)
                    self._answered = True
                    if reply[0] == b"message":
                        self._dispatch(reply[1].decode(), reply[2])
                    elif reply[0] == b"subscribe":
                        confirmed += 1
                        if confirmed == len(self._channels):
                            self.healthy = True
                            self._resubscribed()
            except (OSError, RedisError) as error:
                log.warning("wakeups_lost", extra={"error": str(error)})
            finally:
                pinger.cancel()
        raise ConnectionResetError("the subscription was lost")

    async def _ping(self, connection: Connection) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            if not self._answered:
                await connection.disconnect(nowait=True)
                return
            self._answered = False
            try:
                await connection.send_packed_command(as_packet("PING"), check_health=False)
            except (OSError, RedisError):
                return

    def _dispatch(self, channel: str, data: bytes) -> None:
        tenant = self._tenants.get(channel)
        if tenant is not None:
            self._published(tenant, data)
        else:
            self._heard([line.split("\t") for line in data.decode().split("\n")])

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
