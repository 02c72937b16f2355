"""Random histories on a real store against a model in memory: nothing is lost, doubled or stuck; the books balance."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.history import a_step, play
from tests.servers import RealServer


@settings(
    max_examples=80,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(steps=st.lists(a_step(), min_size=30, max_size=60))
def test_the_books_balance_whatever_happens(redis_server: RealServer, steps: list[tuple[str, dict[str, Any]]]) -> None:
    asyncio.run(play(redis_server, steps))
