"""Opens the store for commands that read it directly."""

import dataclasses
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from relay.cli.up.embedded import running_url
from relay.errors import ConfigurationError
from relay.settings import Settings
from relay.store import readable
from relay.store.keys import Keys
from relay.store.store import Store, open_store


def url_of_store(chosen: Settings) -> str:
    """The store that runs: the one that is set, or the embedded one. None is started. Raises ConfigurationError."""
    url = _url(chosen)
    if url is None:
        raise ConfigurationError(
            f"no store: RELAY_REDIS_URL is not set, and none runs in {chosen.data_dir} (RELAY_DATA_DIR)"
        )
    return url


@asynccontextmanager
async def store_at_hand(chosen: Settings) -> AsyncIterator[Store | None]:
    """The store where it can be reached from here, with as many shards as it was made with. Raises StoreUnavailable."""
    url = _url(chosen)
    if url is None:
        yield None
        return
    async with open_store(chosen, url) as store:
        shards = readable.whole((await store.checkup.meta()).get("shards")) or chosen.shards
    async with open_store(dataclasses.replace(chosen, shards=shards), url) as store:
        yield store


def redis_cli(chosen: Settings) -> str:
    """redis-cli as it reaches the store from here, without passwords: a screen is no place for them."""
    words, url = ["redis-cli"], urlsplit(_url(chosen) or "")
    if url.scheme == "unix":
        words += ["-s", url.path]
    elif url.scheme in ("redis", "rediss", "redis+cluster"):
        first = urlsplit(f"//{url.netloc.rpartition('@')[2].partition(',')[0]}")
        words += ["-h", first.hostname or "127.0.0.1", "-p", str(first.port or 6379)]
        words += ["--tls"] * (url.scheme == "rediss") + ["-c"] * (url.scheme == "redis+cluster")
    return shlex.join(words)


def keys_by_settings(chosen: Settings) -> Keys:
    """The names of keys in a store with these settings."""
    return Keys(chosen.shards, chosen.dedup_window_s * 1_000, chosen.message_ttl_s * 1_000)


def _url(chosen: Settings) -> str | None:
    return chosen.redis_url or running_url(chosen.data_dir)
