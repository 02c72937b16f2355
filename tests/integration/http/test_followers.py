"""A follower of the events takes the place of one call that waits, for as long as it is there."""

import aiohttp
import pytest

from relay.http import long_poll
from tests.agents import make_token
from tests.callers import soon
from tests.servers import RealServer
from tests.serving import SECRET, serving


async def test_a_follower_that_goes_away_is_forgotten(
    redis_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "MAX_LONG_POLLS", 1)
    headers = {"Authorization": f"Bearer {make_token(SECRET, 'acme/eve', scope='inspect')}"}

    async with serving(redis_server.url) as url, aiohttp.ClientSession(url, headers=headers) as http:

        async def follow() -> int:
            async with http.get("/v1/events") as answer:
                return answer.status

        async with http.get("/v1/events") as first:
            while_it_follows = first.status, await follow()

        assert while_it_follows == (200, 429)
        await soon(follow, 200)
