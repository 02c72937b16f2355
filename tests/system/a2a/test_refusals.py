"""A2A over the wire, without its client: what is refused, and how."""

from typing import Any

import httpx
import orjson
import pytest

from tests.agents import Frame
from tests.system.conftest import Instance, Room

pytestmark = pytest.mark.xdist_group("common")


def url(room: Room, agent: str, at: Instance | None = None) -> str:
    return f"{(at or room.a).url}/a2a/{room.tenant}/{agent}"


async def post(room: Room, body: Any, token: str | None = None, agent: str = "bob", **headers: str) -> httpx.Response:
    """One call as it goes over the wire."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    authorization = {"Authorization": f"Bearer {token or room.token('carol')}"}
    async with httpx.AsyncClient(headers=authorization | headers) as http:
        return await http.post(url(room, agent), content=content)


def a_call(method: str = "SendMessage", params: Any = None, **fields: Any) -> Frame:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params if params is not None else {}, **fields}


WELL = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


@pytest.mark.parametrize(
    ("body", "code", "id"),
    [
        (b'{"jsonrpc": "2.0", "id": 7', -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"", -32700, None),
        (b"[" * 100_000, -32700, None),
        ([a_call()], -32600, None),
        (a_call(jsonrpc="1.0"), -32600, 7),
        (a_call(id={"a": 1}), -32600, None),
        (a_call(method=7), -32600, 7),
        (a_call("message/sned"), -32601, 7),
        (a_call(params=[1]), -32602, 7),
        (a_call(), -32602, 7),
        (a_call(params={"message": {**WELL, "parts": []}}), -32602, 7),
        (a_call(params={"message": {**WELL, "parts": [{"text": 1}]}}), -32602, 7),
        (a_call(params={"message": {**WELL, "parts": [{"text": "a", "url": "b"}]}}), -32602, 7),
        (a_call(params={"message": {**WELL, "role": "judge"}}), -32602, 7),
        (a_call(params={"message": {**WELL, "messageId": ""}}), -32602, 7),
        (a_call(params={"message": {**WELL, "contextId": "c" * 129}}), -32602, 7),
        (a_call(params={"message": WELL, "configuration": {"historyLength": -1}}), -32602, 7),
        (a_call(params={"message": WELL, "configuration": {"returnImmediately": "yes"}}), -32602, 7),
        (a_call("GetTask"), -32602, 7),
        (a_call("GetTask", {"id": "no-such"}), -32001, 7),
        (a_call("tasks/get", {"id": "no-such"}, id="seven"), -32001, "seven"),
        (a_call("CreateTaskPushNotificationConfig"), -32003, 7),
        (a_call("tasks/pushNotificationConfig/set"), -32003, 7),
        (
            a_call(params={"message": WELL, "configuration": {"taskPushNotificationConfig": {"url": "http://me"}}}),
            -32003,
            7,
        ),
        (a_call("ListTasks"), -32004, 7),
        (a_call("GetExtendedAgentCard"), -32007, 7),
    ],
)
async def test_what_is_wrong_has_its_code(room: Room, body: Any, code: int, id: Any) -> None:
    answer = await post(room, body)

    assert answer.status_code == 200
    refusal = answer.json()
    assert (refusal["jsonrpc"], refusal["id"], refusal["error"]["code"]) == ("2.0", id, code)
    assert "Traceback" not in answer.text
    assert "redis" not in answer.text.lower()
    assert room.depth("bob") == 0


async def test_another_version_of_a2a_is_refused(room: Room) -> None:
    answer = await post(room, a_call("GetTask", {"id": "x"}), **{"A2A-Version": "2.0"})

    assert answer.json()["error"]["code"] == -32009


async def test_strangers_are_refused_before_anything_is_read(room: Room) -> None:
    statuses = [
        (await post(room, b"not even JSON", token="nonsense")).status_code,
        (await post(room, a_call(), token=room.token("carol", scope="receive"))).status_code,
        (await post(room, a_call(), token=room.token("another/carol"))).status_code,
    ]

    assert statuses == [401, 403, 403]


async def test_what_is_too_large_is_refused_as_elsewhere(room: Room) -> None:
    payload = await post(room, a_call(params={"message": {**WELL, "parts": [{"text": "x" * 70_000}]}}))
    body = await post(room, b" " * (5 * 2**20))

    assert (payload.status_code, payload.json()["error"]["code"]) == (413, -32602)
    assert body.status_code == 413
    assert room.depth("bob") == 0


async def test_a_full_mailbox_is_told_with_when_to_come_back(room: Room) -> None:
    await room.agent("bob")
    admin = {"Authorization": f"Bearer {room.token('root', scope='admin')}"}
    async with httpx.AsyncClient(headers=admin) as http:
        capped = await http.put(f"{room.a.url}/v1/agents/bob", json={"max_messages": 1})
    assert capped.status_code == 200
    answers = [
        await post(
            room,
            a_call(params={"message": {**WELL, "messageId": str(n)}, "configuration": {"returnImmediately": True}}),
        )
        for n in range(2)
    ]

    assert [one.status_code for one in answers] == [200, 429]
    assert answers[1].json()["error"]["code"] == -32603
    assert answers[1].json()["error"]["data"][0]["metadata"]["relay_code"] == "queue_full"
    assert int(answers[1].headers["Retry-After"]) >= 1
