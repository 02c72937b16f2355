"""Room for answers: what is asked of the store for a caller is asked for when there is room for it."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from relay.core.output_budget import FREE_PARTS, Output, OutputBudget
from relay.errors import RateLimited
from relay.http.answer_budget import pages, reserved
from relay.http.routes import dead, health

LIMIT = 640_000


class Idle:
    def get_write_buffer_size(self) -> int:
        return 0


def a_request(budget: OutputBudget, handler: Any = None) -> Any:
    return SimpleNamespace(
        protocol=SimpleNamespace(output=Output(budget, Idle())), match_info=SimpleNamespace(handler=handler)
    )


def test_an_answer_has_its_share_and_keeps_it_meanwhile() -> None:
    budget = OutputBudget(LIMIT)

    with reserved(a_request(budget)) as most_bytes:
        assert most_bytes == budget.used == LIMIT // FREE_PARTS

    assert budget.used == 0


def test_one_that_cannot_be_cut_keeps_all_it_needs_and_the_next_one_waits() -> None:
    budget = OutputBudget(LIMIT)

    with reserved(a_request(budget), size=LIMIT), pytest.raises(RateLimited), reserved(a_request(budget), size=1):
        raise AssertionError("there was no room")

    assert budget.used == 0


async def _answered(_: web.Request) -> web.Response:
    return web.Response()


@pytest.mark.parametrize(("handler", "is_page"), [(dead.listing, True), (health.healthz, False)])
async def test_a_page_is_made_when_there_is_room_for_it(handler: Any, is_page: bool) -> None:
    budget = OutputBudget(LIMIT)
    budget.used = LIMIT

    if is_page:
        with pytest.raises(RateLimited):
            await pages(a_request(budget, handler), _answered)
    else:
        assert (await pages(a_request(budget, handler), _answered)).status == 200
