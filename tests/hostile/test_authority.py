"""Tokens that ended, were narrowed, or never said as much try to go on."""

import asyncio
import time
from typing import Any

import pytest

from tests.agents import message, messages, until
from tests.callers import admin, caller, operator
from tests.system.conftest import Room

SOON_S = 1.5
LONG_S = 15.0  # half of what they would wait, and far more than a busy machine needs


def ending_soon() -> dict[str, Any]:
    """Claims of a token that ends within the test. It is a fraction: most ends are in whole seconds."""
    return {"exp": time.time() + SOON_S}


# -- streams and long polls end with the token


@pytest.mark.parametrize("path", ["/v1/events", "/v1/tasks/ask"])
async def test_a_stream_ends_with_its_token(room: Room, path: str) -> None:
    await caller(room, "alice").ask("bob", "ask")
    alice, began = caller(room, "alice", "send inspect", **ending_soon()), time.monotonic()

    async with alice.follow(path) as events:
        async for _ in events:
            pass

    assert SOON_S / 2 < time.monotonic() - began < LONG_S


async def test_a_long_poll_for_mail_ends_with_its_token(room: Room) -> None:
    bob, began = caller(room, "bob", **ending_soon()), time.monotonic()

    assert await bob.lease(wait_s=30) == []

    assert time.monotonic() - began < LONG_S


async def test_a_wait_for_a_reply_ends_with_its_token(room: Room) -> None:
    alice, began = caller(room, "alice", **ending_soon()), time.monotonic()

    asked, waited = await asyncio.gather(alice.ask("bob", "ask", wait_s=30), _wait_for_task(room))

    assert (asked.status, asked["state"]) == (202, "queued")
    assert waited["state"] == "queued"
    assert time.monotonic() - began < LONG_S


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_call_by_a2a_ends_with_its_token(room: Room, method: str) -> None:
    alice, began = caller(room, "alice", **ending_soon()), time.monotonic()
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "?"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}

    answer = await alice.post(f"/a2a/{room.tenant}/bob", call)

    assert "TASK_STATE_SUBMITTED" in answer.text
    assert SOON_S / 2 < time.monotonic() - began < LONG_S


async def _wait_for_task(room: Room) -> Any:
    await caller(room, "carol").ask("bob", "other")
    return await caller(room, "carol", **ending_soon()).get("/v1/tasks/other", wait_s=30)


# -- a renewed session has the scopes of its new token


async def test_a_session_renewed_without_receive_gives_back_and_gets_no_more(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await bob.drained()
    await bob.say("subscribe", topics=["news"])
    await bob.expect("subscribed")
    await alice.sent(*messages(2))
    first, _ = await bob.deliveries(2)

    await bob.say("auth", token=room.token("bob", "send"))
    await bob.expect("welcome")
    await bob.say("ack", entries=[first["entry"]], confirm=True)
    refused = await bob.refusal()
    await alice.sent(message("m-3"))
    await alice.say("publish", topic="news", payload=1)
    worker = caller(room, "bob", "receive")
    leased = await worker.lease(max=10)

    assert refused["code"] == "lock_lost"
    assert [one["id"] for one in leased] == ["m-1", "m-2", "m-3"]
    assert [one["attempt"] for one in leased] == [1, 1, 1]
    assert await bob.sent(message(to="alice")) == []
    await bob.settled_down()
    assert len(bob.got_deliveries()) == 2
    assert bob.got("event") == []


async def test_a_session_renewed_with_receive_begins_to_serve_its_mailbox(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.agent("bob", scope="send")
    await bob.drained()
    await alice.sent(message("m-1"))

    await bob.say("auth", token=room.token("bob", "receive"))
    status = await bob.expect("queue_status")
    delivery = await bob.delivery()
    await bob.ack(delivery)
    await bob.send(message(to="alice"))

    assert status["pending"] == 1
    assert await bob.drained() == 1
    assert (await bob.refusal())["code"] == "forbidden"
    assert room.depth("bob") == 0


async def test_scopes_can_go_and_come_back(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await bob.drained()
    await alice.sent(message("m-1"))
    await bob.delivery()

    await bob.say("auth", token=room.token("bob", "send"))
    await bob.say("auth", token=room.token("bob"))

    assert (await bob.expect("queue_status"))["pending"] == 1
    again = await bob.delivery()
    assert (again["id"], again["attempt"]) == ("m-1", 1)
    await bob.ack(again)
    assert await bob.drained() == 1


@pytest.mark.parametrize("scope", ["metrics", "inspect admin", ""])
async def test_a_session_renewed_without_a_say_is_closed(room: Room, scope: str) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    delivery = await bob.delivery()

    await bob.say("auth", token=room.token("bob", scope))
    await bob.say("ack", entries=[delivery["entry"]])

    assert await bob.closed() == 4501
    assert bob.got("closing")[0]["code"] == "unauthorized"
    assert room.depth("bob") == 1


# -- a token that may only send changes nothing of the mailbox


async def test_a_session_that_only_sends_changes_nothing_of_its_agent(room: Room) -> None:
    root, back_at = admin(room), int(time.time() * 1_000) + 60_000
    await root.put("/v1/agents/bob", {"card": {"name": "Bob"}, "mode": "shared", "next_active_at_ms": back_at})

    sender = await room.agent("bob", scope="send", card={"name": "Mallory"}, next_active_at_ms=1, mode="exclusive")
    await sender.say("block", agents=["alice"])
    blocked = await sender.error()
    await sender.say("unblock", agents=["alice"])
    unblocked = await sender.error()
    during = await root.get("/v1/agents/bob")
    await sender.close()
    await until(lambda: not room.redis.hexists(*_presence(room, "bob")), "the session has left")

    assert blocked["code"] == unblocked["code"] == "forbidden"
    for shown in (during, await root.get("/v1/agents/bob")):
        assert (shown["card"], shown["mode"], shown["next_active_at_ms"]) == ({"name": "Bob"}, "shared", back_at)


def _presence(room: Room, name: str) -> tuple[str, str]:
    address = room.address(name)
    return room.keys.presence(room.keys.shard(address)), address


async def test_a_session_that_only_sends_settles_nothing(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1", request=True))
    entry = (await bob.delivery())["entry"]
    sender = await room.agent("bob", scope="send")

    codes = []
    for how in ("ack", "nack", "release", "touch"):
        await sender.say(how, entries=[entry])
        codes.append((await sender.refusal())["code"])
    await sender.say("reply", entry=entry, payload=1)
    codes.append((await sender.refusal())["code"])

    assert codes == ["lock_lost"] * 5
    assert len(room.holders("bob")) == 1


async def test_an_operator_that_may_not_send_cannot(room: Room) -> None:
    root = operator(room, "root")
    assert (await root.post("/v1/agents/bob/messages", {"payload": 1})).status == 202

    answer = await caller(room, "root", "operator").post("/v1/agents/bob/messages", {"payload": 1})

    assert answer.said == (403, "forbidden")


PAYLOAD = "only for eyes that may see it"


@pytest.mark.parametrize("scope", ["admin", "operator", "admin receive", "admin send", "admin metrics send receive"])
async def test_without_inspect_an_admin_sees_no_payload_of_others_whatever_it_calls(room: Room, scope: str) -> None:
    alice, bob, root = caller(room, "alice"), caller(room, "bob"), caller(room, "root", scope)
    await alice.post("/v1/agents/bob/messages", {"id": "ask", "payload": PAYLOAD, "request": True})
    leased = (await bob.post("/v1/agents/bob/lease", {}))["messages"][0]
    answered = {"lock_token": leased["lock_token"], "payload": PAYLOAD}
    assert (await bob.post(f"/v1/agents/bob/entries/{leased['entry']}/reply", answered)).status == 200
    await alice.post("/v1/agents/bob/messages", {"id": "waits", "payload": PAYLOAD})

    answers = [
        await root.post("/v1/agents/bob/lease", {"max": 10}),
        await root.get("/v1/tasks/ask", from_="alice"),
        await root.get("/v1/agents/bob/messages"),
        await root.get("/v1/agents/bob/messages/waits", from_="alice"),
        await root.get("/v1/agents/bob/dead"),
        await root.get("/v1/agents/bob"),
        await root.get("/v1/activity", message="waits"),
        await root.post("/v1/agents/bob/act", {"act": "cancel"}),
    ]

    assert PAYLOAD not in "".join(answer.text for answer in answers)
    assert [answer.said for answer in answers[:2]] == [(403, "forbidden")] * 2
    assert {answer.status for answer in answers[2:]} == {200}


@pytest.mark.parametrize("scope", ["admin inspect", "operator inspect"])
async def test_with_inspect_an_admin_leases_for_others_and_sees_their_tasks(room: Room, scope: str) -> None:
    alice, root = caller(room, "alice"), caller(room, "root", scope)
    await alice.post("/v1/agents/bob/messages", {"id": "ask", "payload": PAYLOAD, "request": True})

    leased, task = await root.post("/v1/agents/bob/lease", {}), await root.get("/v1/tasks/ask", from_="alice")

    assert leased["messages"][0]["payload"] == PAYLOAD
    assert (task.status, task["state"]) == (200, "held")
