"""What every ring of tests may ask for."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings

from relay.store.store import Store
from tests.builders import Desk, open_desk
from tests.servers import RealServer

# How long an example takes is the machine's affair, and every run tries the same ones; `make soak` tries others.
settings.register_profile("relay", deadline=None, derandomize=True, database=None)
settings.register_profile("soak", deadline=None, derandomize=False, max_examples=10_000, database=None, print_blob=True)
settings.load_profile("relay")

MakeDesk = Callable[..., Awaitable[Desk]]


@pytest.fixture(autouse=True)
def client_is_heard() -> Iterator[None]:
    """A command silences the client's log for its whole process, which has other tests here."""
    yield
    logging.getLogger("relay.client").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RealServer]:
    """A real server, one for each process that runs tests; a test keeps to keys of its own."""
    with RealServer() as server:
        yield server


@pytest.fixture
async def make_desk(redis_server: RealServer) -> AsyncIterator[MakeDesk]:
    """Opens stores with settings of the test's own; each has keys of its own unless a prefix is named."""
    async with AsyncExitStack() as opened:

        async def make(**settings: Any) -> Desk:
            return await opened.enter_async_context(open_desk(redis_server, **settings))

        yield make


@pytest.fixture
async def desk(make_desk: MakeDesk) -> Desk:
    """A store of one shard with the default settings, every verb awaited."""
    return await make_desk()


@pytest.fixture
def store(desk: Desk) -> Store:
    """The store behind `desk`."""
    return desk.store
