"""Finds the server by its url: a fixed address, the master that Sentinels name, or the nodes of a Cluster."""

import re
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio import Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from relay.errors import ConfigurationError
from relay.store.redis.servers.sentinels import Address, Sentinels
from relay.store.redis.servers.topology import Topology

CONNECT_TIMEOUT_S = 2.0
SENTINEL_PORT = 26_379
SERVER_PORT = 6_379

# Retries and timeouts are pipeline.py's: only there it is known which calls may be sent twice.
_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": CONNECT_TIMEOUT_S,
    "socket_timeout": None,
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
    "decode_responses": False,
    "health_check_interval": 0,
}
_TLS_PARAMETERS = ("ssl", "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname", "ssl_certfile", "ssl_keyfile")
_PARAMETERS = {
    "redis+sentinel": ("db", "sentinel_username", "sentinel_password", *_TLS_PARAMETERS),
    "redis+cluster": _TLS_PARAMETERS,
}
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+)(?::([0-9]{1,5}))?")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Server(Protocol):
    """The server that takes the writes."""

    @property
    def replicas(self) -> int:
        """How many replicas a failover may choose from; 0 where nobody tells."""

    def note_role(self, role: Any) -> None:
        """The server's answer to ROLE, after an exchange that must be replicated."""

    async def connect(self) -> Connection:
        """A connection of its own, connected and authenticated. Raises OSError or RedisError."""

    async def watch(self) -> None:
        """Follows the master, for ever: connections to another server are cut."""


class OneServer:
    """A server that is always at the same address."""

    replicas = 0

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def __str__(self) -> str:
        options = self._pool.connection_kwargs
        return options.get("path") or "{}:{}".format(options.get("host"), options.get("port", SERVER_PORT))

    async def connect(self) -> Connection:
        connection: Connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        await connection.connect()  # type: ignore[no-untyped-call]
        return connection

    def note_role(self, role: Any) -> None:
        """Ignored: there is no failover."""

    async def watch(self) -> None:
        """It does not move."""


def home_at(url: str) -> Server | Topology:
    """Where the keys are: on one server or on a Cluster. Raises ConfigurationError for a url that it cannot use."""
    try:
        scheme = urlsplit(url).scheme
        if scheme in ("redis", "rediss", "unix"):
            return OneServer(ConnectionPool.from_url(url, **_OPTIONS))
        if scheme == "redis+sentinel":
            return _behind_sentinels(url)
        if scheme == "redis+cluster":
            return _of_cluster(url)
    except ValueError as error:
        raise ConfigurationError(f"RELAY_REDIS_URL: {error}") from None
    raise ConfigurationError(
        f"RELAY_REDIS_URL: the scheme {scheme!r} is not supported; "
        "use redis, rediss, unix, redis+sentinel or redis+cluster"
    )


def _behind_sentinels(url: str) -> Sentinels:
    """redis+sentinel://[user:password@]host:port,host:port/name[?db=0&sentinel_password=…&ssl=true]"""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    name = unquote(parts.path.strip("/"))
    if not hosts or not name:
        raise ValueError("redis+sentinel:// needs host:port,… and /name")
    username, _, password = credentials.partition(":")
    given = _parameters(parts.scheme, parts.query)
    kind, tls = _transport(given)
    to_server: dict[str, Any] = _login(unquote(username), unquote(password)) | {
        "db": _number(given.get("db", "0"), "db")
    }
    to_sentinel: dict[str, Any] = _login(given.get("sentinel_username", ""), given.get("sentinel_password", ""))

    def server(address: Address) -> Connection:
        return kind(host=address[0], port=address[1], **_OPTIONS, **tls, **to_server)

    def sentinel(address: Address) -> Connection:
        return kind(host=address[0], port=address[1], **_OPTIONS, **tls, **to_sentinel)

    return Sentinels(name, [_address(host, SENTINEL_PORT) for host in hosts.split(",")], sentinel, server)


def _of_cluster(url: str) -> Topology:
    """redis+cluster://[user:password@]host:port,host:port[?ssl=true]: some of the nodes, which name the others."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    if not hosts or parts.path.strip("/"):
        raise ValueError("redis+cluster:// needs host:port,… and nothing behind it: a Cluster has one database")
    username, _, password = credentials.partition(":")
    kind, tls = _transport(_parameters(parts.scheme, parts.query))
    login: dict[str, Any] = _login(unquote(username), unquote(password))

    def node(address: Address) -> Connection:
        return kind(host=address[0], port=address[1], **_OPTIONS, **tls, **login)

    return Topology([_address(host, SERVER_PORT) for host in hosts.split(",")], node)


def _parameters(scheme: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in _PARAMETERS[scheme]:
            raise ValueError(f"{name!r} is no parameter of {scheme}://; use {', '.join(_PARAMETERS[scheme])}")
    return given


def _transport(given: dict[str, str]) -> tuple[type[Connection], dict[str, Any]]:
    """With ssl=true every server, and every Sentinel, is spoken to over TLS."""
    tls: dict[str, Any] = {name: value for name, value in given.items() if name.startswith("ssl_")}
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = _truth(tls["ssl_check_hostname"], "ssl_check_hostname")
    if _truth(given.get("ssl", "false"), "ssl"):
        return SSLConnection, tls
    if tls:
        raise ValueError(f"{', '.join(tls)} without ssl=true would do nothing")
    return Connection, {}


def _login(username: str, password: str) -> dict[str, str]:
    return {key: value for key, value in (("username", username), ("password", password)) if value}


def _address(text: str, usual_port: int) -> Address:
    match = _HOST_PORT.fullmatch(text)
    port = int(match[2] or usual_port) if match else 0
    if match is None or not 0 < port < 65_536:
        raise ValueError(f"{text!r} is not host:port")
    return match[1].strip("[]"), port


def _number(text: str, what: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{what} must be a number, not {text!r}")
    return int(text)


def _truth(text: str, what: str) -> bool:
    try:
        return _TRUTHS[text.lower()]
    except KeyError:
        raise ValueError(f"{what} must be true or false, not {text!r}") from None
