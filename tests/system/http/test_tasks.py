"""Requests over HTTP: waiting, polling and following, over two instances."""

import asyncio

import pytest

from tests.callers import Caller, Event, admin, caller, soon
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def state(alice: Caller, id: str) -> str:
    answer = await alice.get(f"/v1/tasks/{id}")
    return str(answer["state"]) if answer.status == 200 else str(answer.status)


async def test_a_request_to_an_agent_that_comes_back_in_time_is_answered_200(room: Room) -> None:
    alice = caller(room, "alice")
    asked = asyncio.create_task(alice.ask("bob", "ask", wait_s=20, payload={"n": 2}))
    await soon(lambda: alice.where("bob", "ask"), "queued")

    bob = await room.agent("bob", at=room.b)
    delivery = await bob.delivery()
    await bob.say("reply", entry=delivery["entry"], payload={"n": 4})
    answer = await asyncio.wait_for(asked, 5)

    assert delivery["request"]
    assert answer.status == 200
    assert answer.body == {"id": "ask", "to": room.address("bob"), "state": "replied", "reply": {"n": 4}}


async def test_the_same_id_to_another_agent_is_another_request(room: Room) -> None:
    alice, bob, carol = caller(room, "alice"), caller(room, "bob"), caller(room, "carol")
    await alice.ask("bob", "ask", wait_s=0.05)
    await bob.settle("reply", await bob.lease_one(), payload="bob's")
    await soon(lambda: state(alice, "ask"), "replied")

    unanswered = await alice.ask("carol", "ask", wait_s=0.05)
    await carol.settle("reply", await carol.lease_one(), payload="carol's")
    await soon(lambda: state(alice, "ask"), "replied")

    assert (unanswered.status, unanswered["state"]) == (202, "queued")
    assert (await alice.get("/v1/tasks/ask"))["reply"] == "carol's"


async def test_a_request_that_is_not_answered_in_time_is_202_and_can_be_polled(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)

    answer = await alice.ask("bob", "ask", wait_s=0.05)
    states = [await state(alice, "ask")]
    delivery = await bob.lease_one()
    states.append(await state(alice, "ask"))
    await bob.settle("reply", delivery, payload="late")
    await soon(lambda: state(alice, "ask"), "replied")
    late = await alice.get(answer.headers["Location"])

    assert (answer.status, answer["state"], answer.headers["Location"]) == (202, "queued", "/v1/tasks/ask")
    assert states == ["queued", "held"]
    assert (late["state"], late["reply"]) == ("replied", "late")
    assert room.depth("bob") == 0


async def test_the_reply_of_a_puller_reaches_a_caller_that_waits_on_the_other_instance(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    asked = asyncio.create_task(alice.ask("bob", "ask", wait_s=20))

    delivery = await bob.lease_one(wait_s=20)
    replied = await bob.settle("reply", delivery, payload=[1, 2])
    answer = await asyncio.wait_for(asked, 1)

    assert replied.body == {"entry": delivery["entry"], "settled": "reply"}
    assert (answer.status, answer["reply"]) == (200, [1, 2])


async def test_a_poll_that_waits_is_answered_by_the_reply(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.ask("bob", "ask")
    delivery = await bob.lease_one()
    polls = [
        asyncio.create_task(one.get("/v1/tasks/ask", wait_s=20)) for one in (alice, caller(room, "alice", at=room.b))
    ]

    await bob.settle("reply", delivery, payload="done")
    answers = await asyncio.wait_for(asyncio.gather(*polls), 6)

    assert [(one.status, one["reply"]) for one in answers] == [(200, "done")] * 2


async def test_the_same_request_twice_is_one_task(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    both = [asyncio.create_task(one.ask("bob", "ask", wait_s=20)) for one in (alice, caller(room, "alice", at=room.b))]

    await bob.settle("reply", await bob.lease_one(wait_s=20), payload="once")
    answers = await asyncio.wait_for(asyncio.gather(*both), 6)
    third = await alice.ask("bob", "ask", wait_s=20)

    assert [(one.status, one["reply"]) for one in (*answers, third)] == [(200, "once")] * 3
    assert await bob.lease() == []


async def test_parts_come_in_order_and_a_part_is_not_the_end(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.ask("bob", "ask")
    delivery = await bob.lease_one()

    for n in range(3):
        await bob.settle("reply", delivery, payload=n, more=True)
    await soon(lambda: state(alice, "ask"), "held")
    during = await alice.get("/v1/tasks/ask")
    await bob.settle("reply", delivery, payload="end")
    await soon(lambda: state(alice, "ask"), "replied")
    after = await alice.get("/v1/tasks/ask")

    assert (during["state"], during["parts"]) == ("held", [0, 1, 2])
    assert (after["parts"], after["reply"]) == ([0, 1, 2], "end")


async def test_a_follower_gets_parts_then_the_end_and_can_go_on_where_it_was(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    await alice.ask("bob", "ask")
    delivery = await bob.lease_one()
    seen: list[Event] = []

    async with alice.follow("/v1/tasks/ask") as events:
        for n in range(2):
            await bob.settle("reply", delivery, payload=n, more=True)
            seen.append(await anext(events))
    await bob.settle("reply", delivery, payload=2, more=True)
    await bob.settle("reply", delivery, payload="end")
    async with caller(room, "alice", at=room.b).follow("/v1/tasks/ask", last=seen[-1].id) as events:
        rest = [event async for event in events]
    done = await alice.call(
        "GET", "/v1/tasks/ask", headers={"Accept": "text/event-stream", "Last-Event-ID": rest[-1].id}
    )

    assert [(one.kind, one.id, one.data) for one in seen] == [("part", "1", 0), ("part", "2", 1)]
    assert [(one.kind, one.id) for one in rest] == [("part", "3"), ("end", "4")]
    assert (rest[0].data, rest[1].data["state"], rest[1].data["reply"]) == (2, "replied", "end")
    assert done.status == 204


async def test_a_follower_is_told_of_an_end_without_a_reply(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.ask("bob", "ask")
    await bob.settle("nack", await bob.lease_one(), retry=False, reason="cannot")

    async with alice.follow("/v1/tasks/ask") as events:
        (end,) = [event async for event in events]

    assert (end.kind, end.data["state"]) == ("end", "dead")
    assert await state(alice, "ask") == "dead"


async def test_a_request_that_its_sender_takes_back_is_cancelled(room: Room) -> None:
    alice = caller(room, "alice")
    await alice.ask("bob", "ask")

    await alice.delete("/v1/agents/bob/messages/ask")

    assert await state(alice, "ask") == "cancelled"


async def test_a_request_that_ran_out_of_time_is_expired(room: Room) -> None:
    alice = caller(room, "alice")
    await alice.ask("bob", "ask", ttl_s=0.001)

    assert await state(alice, "ask") == "expired"


async def test_tasks_are_their_requesters_and_nobody_elses(room: Room) -> None:
    await caller(room, "alice").ask("bob", "ask")

    other_agent = await caller(room, "carol").get("/v1/tasks/ask")
    other_tenant = await caller(room, "elsewhere/alice").get("/v1/tasks/ask")
    forged = await caller(room, "carol").get("/v1/tasks/ask", from_="alice")
    root = await admin(room).get("/v1/tasks/ask", from_="alice")
    followed = await caller(room, "carol").call("GET", "/v1/tasks/ask", headers={"Accept": "text/event-stream"})

    assert [one.said for one in (other_agent, other_tenant, followed)] == [(404, "not_found")] * 3
    assert forged.said == (403, "forbidden")
    assert root["state"] == "queued"


async def test_a_request_that_was_refused_is_no_task(room: Room) -> None:
    alice = caller(room, "alice")

    refused = await alice.ask("bob", "ask", payload="x" * 70_000)

    assert refused.status == 413
    assert await state(alice, "ask") == "404"


async def test_what_is_not_a_request_cannot_be_answered(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "tell")
    delivery = await bob.lease_one()

    answers = [
        await bob.settle("reply", delivery, payload=1),
        await bob.settle("reply", delivery | {"lock_token": "x"}, payload=1),
        await bob.settle("reply", delivery | {"entry": "1-1"}, payload=1),
        await bob.post(f"/v1/agents/bob/entries/{delivery['entry']}/reply", {"payload": 1}),
        await bob.settle("reply", delivery),
        await bob.settle("reply", delivery, payload="x" * 70_000),
    ]

    assert [one.said for one in answers] == [
        (400, "malformed"),
        (409, "lock_lost"),
        (404, "not_found"),
        (400, "malformed"),
        (400, "malformed"),
        (413, "too_large"),
    ]


@pytest.mark.parametrize("wait_s", ["61", "-1", "x", "", "nan", "inf", "1e999"])
async def test_a_wait_out_of_range_is_malformed_and_sends_nothing(room: Room, wait_s: str) -> None:
    alice = caller(room, "alice")

    sent = await alice.post("/v1/agents/bob/messages", {"payload": 1}, wait_s=wait_s)
    polled = await alice.get("/v1/tasks/ask", wait_s=wait_s)

    assert sent.said == polled.said == (400, "malformed")
    assert room.depth("bob") == 0


async def test_a_batch_cannot_be_waited_for(room: Room) -> None:
    answer = await caller(room, "alice").post("/v1/agents/bob/messages", {"messages": [{"payload": 1}]}, wait_s=1)

    assert answer.said == (400, "malformed")
