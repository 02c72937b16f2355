"""What things cost in the server's memory is what docs/limits.md says."""

import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.builders import ALICE, BOB, CAROL, Desk, a_message
from tests.conftest import MakeDesk
from tests.integration.test_costs import assert_close, usage
from tests.integration.test_costs import documented as of_operations
from tests.servers import RealServer

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text()
COUNT = 1_000  # of fewer, a server makes one compact text
NAME = "n-{:03d}"
Measure = Callable[[Desk], Awaitable[float]]


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RealServer]:
    """A server of their own: what other tests have left there would be freed while these measure."""
    with RealServer() as server:
        yield server


async def threads(desk: Desk) -> float:
    """As long as one is waited for, and without the name, which counts twice."""
    names = [NAME.format(n) for n in range(COUNT)]
    await desk.send(*(a_message(name, thread=name) for name in names))
    seqs, _ = desk.keys.seqs(0, desk.clock.now_ms())
    return usage(desk, seqs, desk.keys.threads(0)) / COUNT - 2 * len(names[0])


async def tasks(desk: Desk) -> float:
    ids = [NAME.format(n) for n in range(COUNT)]
    for task_id in ids:
        desk.store.tasks.open(ALICE, task_id, BOB, 60_000)
    await desk.store.pipeline.finish()
    kept = (desk.keys.task(ALICE, task_id) for task_id in ids)
    return usage(desk, *kept, desk.keys.tasks(ALICE), desk.keys.task_sizes(ALICE)) / COUNT


async def registrations(desk: Desk) -> float:
    for n in range(COUNT):
        await desk.store.agents.register(f"acme/{NAME.format(n)}", mode="shared")
    return usage(desk, desk.keys.agents(0), desk.keys.roster(0)) / COUNT


async def rates(desk: Desk) -> float:
    for n in range(COUNT):
        desk.store.rates.spend(f"acme/{NAME.format(n)}", 1, lambda *_: None)
    await desk.store.pipeline.finish()
    return usage(desk, desk.keys.rates(0)) / COUNT


async def ended(desk: Desk) -> float:
    for n in range(COUNT):
        await desk.send_one(a_message(NAME.format(n)))
        await desk.cancel(NAME.format(n))
    return usage(desk, desk.keys.ended(0, desk.clock.now_ms())[0]) / COUNT


async def owed(desk: Desk) -> float:
    await desk.send_one(a_message("ask", request=True, receipt=False))
    bob = await desk.join()
    (asked,) = await desk.take(bob)
    await desk.send_one(a_message("in the way", to=ALICE), sender=CAROL)
    for n in range(COUNT):
        await desk.reply(bob, asked.entry, n, more=True)
    await desk.store.pipeline.finish()
    assert desk.redis.llen(desk.keys.owed(ALICE)) == COUNT
    return usage(desk, desk.keys.owed(ALICE)) / COUNT


MEASURES: dict[str, Measure] = {
    "a thread": threads,
    "a task": tasks,
    "one registration": registrations,
    "the rate of one sender": rates,
    "the id of an ended message": ended,
    "an answer that waits for room": owed,
}


ALSO_IN_OPERATIONS = {
    "the id of an ended message": "its id after the end, for `RELAY_DEDUP_WINDOW_S`",
    "a receipt": "a receipt that waits for its sender",
}


@pytest.mark.parametrize("what", ALSO_IN_OPERATIONS)
def test_a_cost_is_the_same_on_both_pages(what: str) -> None:
    assert documented(what) == of_operations()[ALSO_IN_OPERATIONS[what]]


def documented(what: str) -> int:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {what} |"))
    number = re.match(r"[\d,]+", row.split("|")[2].strip())
    assert number is not None
    return int(number[0].replace(",", ""))


@pytest.mark.parametrize("what", MEASURES)
async def test_a_cost_is_what_the_page_says(make_desk: MakeDesk, what: str) -> None:
    desk = await make_desk(mailbox_max_messages=1 if what.startswith("an answer") else COUNT)

    assert_close(await MEASURES[what](desk), documented(what))
