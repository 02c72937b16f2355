"""A2A's own client, unchanged, and agents behind the relay that have never heard of it."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError, AgentCardResolutionError
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from tests.agents import POLL_S, WAIT_S, Agent, Frame
from tests.system.conftest import Instance, Room

pytestmark = pytest.mark.xdist_group("common")

Connect = Callable[..., AbstractAsyncContextManager[Client]]


def url(room: Room, agent: str, at: Instance | None = None) -> str:
    return f"{(at or room.a).url}/a2a/{room.tenant}/{agent}"


@pytest.fixture(params=["1.0", "0.3"])
def connect(room: Room, request: pytest.FixtureRequest) -> Connect:
    """Opens a client that has read the agent's card and speaks one generation of A2A."""

    @asynccontextmanager
    async def open_client(
        agent: str = "bob", caller: str = "carol", at: Instance | None = None, **config: Any
    ) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {room.token(caller)}"}
        async with httpx.AsyncClient(headers=headers, timeout=WAIT_S) as http:
            factory = ClientFactory(ClientConfig(httpx_client=http, **config))
            card = await A2ACardResolver(http, url(room, agent, at)).get_agent_card()
            others = [one for one in card.supported_interfaces if one.protocol_version != request.param]
            for one in others:
                card.supported_interfaces.remove(one)
            async with factory.create(card) as client:
                yield client

    return open_client


def a_message(*texts: str, **fields: Any) -> Message:
    parts = [Part(text=text) for text in texts or ("hello",)]
    return Message(message_id=secrets.token_hex(8), role=Role.ROLE_USER, parts=parts, **fields)


def asking(message: Message | None = None, at_once: bool = False) -> SendMessageRequest:
    configuration = SendMessageConfiguration(return_immediately=at_once)
    return SendMessageRequest(message=message or a_message(), configuration=configuration)


async def send(client: Client, request: SendMessageRequest) -> Task:
    """The task that a client without streaming is answered with."""
    (answer,) = [one async for one in client.send_message(request)]
    return answer.task


def text_of(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


async def comes_to(client: Client, task_id: str, state: int) -> Task:
    """Polls, as a caller does that may go away in between."""
    async with asyncio.timeout(WAIT_S):
        while True:
            task = await client.get_task(GetTaskRequest(id=task_id))
            if task.status.state == state:
                return task
            await asyncio.sleep(POLL_S)


async def answer(agent: Agent, payload: Any, **fields: Any) -> Frame:
    """The agent takes the next message and replies. Returns what it got."""
    got = await agent.delivery()
    await agent.say("reply", entry=got["entry"], payload=payload, **fields)
    return got


def names(events: list[StreamResponse]) -> list[str]:
    return [str(event.WhichOneof("payload")) for event in events]


def is_only_at_work(event: StreamResponse) -> bool:
    """Whether an event says no more than that somebody has the message, which may be noticed or not."""
    status = event.status_update.status
    return status.state == TaskState.TASK_STATE_WORKING and not status.HasField("message")


# -- asking and being answered


async def test_a_connected_agent_gets_the_message_and_its_reply_completes_the_task(
    room: Room, connect: Connect
) -> None:
    bob = await room.agent("bob", at=room.b)
    async with connect(streaming=False) as client:
        message = a_message("what is", "the time?", context_id="ctx-1")

        asked = asyncio.create_task(send(client, asking(message)))
        got = await answer(bob, "noon")
        task = await asked

    assert got["from"] == room.address("carol")
    assert (got["type"], got["thread"], got["request"]) == ("a2a.message", "ctx-1", True)
    assert got["payload"] == MessageToDict(message) | {"taskId": task.id, "contextId": "ctx-1"}
    assert (task.id, task.context_id) == (got["id"], "ctx-1")
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert [artifact.artifact_id for artifact in task.artifacts] == ["reply"]
    assert text_of(task) == "noon"


async def test_an_agent_that_pulls_over_http_answers_too(room: Room, connect: Connect) -> None:
    headers = {"Authorization": f"Bearer {room.token('bob')}"}
    async with connect(streaming=False) as client, httpx.AsyncClient(headers=headers, base_url=room.b.url) as bob:
        asked = asyncio.create_task(send(client, asking()))
        leased = (await bob.post("/v1/agents/bob/lease", json={"wait_s": 10}, timeout=WAIT_S)).json()["messages"]
        reply = {"lock_token": leased[0]["lock_token"], "payload": {"sum": 3, "of": [1, 2]}}
        replied = await bob.post(f"/v1/agents/bob/entries/{leased[0]['entry']}/reply", json=reply)
        task = await asked

    assert replied.status_code == 200
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert MessageToDict(task.artifacts[0].parts[0].data) == {"sum": 3, "of": [1, 2]}


async def test_an_agent_that_is_away_gets_the_task_when_it_returns(room: Room, connect: Connect) -> None:
    async with connect(streaming=False) as client, connect(streaming=False, at=room.b) as elsewhere:
        submitted = await send(client, asking(at_once=True))
        polled = await elsewhere.get_task(GetTaskRequest(id=submitted.id))
        bob = await room.agent("bob")
        got = await bob.delivery()
        working = await elsewhere.get_task(GetTaskRequest(id=submitted.id))
        await bob.say("reply", entry=got["entry"], payload="here I am")
        task = await comes_to(elsewhere, submitted.id, TaskState.TASK_STATE_COMPLETED)

    assert submitted.status.state == polled.status.state == TaskState.TASK_STATE_SUBMITTED
    assert working.status.state == TaskState.TASK_STATE_WORKING
    assert got["was_stored"]
    assert text_of(task) == "here I am"
    assert task.context_id == submitted.context_id != ""


async def test_the_same_message_again_is_the_same_task_and_reaches_the_agent_once(room: Room, connect: Connect) -> None:
    message = a_message()
    async with connect(streaming=False) as client, connect(streaming=False, at=room.b) as elsewhere:
        first = await send(client, asking(message, at_once=True))
        again = await send(elsewhere, asking(message, at_once=True))
        bob = await room.agent("bob")
        await answer(bob, "once")
        await comes_to(client, first.id, TaskState.TASK_STATE_COMPLETED)
        answered = await send(elsewhere, asking(message))
        await bob.settled_down()

    assert first.id == again.id == answered.id
    assert text_of(answered) == "once"
    assert len(bob.got_deliveries()) == 1


async def test_a_killed_instance_takes_no_task_with_it(room: Room, connect: Connect) -> None:
    doomed = room.relay.instance()
    bob = await room.agent("bob", at=room.b)
    message = a_message()
    async with connect(at=doomed) as client, aclosing(client.send_message(asking(message))) as events:
        first = (await anext(events)).task
        got = await bob.delivery()
        await bob.say("reply", entry=got["entry"], payload="one, ", more=True)
        while (await anext(events)).WhichOneof("payload") != "artifact_update":
            continue
        doomed.kill()
        with pytest.raises(A2AClientError):
            await anext(events)

    async with connect(at=room.a) as client:
        async with aclosing(client.subscribe(SubscribeToTaskRequest(id=first.id))) as events:
            so_far = (await anext(events)).task
            await bob.say("reply", entry=got["entry"], payload="two")
            rest = [event async for event in events]
        task = await client.get_task(GetTaskRequest(id=first.id))

    assert text_of(so_far) == "one, "
    assert names(rest) == ["artifact_update", "status_update"]
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert text_of(task) == "one, two"


# -- streams


async def test_parts_of_a_reply_are_streamed_as_they_come(room: Room, connect: Connect) -> None:
    async with connect() as client, aclosing(client.send_message(asking())) as events:
        first = await anext(events)
        bob = await room.agent("bob", at=room.b)
        got = await bob.delivery()
        await bob.say("reply", entry=got["entry"], payload="one, ", more=True)
        early = [await anext(events), await anext(events)]
        await bob.say("reply", entry=got["entry"], payload="two, ", more=True)
        await bob.say("reply", entry=got["entry"], payload="three")
        rest = [event async for event in events]

    assert first.task.status.state == TaskState.TASK_STATE_SUBMITTED
    assert names(early) == ["status_update", "artifact_update"]
    assert early[0].status_update.status.state == TaskState.TASK_STATE_WORKING
    chunks = [one.artifact_update for one in early + rest if one.HasField("artifact_update")]
    assert {one.task_id for one in chunks} == {first.task.id}
    assert [(one.artifact.parts[0].text, one.append, one.last_chunk) for one in chunks] == [
        ("one, ", False, False),
        ("two, ", True, False),
        ("three", True, True),
    ]
    assert rest[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_who_lost_its_stream_subscribes_again_and_misses_nothing(room: Room, connect: Connect) -> None:
    bob = await room.agent("bob")
    async with connect() as client, connect(at=room.b) as elsewhere:
        async with aclosing(client.send_message(asking())) as events:
            task_id = (await anext(events)).task.id
        got = await bob.delivery()
        await bob.say("reply", entry=got["entry"], payload={"n": 1}, more=True, confirm=True)
        await bob.expect("settled")

        async with aclosing(elsewhere.subscribe(SubscribeToTaskRequest(id=task_id))) as events:
            snapshot = (await anext(events)).task
            await bob.say("reply", entry=got["entry"], payload={"n": 2})
            rest = [event async for event in events]
        task = await client.get_task(GetTaskRequest(id=task_id))
        with pytest.raises(UnsupportedOperationError):
            await anext(client.subscribe(SubscribeToTaskRequest(id=task_id)))

    seen = [MessageToDict(part.data) for artifact in snapshot.artifacts for part in artifact.parts]
    seen += [MessageToDict(part.data) for one in rest for part in one.artifact_update.artifact.parts]
    assert seen == [{"n": 1}, {"n": 2}]
    assert [MessageToDict(part.data) for part in task.artifacts[0].parts] == seen
    assert rest[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_what_an_agent_says_in_a2a_is_passed_on_with_the_tasks_own_ids(room: Room, connect: Connect) -> None:
    bob = await room.agent("bob")
    async with connect() as client, aclosing(client.send_message(asking())) as events:
        task_id = (await anext(events)).task.id
        got = await bob.delivery()
        thinking = {"messageId": "b-1", "role": "ROLE_AGENT", "parts": [{"text": "thinking"}], "taskId": "another"}
        picture = {"artifactId": "picture", "parts": [{"raw": "aGk=", "mediaType": "image/png", "filename": "p.png"}]}
        done = {"kind": "message", "messageId": "b-2", "role": "agent", "parts": [{"kind": "text", "text": "done"}]}
        for payload in (
            {"statusUpdate": {"taskId": "x", "status": {"state": "TASK_STATE_WORKING", "message": thinking}}},
            {"kind": "artifact-update", "artifact": picture},
        ):
            await bob.say("reply", entry=got["entry"], payload=payload, more=True)
        await bob.say("reply", entry=got["entry"], payload=done)
        heard = [event async for event in events if not is_only_at_work(event)]
        task = await client.get_task(GetTaskRequest(id=task_id))

    assert names(heard) == ["status_update", "artifact_update", "status_update"]
    assert heard[0].status_update.status.message.parts[0].text == "thinking"
    assert heard[0].status_update.status.message.task_id == task_id
    assert task.artifacts[0].parts[0].raw == b"hi"
    assert task.artifacts[0].parts[0].media_type == "image/png"
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert task.status.message.parts[0].text == "done"
    assert [message.parts[0].text for message in task.history] == ["thinking"]


# -- going on


async def test_a_task_that_needs_input_goes_on_with_the_next_message(room: Room, connect: Connect) -> None:
    bob = await room.agent("bob")
    question = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "which one?"}]}
    async with connect(streaming=False) as client:
        asked = asyncio.create_task(send(client, asking()))
        first = await answer(bob, {"status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": question}})
        waiting = await asked
        asked = asyncio.create_task(send(client, asking(a_message("the blue one", task_id=waiting.id))))
        second = await answer(bob, "as you wish")
        task = await asked
        with pytest.raises(UnsupportedOperationError):
            await send(client, asking(a_message("too late", task_id=waiting.id)))

    assert waiting.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert waiting.status.message.parts[0].text == "which one?"
    assert task.id == waiting.id == first["id"] != second["id"]
    assert (second["reply_to"], second["thread"]) == (task.id, first["thread"])
    assert second["payload"]["taskId"] == task.id
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert text_of(task) == "as you wish"
    assert [message.parts[0].text for message in task.history] == ["which one?"]


async def test_a_message_in_the_same_context_is_a_new_task_in_the_same_thread(room: Room, connect: Connect) -> None:
    bob = await room.agent("bob")
    async with connect(streaming=False) as client:
        first = await send(client, asking(at_once=True))
        second = await send(client, asking(a_message(context_id=first.context_id), at_once=True))
        deliveries = await bob.deliveries(2)

    assert first.id != second.id
    assert first.context_id == second.context_id
    assert [(one["thread"], one["seq"]) for one in deliveries] == [(first.context_id, 1), (first.context_id, 2)]


# -- other ends


async def test_a_task_that_nobody_has_begun_can_be_canceled(room: Room, connect: Connect) -> None:
    async with connect() as client, connect(at=room.b) as elsewhere:
        async with aclosing(client.send_message(asking())) as events:
            task_id = (await anext(events)).task.id
            canceled = await elsewhere.cancel_task(CancelTaskRequest(id=task_id))
            rest = [event async for event in events]
        polled = await client.get_task(GetTaskRequest(id=task_id))
        with pytest.raises(TaskNotCancelableError):
            await elsewhere.cancel_task(CancelTaskRequest(id=task_id))

    assert canceled.status.state == polled.status.state == TaskState.TASK_STATE_CANCELED
    assert [one.status_update.status.state for one in rest] == [TaskState.TASK_STATE_CANCELED]
    assert room.depth("bob") == 0


async def test_a_task_that_the_agent_works_on_cannot_be_canceled(room: Room, connect: Connect) -> None:
    bob = await room.agent("bob")
    async with connect(streaming=False) as client:
        task = await send(client, asking(at_once=True))
        await bob.delivery()

        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        working = await client.get_task(GetTaskRequest(id=task.id))

    assert working.status.state == TaskState.TASK_STATE_WORKING


async def test_a_task_whose_message_is_buried_has_failed(room: Room, connect: Connect) -> None:
    bob = await room.agent("bob")
    async with connect(streaming=False) as client:
        asked = asyncio.create_task(send(client, asking()))
        await bob.settle("nack", await bob.delivery(), retry=False, reason="a secret of bob's")
        task = await asked

    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert "secret" not in str(task)


async def test_a_blocked_caller_sees_a_task_that_waits(room: Room, connect: Connect) -> None:
    bob = await room.agent("bob")
    await bob.say("block", agents=["carol"])
    await bob.expect("blocks")
    async with connect(streaming=False) as client:
        task = await send(client, asking(at_once=True))
        polled = await client.get_task(GetTaskRequest(id=task.id))
        canceled = await client.cancel_task(CancelTaskRequest(id=task.id))

    assert task.status.state == polled.status.state == TaskState.TASK_STATE_SUBMITTED
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED


# -- whose it is


async def test_a_task_is_its_callers_and_its_agents_alone(connect: Connect) -> None:
    async with connect(streaming=False) as client:
        task = await send(client, asking(at_once=True))
    for stranger in (connect(caller="dave"), connect(agent="eve")):
        async with stranger as client:
            with pytest.raises(TaskNotFoundError):
                await client.get_task(GetTaskRequest(id=task.id))
            with pytest.raises(TaskNotFoundError):
                await client.cancel_task(CancelTaskRequest(id=task.id))
            with pytest.raises(TaskNotFoundError):
                await anext(client.subscribe(SubscribeToTaskRequest(id=task.id)))
            with pytest.raises(TaskNotFoundError):
                await anext(client.send_message(asking(a_message(task_id=task.id))))


# -- the card


async def test_the_card_is_the_agents_own_with_the_relay_as_its_address(room: Room) -> None:
    skill = {"id": "sum", "name": "Sum", "description": "Adds numbers", "tags": ["maths"]}
    own = {"name": "Bob", "description": "A calculator", "version": "7", "skills": [skill], "url": "http://elsewhere"}
    await room.agent("bob", card=own)

    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url(room, "bob")).get_agent_card()
        older = await A2ACardResolver(http, url(room, "bob"), ".well-known/agent.json").get_agent_card()

    assert card == older
    assert (card.name, card.description, card.version, card.skills[0].id) == ("Bob", "A calculator", "7", "sum")
    assert [(one.url, one.protocol_binding, one.protocol_version) for one in card.supported_interfaces] == [
        (url(room, "bob"), "JSONRPC", "1.0"),
        (url(room, "bob"), "JSONRPC", "0.3"),
    ]
    assert card.capabilities.streaming
    assert not card.capabilities.push_notifications
    assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "bearer"
    assert "bearer" in card.security_requirements[0].schemes


async def test_an_agent_without_a_card_has_a_small_one(room: Room) -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url(room, "nobody")).get_agent_card()

    assert card.name == "nobody"
    assert card.description
    assert card.version
    assert list(card.default_input_modes) == ["text/plain", "application/json"]


async def test_the_card_of_a_closed_tenant_needs_a_token_of_it(room: Room) -> None:
    closed = room.relay.instance(open_tenants="another")
    await room.agent("bob", at=room.a, card={"name": "Bob"})

    async def name_with(token: str | None, agent: str = "bob") -> str:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(headers=headers) as http:
            return (await A2ACardResolver(http, url(room, agent, closed)).get_agent_card()).name

    assert await name_with(room.token("carol")) == "Bob"
    for token, agent, status in (
        (None, "bob", 401),
        (room.token("another/eve"), "bob", 403),
        (room.token("carol"), "nobody", 404),
    ):
        with pytest.raises(AgentCardResolutionError) as refused:
            await name_with(token, agent)
        assert refused.value.status_code == status
