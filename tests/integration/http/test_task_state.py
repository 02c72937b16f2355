"""Where a request is: the same answer for every door, and for as long as the task is kept."""

from collections.abc import AsyncIterator

import pytest

from relay.core.intake import submit_and_wait
from relay.core.task_state import REPLY_WITHIN_MS, task_state
from relay.errors import StoreUnavailable
from relay.telemetry.metrics import Metrics
from tests.builders import ALICE, BOB, Desk, a_message, open_desk
from tests.servers import RealServer

WINDOW_S = 60


@pytest.fixture
async def desk(redis_server: RealServer) -> AsyncIterator[Desk]:
    async with open_desk(redis_server, dedup_window_s=WINDOW_S) as desk:
        yield desk


async def state(desk: Desk) -> str:
    task = await desk.store.tasks.find(ALICE, "m-1")
    assert task is not None
    return (await task_state(desk.store, task)).state


async def ask_and_ack(desk: Desk) -> None:
    await desk.send_one(a_message("m-1", request=True))
    desk.store.tasks.open(ALICE, "m-1", BOB, 3_600_000)
    bob = await desk.join(BOB)
    await desk.ack(bob, (await desk.take_one(bob)).entry)


async def test_a_request_is_accepted_when_its_task_is_kept_and_not_before(desk: Desk) -> None:
    request, metrics = a_message("m-1", request=True), Metrics()
    desk.redis.set(desk.keys.task(ALICE, "m-1"), "something else is in its place")

    _, refused = await submit_and_wait(desk.store, metrics, ALICE, request, to_task_only=True)
    desk.redis.delete(desk.keys.task(ALICE, "m-1"))
    again, error = await submit_and_wait(desk.store, metrics, ALICE, request, to_task_only=True)

    assert isinstance(refused, StoreUnavailable)
    assert (again.word, error) == ("duplicate", None)
    assert await state(desk) == "queued"


async def test_an_ack_may_be_the_first_half_of_a_reply(desk: Desk) -> None:
    await ask_and_ack(desk)

    at_first = await state(desk)
    desk.clock.advance(REPLY_WITHIN_MS / 1_000)

    assert (at_first, await state(desk)) == ("held", "acked")


async def test_how_it_ended_is_known_longer_than_the_mailbox_remembers(desk: Desk) -> None:
    await ask_and_ack(desk)
    desk.clock.advance(REPLY_WITHIN_MS / 1_000)
    await state(desk)

    desk.clock.advance(3 * WINDOW_S)
    where = await desk.store.lookup.where(ALICE, BOB, "m-1")

    assert where is None
    assert await state(desk) == "acked"


async def test_a_revived_request_is_no_longer_dead(desk: Desk) -> None:
    await desk.send_one(a_message("m-1", request=True))
    desk.store.tasks.open(ALICE, "m-1", BOB, 3_600_000)
    bob = await desk.join(BOB)
    await desk.nack(bob, (await desk.take_one(bob)).entry, retry=False)
    dead = await state(desk)

    (letter,) = [entry for entry, _ in desk.raw_range(desk.keys.dead(BOB))]
    await desk.store.dead_letters.revive(BOB, [letter])
    revived = await state(desk)
    await desk.ack(bob, (await desk.take_one(bob)).entry)
    desk.clock.advance(REPLY_WITHIN_MS / 1_000)

    assert (dead, revived, await state(desk)) == ("dead", "queued", "acked")
