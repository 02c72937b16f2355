"""answer: a reply is kept with its task, and who waits for it is told."""

import asyncio

import orjson

from tests.builders import ALICE, BOB, WAIT_S, Desk

LATER_MS = 60_000


async def answer(desk: Desk, field: str, payload: str, id: str = "ask") -> bool:
    kept: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    desk.store.tasks.answer(ALICE, id, BOB, field, payload, desk.clock.now_ms() + LATER_MS, kept.set_result)
    return await asyncio.wait_for(kept, WAIT_S)


async def test_parts_and_the_end_are_kept_in_the_order_in_which_they_came(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)

    for field, payload in (("part:0/9-1", '"one"'), ("part:0/10-0", '"two"'), ("part:0/10-2", "3"), ("end", '{"n":1}')):
        assert await answer(desk, field, payload)
    found = await desk.store.tasks.find(ALICE, "ask")

    assert found is not None
    assert orjson.dumps([found.to, found.parts, found.reply]) == orjson.dumps([BOB, ["one", "two", 3], {"n": 1}])


async def test_the_same_answer_twice_is_kept_once(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)

    for _ in range(2):
        await answer(desk, "part:0/1-1", "1")
    found = await desk.store.tasks.find(ALICE, "ask")

    assert found is not None
    assert len(found.parts) == 1


async def test_every_instance_that_watches_is_told_and_no_other(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)
    here, elsewhere = desk.ears(address=ALICE), desk.ears("elsewhere", address=ALICE)
    await answer(desk, "part:0/1-1", "1")
    before = here.heard()

    await desk.store.tasks.watch(ALICE, "ask")
    await answer(desk, "end", "2")

    assert before == []
    assert here.heard() == [f"task\t{ALICE}\task"]
    assert elsewhere.heard() == []


async def test_an_answer_that_comes_first_is_kept_until_the_task_is_opened(desk: Desk) -> None:
    await answer(desk, "end", "1")
    before = await desk.store.tasks.find(ALICE, "ask")

    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)
    after = await desk.store.tasks.find(ALICE, "ask")

    assert before is None
    assert after is not None
    assert after.reply is not None


async def test_a_task_ends_by_itself(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)
    await answer(desk, "end", "1")
    key = desk.keys.task(ALICE, "ask")

    assert 0 < desk.redis.pttl(key) <= 2 * LATER_MS


async def test_watching_a_task_that_has_gone_leaves_nothing_for_ever(desk: Desk) -> None:
    await desk.store.tasks.watch(ALICE, "gone")

    assert 0 < desk.redis.pttl(desk.keys.task(ALICE, "gone")) <= LATER_MS
