"""The relay's store for the pipeline: server and keys. It reads, and writes only the archive's position."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
SENTINEL_TIMEOUT_S = 1.0
SCAN_COUNT = 1_000  # keys that one SCAN looks at: well below a millisecond
DEFAULT_PREFIX = "relay"

Client = Any  # Redis or RedisCluster; what is common to them has no types
_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": CONNECT_TIMEOUT_S,
    "socket_timeout": ANSWER_TIMEOUT_S,
    "protocol": 2,
    "decode_responses": False,
}
# Each is asked once: redis-py would else spend seconds on one that is down before it asks the next.
_SENTINEL_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": SENTINEL_TIMEOUT_S,
    "socket_timeout": SENTINEL_TIMEOUT_S,
    "retry": Retry(NoBackoff(), 0),
}
# redis-py folds the fields of an entry into a dict, and the events of an entry all have the same name.
_AS_THEY_ARE = ("XRANGE", "XREVRANGE", "XINFO STREAM", "XPENDING")


class StoreError(Exception):
    """The store cannot be read; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a store, small enough to send to every task."""

    url: str
    prefix: str
    shards: int
    epoch: str


def locate(options: Mapping[str, str]) -> Place:
    """The store that the options of a data source name. Raises StoreError."""
    url, prefix = options.get("url"), options.get("prefix") or DEFAULT_PREFIX
    if not url:
        raise StoreError("the option `url` is missing")
    shards, epoch = _meta(url, f"{prefix}:meta")
    count = options.get("shards") or shards
    if not count:
        raise StoreError(f"{prefix}:meta is not there: no relay has used this store; the option `shards` would do")
    if not count.isdecimal() or int(count) < 1:
        raise StoreError(f"the option `shards` must be a number from 1 on, not {count!r}")
    return Place(url, prefix, int(count), epoch)


def _meta(url: str, key: str) -> tuple[str, str]:
    client = connect(url)
    try:
        stored = client.hmget(key, ["shards", "epoch"])
    except RedisError as error:
        raise StoreError(f"the store does not answer: {error}") from None
    finally:
        client.close()
    shards, epoch = (value.decode() if value else "" for value in stored)
    return shards, epoch


def connect(url: str) -> Client:
    """The server, the master behind Sentinels, or the Cluster. Raises StoreError for a url that it cannot use."""
    scheme = urlsplit(url).scheme
    try:
        if scheme in ("redis", "rediss", "unix"):
            return Redis.from_url(url, **_OPTIONS)
        if scheme == "redis+sentinel":
            return _behind_sentinels(url)
        if scheme == "redis+cluster":
            return _in_cluster(url)
    except ValueError as error:
        raise StoreError(f"the option `url`: {error}") from None
    raise StoreError(
        f"the option `url`: the scheme {scheme!r} is not supported; "
        "use redis, rediss, unix, redis+sentinel or redis+cluster"
    )


def _behind_sentinels(url: str) -> Client:
    """redis+sentinel://[user:password@]host:port,host:port/name[?db=0&sentinel_password=…&ssl=true]"""
    nodes, login, name = _several_hosts(url, 26379)
    if not name:
        raise ValueError("redis+sentinel:// needs host:port,… and /name")
    given = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    tls = _tls(given)
    own = _login(given.get("sentinel_username", ""), given.get("sentinel_password", ""))
    sentinel: Any = Sentinel(nodes, sentinel_kwargs=_SENTINEL_OPTIONS | own | tls)  # type: ignore[no-untyped-call]
    return sentinel.master_for(name, db=int(given.get("db") or 0), **_OPTIONS, **login, **tls)


def _in_cluster(url: str) -> Client:
    """redis+cluster://[user:password@]host:port,host:port[?ssl=true]"""
    nodes, login, _ = _several_hosts(url, 6379)
    options: dict[str, Any] = _OPTIONS | login | _tls(dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)))
    first = [ClusterNode(host, port) for host, port in nodes]  # type: ignore[no-untyped-call]
    return RedisCluster(startup_nodes=first, **options)


def _several_hosts(url: str, default_port: int) -> tuple[list[tuple[str, int]], dict[str, str], str]:
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    nodes = []
    for named in hosts.split(","):
        host, _, port = named.partition(":")
        if not host or not (port or str(default_port)).isdecimal():
            raise ValueError(f"{named!r} is not host:port")
        nodes.append((host, int(port or default_port)))
    return nodes, _login(unquote(username), unquote(password)), unquote(parts.path.strip("/"))


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    tls: dict[str, Any] = {key: value for key, value in given.items() if key.startswith("ssl_")}
    if given.get("ssl", "").lower() in ("true", "yes", "1"):
        tls["ssl"] = True
    return tls


def _login(username: str, password: str) -> dict[str, str]:
    return {key: value for key, value in (("username", username), ("password", password)) if value}


class Store:
    """An open store. Stream entries are returned raw: an id, and a flat list of names and values."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._client: Client = connect(place.url)
        self._is_cluster = isinstance(self._client, RedisCluster)

    def key(self, shard: int, name: str) -> str:
        return f"{self.place.prefix}:{{s{shard:02d}}}:{name}"

    def epoch(self) -> str:
        """Which life of the store this is; another one after a wipe."""
        value: bytes | None = self._client.hget(f"{self.place.prefix}:meta", "epoch")
        return value.decode() if value else ""

    def archived(self, shard: int) -> str:
        """The position that the archive has told; empty before it has."""
        value: bytes | None = self.server_of(shard).get(self.key(shard, "archived"))
        return value.decode() if value else ""

    def server_of(self, shard: int) -> Client:
        """The server that has all keys of a shard."""
        client = self._client
        if self._is_cluster:
            client = client.get_redis_connection(client.get_node_from_key(self.key(shard, "events")))
        for command in _AS_THEY_ARE:
            client.set_response_callback(command, _as_it_is)
        return client

    def servers(self) -> Iterator[Client]:
        """Every server that has keys of its own."""
        if not self._is_cluster:
            yield self._client
            return
        for node in self._client.get_primaries():
            yield self._client.get_redis_connection(node)

    def keys_like(self, name: str) -> Iterator[tuple[int, str]]:
        """Shard and name of every key whose name in its shard begins so. Walks all keys, a few at a time."""
        lead = f"{self.place.prefix}:{{s"
        keys = set()
        for server in self.servers():
            for key in server.scan_iter(match=f"{lead}[0-9]*}}:{name}*", count=SCAN_COUNT):
                shard, _, rest = key.decode().removeprefix(lead).partition("}:")
                keys.add((int(shard), rest))
        return iter(sorted(keys))

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_it_is(reply: Any, **_: Any) -> Any:
    return reply


def options_from_environ(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The options of the data sources, from the relay's own variable: a url may hold a password, and is no argument."""
    url = environ.get("RELAY_REDIS_URL")
    if not url:
        raise StoreError("RELAY_REDIS_URL is not set: it names the store")
    return {"url": url}
