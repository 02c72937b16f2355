"""A blocked sender compares every answer with what it hears of a message that waits."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.agents import Agent, message
from tests.callers import Answer, Caller, admin, caller, soon
from tests.system.conftest import Room

SETTINGS = {"mailbox_max_messages": 4, "recheck_s": 30}
BLOCKS, WAITS = "bob", "carol"  # who has blocked alice, and who is merely away

Story = Callable[[Room, Caller, Agent, str], Awaitable[list[Any]]]
_HANDLE = re.compile(r"^\d{13}-\d+(p\d)?$")
_TIMES = (
    "at_ms",
    "oldest_ms",
    "oldest_age_s",
    "last_seen_ms",
    "latency_ms",
    "accepted_at",
    "until_ms",
    "retry_after_ms",
)


def plain(value: Any, name: str = "") -> Any:
    """An answer without what differs between any two messages: times, handles and the recipient's name."""
    if isinstance(value, Answer):
        return value.status, plain(value.body)
    if isinstance(value, dict):
        return {key: plain(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if name in _TIMES and value is not None:
        return "a time"
    if isinstance(value, str):
        value = _HANDLE.sub(r"a handle\1", value)
        return value.replace(BLOCKS, "recipient").replace(WAITS, "recipient")
    return value


# -- what a sender can try


async def asks_where(_: Room, alice: Caller, __: Agent, to: str) -> list[Any]:
    said = [await alice.send(to, "m-1", thread="t"), await alice.send(to, "m-2", priority=3)]
    path = f"/v1/agents/{to}/messages"
    return [*said, await alice.get(f"{path}/m-1"), await alice.get(f"{path}/m-2"), await alice.get(f"{path}/m-3")]


async def sends_again(_: Room, alice: Caller, socket: Agent, to: str) -> list[Any]:
    said: list[Any] = [await alice.send(to, "m-1"), await alice.send(to, "m-1")]
    said.append(await socket.sent(message("m-1", to=to)))
    said.append(await socket.sent(message("m-2", to=to), message("m-2", to=to)))
    batch = {"messages": [{"id": "m-2", "payload": 1}, {"id": "m-3", "payload": 1}]}
    return [*said, await alice.post(f"/v1/agents/{to}/messages", batch)]


async def counts(_: Room, alice: Caller, __: Agent, to: str) -> list[Any]:
    return [await alice.send(to, f"m-{n}", thread="t" if n % 2 else None) for n in range(4)]


async def takes_back(_: Room, alice: Caller, socket: Agent, to: str) -> list[Any]:
    await socket.sent(message("m-1", to=to))
    path = f"/v1/agents/{to}/messages/m-1"
    said = [await alice.delete(path), await alice.get(path), await alice.delete(path)]
    return [*said, await alice.send(to, "m-1"), await alice.send(to, "m-2"), await alice.get(f"/v1/agents/{to}")]


async def synchronises(_: Room, alice: Caller, socket: Agent, to: str) -> list[Any]:
    said = []
    for n, thread in enumerate(("t", "t", "")):
        await alice.send(to, f"m-{n}", thread=thread or None)
    await alice.delete(f"/v1/agents/{to}/messages/m-0")
    for thread in ("t", "", "other"):
        await socket.say("sync", peer=to, thread=thread)
        said.append(await socket.expect("sync_state"))
    return said


async def requests(_: Room, alice: Caller, socket: Agent, to: str) -> list[Any]:
    await socket.sent(message(f"ws-{to}", to=to, request=True))
    said = [await alice.ask(to, f"http-{to}"), await alice.get(f"/v1/tasks/ws-{to}")]
    await alice.delete(f"/v1/agents/{to}/messages/ws-{to}")
    return [*said, await alice.get(f"/v1/tasks/ws-{to}"), await alice.get(f"/v1/tasks/http-{to}", wait_s=0.1)]


async def sends_for_later(_: Room, alice: Caller, __: Agent, to: str) -> list[Any]:
    return [await alice.send(to, "m-1", delay_s=60), await alice.get(f"/v1/agents/{to}/messages/m-1")]


async def fills_the_mailbox(_: Room, alice: Caller, socket: Agent, to: str) -> list[Any]:
    said: list[Any] = [await alice.send(to, f"m-{n}", "x" * n) for n in range(4)]
    said.append(await alice.post(f"/v1/agents/{to}/messages", {"id": "m-5", "payload": 1}))
    await socket.send(message("m-6", to=to))
    said.append(await socket.refusal())
    await alice.delete(f"/v1/agents/{to}/messages/m-1")
    return [*said, await alice.send(to, "m-7")]


async def looks_at_the_agent(_: Room, alice: Caller, __: Agent, to: str) -> list[Any]:
    said = [await alice.get(f"/v1/agents/{to}"), await alice.send(to, "m-1"), await alice.get(f"/v1/agents/{to}")]
    listed = (await alice.get("/v1/agents"))["agents"]
    return [*said, *(one for one in listed if one["agent"].endswith(to))]


async def inspects(room: Room, alice: Caller, __: Agent, to: str) -> list[Any]:
    eve = caller(room, "eve", "inspect")
    for _ in range(2):
        await alice.send(to, f"seen-{to}", type="x", thread="t")
    found = (await eve.get("/v1/activity", message=f"seen-{to}"))["events"]
    return [{name: value for name, value in one.items() if name != "instance"} for one in found]


async def waits_for_the_end(_: Room, alice: Caller, socket: Agent, to: str) -> list[Any]:
    await socket.sent(message("m-1", to=to, ttl_s=0.3, receipt="all"))
    path = f"/v1/agents/{to}/messages/m-1"
    (receipt,) = await socket.receipts(1)
    said = [receipt, await alice.get(path), await alice.delete(path), await alice.send(to, "m-1")]
    return [*said, await alice.get(f"/v1/agents/{to}"), await alice.send(to, "m-2")]


STORIES: list[Story] = [
    *(asks_where, sends_again, counts, takes_back, synchronises, requests),
    *(sends_for_later, fills_the_mailbox, looks_at_the_agent, inspects, waits_for_the_end),
]


async def blocked_and_waiting(room: Room) -> tuple[Caller, Agent]:
    """Alice, whom bob has blocked and carol has not; both are away."""
    for name in (BLOCKS, WAITS):
        await admin(room).put(f"/v1/agents/{name}", {})
    await caller(room, BLOCKS).put(f"/v1/agents/{BLOCKS}/blocks/alice")
    await caller(room, WAITS).put(f"/v1/agents/{WAITS}/blocks/dora")
    return caller(room, "alice", at=room.b), await room.agent("alice")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_blocked_sender_hears_what_one_hears_whose_message_waits(room: Room, story: Story) -> None:
    alice, socket = await blocked_and_waiting(room)

    blocked = plain(await story(room, alice, socket, BLOCKS))
    waiting = plain(await story(room, alice, socket, WAITS))

    assert blocked == waiting
    assert room.depth(BLOCKS) == 0


# -- what the others see


async def test_others_see_nothing_of_it(room: Room) -> None:
    alice, socket = await blocked_and_waiting(room)
    for n in range(3):
        await alice.send(BLOCKS, f"m-{n}", thread="t")
    bob = await room.agent(BLOCKS)

    assert bob.queue_status["pending"] == 0
    assert await bob.drained() == 0
    await bob.say("sync", peer="alice", thread="t")
    assert (await bob.expect("sync_state"))["pending"] == 0
    for who in (admin(room), caller(room, "dora"), caller(room, BLOCKS)):
        assert (await who.get(f"/v1/agents/{BLOCKS}"))["depth"] == 0
    dora = caller(room, "dora")
    assert [(await dora.send(BLOCKS, f"m-{n}")).status for n in range(4)] == [202] * 4
    assert [one["id"] for one in await bob.deliveries(4)] == ["m-0", "m-1", "m-2", "m-3"]
    assert socket.got("receipts") == []


async def test_an_admin_sees_that_it_was_blocked(room: Room) -> None:
    alice, _ = await blocked_and_waiting(room)
    await alice.send(BLOCKS, "m-1")

    (event,) = (await admin(room).get("/v1/activity", message="m-1"))["events"]

    assert (event["kind"], event["reason"]) == ("refused", "blocked")


async def test_after_the_block_new_messages_flow_and_old_ones_stay_what_they_are(room: Room) -> None:
    alice, socket = await blocked_and_waiting(room)
    await alice.send(BLOCKS, "old", thread="t")
    await caller(room, BLOCKS).delete(f"/v1/agents/{BLOCKS}/blocks/alice")
    bob = await room.agent(BLOCKS)

    again = await alice.send(BLOCKS, "old", thread="t")
    new = await alice.send(BLOCKS, "new", thread="t")

    assert (again["duplicate"], again["state"]) == (True, "queued")
    assert (new["duplicate"], new["seq"]) == (False, 2)
    delivery = await bob.delivery()
    assert (delivery["id"], delivery["seq"]) == ("new", 2)
    assert await alice.where(BLOCKS, "old") == "queued"
    await socket.say("sync", peer=BLOCKS, thread="t")
    assert (await socket.expect("sync_state"))["pending"] == 2


async def test_nothing_is_left_of_it_in_the_end(room: Room) -> None:
    alice, _ = await blocked_and_waiting(room)
    for n in range(3):
        await alice.send(BLOCKS, f"m-{n}", ttl_s=0.2)

    async def left() -> dict[str, int]:
        tag = room.keys.tag(room.keys.shard(room.address(BLOCKS)))
        mine = [one for one in room.redis.zrange(tag + "shadows", 0, -1) if one.startswith(room.address(BLOCKS))]
        due = [one for one in room.redis.zrange(tag + "due", 0, -1) if room.address(BLOCKS) in one]
        sized = room.redis.hexists(tag + "shadowed", room.address(BLOCKS))
        ids = [one for one in room.redis.hkeys(tag + "ids") if one.startswith(room.tenant)]
        return {"shadows": len(mine), "due": len(due), "sizes": int(sized), "ids": len(ids)}

    assert await left() == {"shadows": 3, "due": 3, "sizes": 1, "ids": 3}
    await soon(left, {"shadows": 0, "due": 0, "sizes": 0, "ids": 0})


async def test_a_deleted_agent_takes_back_what_blocked_senders_believe_to_wait(room: Room) -> None:
    alice, _ = await blocked_and_waiting(room)
    for to in (BLOCKS, WAITS):
        await alice.send(to, "m-1")
        await admin(room).delete(f"/v1/agents/{to}", force="true")

    assert await alice.where(BLOCKS, "m-1") == await alice.where(WAITS, "m-1") == "cancelled"
