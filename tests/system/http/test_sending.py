"""POST messages, where one is, taking it back: over two instances."""

import asyncio
from urllib.parse import quote

import pytest

from tests.agents import message
from tests.callers import admin, caller, operator
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def test_an_accepted_message_is_answered_with_its_id_and_number(room: Room) -> None:
    alice = caller(room, "alice")

    first, second = await alice.send("bob", "m-1"), await alice.send("bob")

    assert first.body == {
        "id": "m-1",
        "to": room.address("bob"),
        "state": "queued",
        "duplicate": False,
        "durability": "memory",
        "seq": 1,
    }
    assert len(second["id"]) == 32
    assert second["seq"] == 2
    assert room.depth("bob") == 2


@pytest.mark.parametrize("to", ["carol", "other/bob", "a b", 5, None])
async def test_a_body_that_names_another_recipient_than_the_path_is_refused(room: Room, to: object) -> None:
    alice = caller(room, "alice")

    one = await alice.post("/v1/agents/bob/messages", {"payload": 1, "to": to})
    many = await alice.post("/v1/agents/bob/messages", {"messages": [{"payload": 1, "to": to}, {"payload": 2}]})

    assert one.said == (400, "malformed")
    assert (len(many["accepted"]), [refusal["code"] for refusal in many["refused"]]) == (1, ["malformed"])
    assert room.depth("bob") == 1


async def test_a_body_may_repeat_the_recipient_of_the_path(room: Room) -> None:
    alice = caller(room, "alice")
    bodies = [{"payload": 1, "to": to} for to in ("bob", room.address("bob"))]

    answers = [await alice.post("/v1/agents/bob/messages", body) for body in bodies]

    assert [answer.status for answer in answers] == [202, 202]


async def test_the_same_id_through_two_instances_at_once_is_one_copy(room: Room) -> None:
    here, there = caller(room, "alice"), caller(room, "alice", at=room.b)

    answers = await asyncio.gather(*(one.send("bob", "m-1") for one in (here, there) * 5))

    assert sorted(answer["duplicate"] for answer in answers) == [False] + [True] * 9
    assert room.depth("bob") == 1


async def test_a_duplicate_says_how_the_first_one_ended(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")

    waiting = await alice.send("bob", "m-1")
    await bob.settle("ack", await bob.lease_one())
    ended = await alice.send("bob", "m-1")

    assert (waiting["state"], ended["state"]) == ("queued", "acked")
    assert ended["duplicate"] is True


async def test_a_socket_on_the_other_instance_gets_it_at_once_and_the_sender_is_who_authenticated(room: Room) -> None:
    bob = await room.agent("bob", at=room.b)
    await bob.drained()

    await caller(room, "alice").send("bob", "m-1", {"n": 1.50}, type="job", **{"from": "mallory"})
    delivery = await bob.delivery()
    await bob.ack(delivery)

    assert (delivery["from"], delivery["type"], delivery["payload"]) == (room.address("alice"), "job", {"n": 1.5})
    assert '"payload":{"n": 1.5}' in "".join(bob.raw)
    assert (await admin(room).get("/v1/agents/bob"))["depth"] == 0


async def test_a_batch_is_answered_message_by_message(room: Room) -> None:
    batch = [
        {"id": "m-1", "payload": 1},
        {"payload": 2},
        {"id": "m-3"},
        {"id": "m-1", "payload": 1},
        17,
        {"id": "m-6", "payload": "x" * 70_000},
        {"id": "m-7", "payload": 1, "priority": 10},
    ]

    answer = await caller(room, "alice").post("/v1/agents/bob/messages", {"messages": batch})

    assert answer.status == 202
    assert [(one["duplicate"], one.get("seq")) for one in answer["accepted"]] == [(False, 1), (False, 2), (True, None)]
    refused = {one.get("id"): one["code"] for one in answer["refused"]}
    assert len(answer["refused"]) == 4
    assert (refused["m-3"], refused["m-6"], refused["m-7"]) == ("malformed", "too_large", "malformed")
    assert room.depth("bob") == 2


async def test_a_payload_at_the_limit_is_stored_and_one_byte_more_is_not(room: Room) -> None:
    alice = caller(room, "alice")
    at_limit, over = b'{"id":"m-1","payload":"%b"}' % (b"x" * 65_534), b'{"id":"m-2","payload":"%b"}' % (b"x" * 65_535)

    stored = await alice.post("/v1/agents/bob/messages", at_limit)
    refused = await alice.post("/v1/agents/bob/messages", over)

    assert stored.status == 202
    assert refused.said == (413, "too_large")
    assert (refused["error"]["max"], refused["error"]["retryable"]) == (65_536, False)
    assert room.depth("bob") == 1


async def test_a_body_over_the_limit_is_refused_whatever_it_is(room: Room) -> None:
    refused = await caller(room, "alice").post("/v1/agents/bob/messages", b" " * (4 * 2**20 + 1))

    assert refused.said == (413, "too_large")
    assert refused["error"]["max"] == 4 * 2**20


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"not JSON", b"[]", b"\xff", b"{}", b'{"payload":1,"id":""}', b'{"payload":1,"id":"\xc3\xa4"}'),
        *(b'{"payload":1,"id":7}', b'{"payload":1,"ttl_s":0}', b'{"payload":1,"priority":-1}', b'{"messages":[]}'),
        *(b'{"payload":1,"headers":{"a":1}}', b'{"payload":1,"delay_s":-1}', b'{"messages":7}', b"[" * 100_000),
        b'{"messages":[%b]}' % b",".join([b'{"payload":1}'] * 501),
    ],
)
async def test_what_is_malformed_is_400_and_stores_nothing(room: Room, body: bytes) -> None:
    answer = await caller(room, "alice").post("/v1/agents/bob/messages", body)

    assert answer.said == (400, "malformed")
    assert set(answer["error"]) >= {"code", "message", "retryable"}
    assert room.depth("bob") == 0


async def test_a_message_is_queued_then_held_then_acked(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    await alice.send("bob", "m-1")

    states = [await alice.where("bob", "m-1")]
    delivery = await bob.lease_one()
    states.append(await alice.where("bob", "m-1"))
    await bob.settle("nack", delivery, delay_s=0)
    again = await alice.get("/v1/agents/bob/messages/m-1")
    await bob.settle("ack", await bob.lease_one())
    states.append(await alice.where("bob", "m-1"))

    assert states == ["queued", "held", "acked"]
    assert (again["state"], again["attempt"], again["entry"]) == ("queued", 2, delivery["entry"])


async def test_delayed_dead_and_expired_are_told_apart(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "later", delay_s=60)
    await alice.send("bob", "short", ttl_s=0.001)
    await alice.send("bob", "bad")
    (bad,) = [one for one in await bob.lease(max=10) if one["id"] == "bad"]
    await bob.settle("nack", bad, retry=False, reason="no")

    states = [await alice.where("bob", id) for id in ("later", "short", "bad", "never")]

    assert states == ["delayed", "expired", "dead", "404"]


async def test_only_its_sender_and_an_admin_may_ask_for_a_message(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")

    carol = await caller(room, "carol").get("/v1/agents/bob/messages/m-1")
    forged = await caller(room, "carol").get("/v1/agents/bob/messages/m-1", from_="alice")
    root = await admin(room).get("/v1/agents/bob/messages/m-1", from_="alice")
    of_another_tenant = operator(room)
    elsewhere = await of_another_tenant.get(f"/v1/agents/{room.tenant}~bob/messages/m-1", from_="alice")

    assert carol.said == (404, "not_found")
    assert forged.said == (403, "forbidden")
    assert root["state"] == elsewhere["state"] == "queued"
    assert elsewhere["from"] == room.address("alice")


@pytest.mark.parametrize("id", ["a/b", "{x}", "100%", "a b?c#d", "..", "%2F", "~!$&'()*+,;=:@"])
async def test_an_id_of_any_printable_characters_can_be_asked_for(room: Room, id: str) -> None:
    alice = caller(room, "alice")
    asked = await alice.ask("bob", id)

    where = await alice.get(f"/v1/agents/bob/messages/{quote(id, safe='').replace('.', '%2E')}")
    task = await alice.get(asked.headers["Location"].replace(".", "%2E"))

    assert (where.status, task.status) == (200, 200)
    assert (where["id"], task["id"]) == (id, id)


async def test_a_message_is_taken_back_only_while_nobody_holds_it(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    await alice.send("bob", "m-2")
    held = await bob.lease_one()

    answers = [await alice.delete(f"/v1/agents/bob/messages/{id}") for id in ("m-1", "m-2", "m-2", "m-3")]
    not_hers = await caller(room, "carol").delete("/v1/agents/bob/messages/m-1")
    acked = await bob.settle("ack", held)

    assert [answer.status for answer in answers] == [409, 200, 404, 404]
    assert answers[1].body == {"id": "m-2", "state": "cancelled"}
    assert not_hers.status == 404
    assert acked.status == 200
    assert await alice.where("bob", "m-2") == "cancelled"


async def test_receipts_are_sent_only_if_asked_for(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "quiet")
    await alice.send("bob", "loud", receipt=True)
    for delivery in await bob.lease(max=2):
        await bob.settle("ack", delivery)

    (receipt,) = await (await room.agent("alice")).receipts(1)

    assert (receipt["id"], receipt["state"], receipt["was_stored"]) == ("loud", "delivered", True)


async def test_a_blocked_sender_is_answered_as_ever_and_nothing_is_stored(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    before = await alice.send("bob", "m-1", thread="t")

    blocked = await bob.put("/v1/agents/bob/blocks/alice")
    during, asked = await alice.send("bob", "m-2", thread="t"), await alice.ask("bob", "m-3")
    other_way = await bob.send("alice", "m-1")
    asked_for = [await bob.get(f"/v1/agents/bob/blocks/{one}") for one in ("alice", f"{room.tenant}~alice", "carol")]
    unblocked = await bob.delete("/v1/agents/bob/blocks/alice")
    after = await alice.send("bob", "m-4", thread="t")

    assert blocked["agents"] == [room.address("alice")]
    assert during.body.keys() == before.body.keys()
    assert (before["seq"], during["seq"], after["seq"]) == (1, 2, 3)
    assert (asked.status, asked["state"], (await alice.get("/v1/tasks/m-3"))["state"]) == (202, "queued", "queued")
    assert other_way.status == 202
    assert [one.status for one in asked_for] == [200, 200, 404]
    assert unblocked["agents"] == []
    assert [one["id"] for one in await bob.lease(max=10)] == ["m-1", "m-4"]


async def test_messages_sent_over_a_socket_can_be_asked_for_too(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(message("m-1", request=True))

    task = await caller(room, "alice").get("/v1/tasks/m-1")

    assert (task.status, task["state"], task["to"]) == (200, "queued", room.address("bob"))
