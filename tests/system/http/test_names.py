"""Names that the relay does not know: a typing error is told, not taken for a default."""

from typing import Any

import pytest

from tests.callers import Caller
from tests.system.conftest import Room


@pytest.fixture
def alice(room: Room) -> Caller:
    return Caller(room.a.url, room.token("alice", "send receive inspect admin"))


@pytest.mark.parametrize(
    ("path", "body", "meant"),
    [
        ("/v1/agents/bob/messages", {"payload": 1, "priorty": 3}, "priority"),
        ("/v1/agents/alice/lease", {"type": ["job"]}, "types"),
        ("/v1/agents/alice/entries/1-0/nack", {"lock_token": "x", "reson": "no"}, "reason"),
        ("/v1/agents/alice/settle", {"ack": [{"entry": "1-0", "lock_tokn": "x"}]}, "lock_token"),
        ("/v1/agents/alice/dead/revive", {"entrys": ["1-0"]}, "entries"),
    ],
)
async def test_an_unknown_field_is_refused_with_the_one_that_was_meant(
    alice: Caller, path: str, body: dict[str, Any], meant: str
) -> None:
    answer = await alice.call("POST", path, body)

    assert answer.said == (400, "malformed")
    assert f"did you mean '{meant}'" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "query", "meant"),
    [
        ("/v1/agents/alice/messages", {"stat": "queued"}, "state"),
        ("/v1/activity", {"sinse_ms": "1"}, "since_ms"),
        ("/v1/agents", {"limt": "1"}, "limit"),
        ("/v1/tasks/x", {"wait": "1"}, "wait_s"),
    ],
)
async def test_an_unknown_query_parameter_is_refused_with_the_one_that_was_meant(
    alice: Caller, path: str, query: dict[str, str], meant: str
) -> None:
    answer = await alice.call("GET", path, **query)

    assert answer.said == (400, "malformed")
    assert f"did you mean '{meant}'" in answer["error"]["message"]


async def test_a_bad_name_in_a_batch_does_not_hurt_its_neighbours(alice: Caller) -> None:
    batch = {"messages": [{"id": "m-1", "payload": 1}, {"id": "m-2", "payload": 2, "delay": 3}]}

    answer = await alice.call("POST", "/v1/agents/bob/messages", batch)

    assert [one["id"] for one in answer["accepted"]] == ["m-1"]
    assert [one["code"] for one in answer["refused"]] == ["malformed"]


async def test_a_forged_sender_is_ignored_as_over_websocket(room: Room, alice: Caller) -> None:
    bob = await room.agent("bob")

    sent = await alice.call("POST", "/v1/agents/bob/messages", {"payload": 1, "from": "acme/root"})

    assert sent.status == 202
    assert (await bob.delivery())["from"] == room.address("alice")
