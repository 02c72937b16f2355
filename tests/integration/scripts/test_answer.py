"""answer: a reply is kept with its task, and who waits for it is told."""

import asyncio

import orjson

from tests.builders import ALICE, BOB, WAIT_S, Desk
from tests.conftest import MakeDesk

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

    await desk.store.tasks.follow(ALICE, "ask")
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


async def test_watching_a_task_that_has_gone_leaves_nothing(desk: Desk) -> None:
    await desk.store.tasks.follow(ALICE, "gone")

    assert not desk.redis.exists(desk.keys.task(ALICE, "gone"))


async def kept(desk: Desk, *ids: str) -> list[str]:
    """Which of these tasks there still are."""
    await desk.store.pipeline.finish()
    return [id for id in ids if desk.redis.exists(desk.keys.task(ALICE, id))]


async def test_for_one_task_too_many_the_oldest_goes(make_desk: MakeDesk) -> None:
    desk = await make_desk(max_tasks=2)

    for id in ("1", "2", "3"):
        desk.store.tasks.open(ALICE, id, BOB, LATER_MS)
        desk.clock.advance(1)

    assert await kept(desk, "1", "2", "3") == ["2", "3"]


async def test_what_has_ended_goes_before_what_is_still_waited_for(make_desk: MakeDesk) -> None:
    desk = await make_desk(max_tasks=2)
    for id in ("waits", "ended"):
        desk.store.tasks.open(ALICE, id, BOB, LATER_MS)
    await answer(desk, "end", "1", id="ended")

    desk.store.tasks.open(ALICE, "new", BOB, LATER_MS)

    assert await kept(desk, "waits", "ended", "new") == ["waits", "new"]


async def test_the_answers_kept_for_a_requester_are_held_to_the_bytes_of_a_mailbox(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_bytes=10_000)

    for n in range(5):
        await answer(desk, "end", f'"{"x" * 4_000}"', id=str(n))
        desk.clock.advance(1)

    assert await kept(desk, *"01234") == ["3", "4"]


async def test_an_answer_that_alone_is_too_much_is_kept_all_the_same(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_bytes=100)

    await answer(desk, "end", f'"{"x" * 1_000}"')

    assert await kept(desk, "ask") == ["ask"]


async def test_nothing_watches_a_task_that_has_ended(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)
    await desk.store.tasks.follow(ALICE, "ask")

    await answer(desk, "end", "1")

    assert sorted(desk.redis.hkeys(desk.keys.task(ALICE, "ask"))) == [f"end {BOB}", "to"]


async def test_what_is_noted_of_tasks_goes_with_the_last_of_them(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)
    await answer(desk, "end", "1")

    for key in (desk.keys.tasks(ALICE), desk.keys.task_sizes(ALICE)):
        assert 0 < desk.redis.pttl(key) <= 2 * LATER_MS


async def test_only_the_parts_that_are_asked_for_are_read(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)
    for n in range(1, 4):
        await answer(desk, f"part:0/{n}-0", str(n))

    later = await desk.store.tasks.find(ALICE, "ask", parts_after=2)
    none = await desk.store.tasks.find(ALICE, "ask", parts_after=None)

    assert later is not None
    assert none is not None
    assert (orjson.dumps(later.parts), later.part_count) == (b"[3]", 3)
    assert (none.parts, none.part_count) == ([], 3)


async def test_going_on_with_a_task_that_has_gone_leaves_nothing_for_ever(desk: Desk) -> None:
    await desk.store.tasks.go_on(ALICE, "gone", "turn-1", LATER_MS)

    assert 0 < desk.redis.pttl(desk.keys.task(ALICE, "gone")) <= 2 * LATER_MS


async def test_going_on_twice_is_going_on_once_and_the_task_lives_as_long_as_its_last_turn(desk: Desk) -> None:
    desk.store.tasks.open(ALICE, "ask", BOB, LATER_MS)
    for turn in ("turn-1", "turn-2", "turn-1"):
        await desk.store.tasks.go_on(ALICE, "ask", turn, 10 * LATER_MS)
        desk.clock.advance(1)

    found = await desk.store.tasks.find(ALICE, "ask")

    assert found is not None
    assert found.turns == ("turn-1", "turn-2")
    assert desk.redis.pttl(desk.keys.task(ALICE, "ask")) > 9 * LATER_MS
