"""Connections to Redis or Valkey: single server or Sentinel, by the url."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from relay.errors import ConfigurationError

CONNECT_TIMEOUT_S = 2.0

# Retries and timeouts are batches.py's: only there it is known which calls may be sent twice.
_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": CONNECT_TIMEOUT_S,
    "socket_timeout": None,
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
    "decode_responses": False,
    "health_check_interval": 0,
}


def connection_pool(url: str) -> ConnectionPool:
    """Connections to the master behind this url. Raises ConfigurationError for a url it cannot use."""
    scheme = urlsplit(url).scheme
    if scheme in ("redis", "rediss", "unix"):
        try:
            return ConnectionPool.from_url(url, **_OPTIONS)
        except ValueError as error:
            raise ConfigurationError(f"RELAY_REDIS_URL: {error}") from None
    if scheme == "redis+sentinel":
        return _sentinel_pool(url)
    raise ConfigurationError(
        f"RELAY_REDIS_URL: the scheme {scheme!r} is not supported; use redis, rediss, unix or redis+sentinel"
    )


def _sentinel_pool(url: str) -> ConnectionPool:
    """redis+sentinel://[user:password@]host:port,host:port/name[?db=0]"""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    name = parts.path.strip("/")
    if not hosts or not name:
        raise ConfigurationError("RELAY_REDIS_URL: redis+sentinel:// needs host:port,… and /name")
    username, _, password = credentials.partition(":")
    nodes = []
    for host in hosts.split(","):
        node, _, port = host.rpartition(":")
        nodes.append((node or port, int(port) if node else 26379))
    login = {key: value for key, value in (("username", username), ("password", password)) if value}
    database = int(parse_qs(parts.query).get("db", ["0"])[0])
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        nodes, sentinel_kwargs={"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": CONNECT_TIMEOUT_S}
    )
    options: dict[str, Any] = {"db": database, **login, **_OPTIONS}
    pool: ConnectionPool = sentinel.master_for(name, **options).connection_pool
    return pool


async def open_connection(pool: ConnectionPool) -> Connection:
    """A connection of its own, connected and authenticated, outside any borrowing."""
    connection: Connection = pool.make_connection()  # type: ignore[no-untyped-call]
    await connection.connect()  # type: ignore[no-untyped-call]
    return connection
