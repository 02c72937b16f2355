"""Agents and callers say what no JSON writer can say again, or without end, through the A2A door."""

import asyncio
import json
from typing import Any

import pytest

from relay.a2a.sending import MAX_TURNS
from tests.agents import Agent
from tests.callers import Answer, Caller, caller
from tests.system.conftest import Room

UNTELLABLE = {
    "endless": "1e999",
    "digits": "9" * 5_000,
    "deep": "[" * 900 + "]" * 900,
    "deep enough": '{"a":' * 250 + "1" + "}" * 250,
    "in a message": '{"messageId":"m","role":"agent","parts":[{"data":%s}]}' % ("[" * 240 + "]" * 240),
    "in an artifact": '{"artifact":{"artifactId":"a","parts":[{"data":[1e999]}]}}',
}


async def rpc(who: Caller, method: str, params: dict[str, Any] | bytes) -> Answer:
    text = params if isinstance(params, bytes) else json.dumps(params).encode()
    body = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}' % (method.encode(), text)
    return await who.call("POST", f"/a2a/{who.name}/bob", body)


def to_bob(room: Room) -> Caller:
    """Whoever calls bob; its name stands for the tenant in paths."""
    return Caller(room.a.url, room.token("alice"), room.tenant)


def a_message(data: str = '"hi"', role: str = '"ROLE_USER"') -> bytes:
    message = f'{{"messageId":"m-1","role":{role},"parts":[{{"data":{data}}}]}}'
    return (f'{{"message":{message},"configuration":{{"returnImmediately":true}}}}').encode()


async def test_a_task_is_gone_on_with_so_often(room: Room) -> None:
    alice = to_bob(room)

    async def send(n: int, **more: str) -> Answer:
        message = {"messageId": f"m-{n}", "role": "ROLE_USER", "parts": [{"text": "more"}], **more}
        return await rpc(alice, "SendMessage", {"message": message, "configuration": {"returnImmediately": True}})

    task_id = (await send(0))["result"]["task"]["id"]
    said = [(await send(n, taskId=task_id)).body for n in range(1, MAX_TURNS + 2)]
    again = await send(1, taskId=task_id)

    assert ["result" in one for one in said] == [True] * MAX_TURNS + [False]
    assert said[-1]["error"]["code"] == -32004
    assert "result" in again.body, "what is in the task already is no further message"


@pytest.mark.parametrize("reply", UNTELLABLE.values(), ids=UNTELLABLE)
@pytest.mark.parametrize("more", ["true", "false"])
async def test_a_reply_that_cannot_be_told_as_json_is_told_as_text(room: Room, reply: str, more: str) -> None:
    alice, bob = to_bob(room), await room.agent("bob")
    sent = await rpc(alice, "SendMessage", a_message())
    entry = (await bob.delivery())["entry"]

    await _replies(bob, entry, reply, more)
    answer = await rpc(alice, "GetTask", {"id": sent["result"]["task"]["id"]})
    task = await caller(room, "alice").get(f"/v1/tasks/{sent['result']['task']['id']}")

    assert answer.status == 200
    assert "result" in answer.body
    assert task.status == 200


@pytest.mark.parametrize("reply", UNTELLABLE.values(), ids=UNTELLABLE)
async def test_a_stream_tells_it_too_and_goes_on(room: Room, reply: str) -> None:
    alice, bob = to_bob(room), await room.agent("bob")
    sent = await rpc(alice, "SendMessage", a_message())
    entry = (await bob.delivery())["entry"]
    await _replies(bob, entry, reply, "true")

    following = asyncio.create_task(rpc(alice, "SubscribeToTask", {"id": sent["result"]["task"]["id"]}))
    await _replies(bob, entry, reply, "true")
    await _replies(bob, entry, '"the end"', "false")
    told = await following

    assert "the end" in told.text or "ended" in told.text
    assert "internal" not in told.text


async def _replies(bob: Agent, entry: str, reply: str, more: str) -> None:
    await bob.say_text(f'{{"op":"reply","entry":"{entry}","payload":{reply},"more":{more},"confirm":true}}')
    await bob.expect("settled")


@pytest.mark.parametrize("data", UNTELLABLE.values(), ids=UNTELLABLE)
async def test_a_message_that_cannot_be_told_is_refused_in_the_words_of_json_rpc(room: Room, data: str) -> None:
    answer = await rpc(to_bob(room), "SendMessage", a_message(data))

    assert answer.status == 200
    assert answer["error"]["code"] in (-32700, -32600, -32602)


@pytest.mark.parametrize("role", ['["user"]', '{"a":1}', "7", "true", '"judge"'])
async def test_a_role_of_another_type_is_named(room: Room, role: str) -> None:
    answer = await rpc(to_bob(room), "SendMessage", a_message(role=role))

    assert (answer.status, answer["error"]["code"]) == (200, -32602)
    assert "role" in answer.text


@pytest.mark.parametrize("text", ['{"name":1e999}', '{"x":' + "[" * 300 + "]" * 300 + "}"])
async def test_a_card_that_cannot_be_told_is_left_out(room: Room, text: str) -> None:
    put = await caller(room, "bob").put("/v1/agents/bob", b'{"card":%b}' % text.encode())

    card = await Caller(room.a.url).get(f"/a2a/{room.tenant}/bob/.well-known/agent-card.json")

    assert (card.status, card["name"]) == (200, "bob")
    assert put.status in (200, 400)
