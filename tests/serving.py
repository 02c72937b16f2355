"""An instance in the test's own process, so that the test can change its constants."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from relay.app import make_app
from relay.http.app_keys import INSTANCE
from relay.server.connections import Runner
from relay.settings import Settings
from relay.store.store import open_store

SECRET = "a secret for tests that is long enough"


@asynccontextmanager
async def serving(store_url: str, **settings: Any) -> AsyncIterator[str]:
    """The url of an instance with data of its own on that server."""
    chosen = Settings(token_secret=SECRET, shards=1, drain_s=0, **settings)
    async with open_store(chosen, store_url, prefix=f"test-{os.urandom(6).hex()}") as store:
        app = make_app(store)
        runner = Runner(app, app[INSTANCE], shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()
