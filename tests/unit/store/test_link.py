"""A connection that exchanges, when its server is given up."""

import pytest
from redis.exceptions import RedisError

from relay.store.redis.servers.connect import OneServer, home_at
from relay.store.redis.servers.link import Link
from tests.servers import HOST, free_port


async def test_giving_up_a_server_that_could_not_be_reached_is_harmless() -> None:
    server = home_at(f"redis://{HOST}:{free_port()}")
    assert isinstance(server, OneServer)
    link = Link(server, ())
    with pytest.raises((OSError, RedisError)):
        await link.open()

    link.abort("the server is no master any more")

    assert not link.is_open
