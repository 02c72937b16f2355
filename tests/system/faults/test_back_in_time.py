"""The store goes back in time under running instances: everybody is told, and nobody who has left is served."""

import asyncio
import re

import aiohttp
import pytest

from tests.agents import Agent, message, messages, until
from tests.callers import watchers
from tests.system.conftest import Instance, Room

pytestmark = pytest.mark.xdist_group("store failures")

SETTINGS = {"recheck_s": 1}


async def go_back(room: Room) -> None:
    await asyncio.to_thread(room.relay.server.go_back)


async def back_up(room: Room) -> None:
    await asyncio.to_thread(room.relay.server.back_up)


async def knows(instance: Instance) -> dict[str, object]:
    """What the instance logs of the loss."""
    await until(lambda: instance.events("store_regressed"))
    return instance.events("store_regressed")[-1]


async def test_every_instance_says_so_and_tells_its_sessions(room: Room) -> None:
    alice, carol = await room.agent("alice"), await room.agent("carol", at=room.b)
    await alice.sent(message("kept"))
    await back_up(room)
    await alice.sent(message("lost"))

    await go_back(room)
    told = [(await agent.expect("epoch"))["epoch"] for agent in (alice, carol)]
    noticed = [await knows(room.a), await knows(room.b)]
    _, readiness = await room.a.ready()

    assert told[0] == told[1] != alice.welcome["epoch"]
    assert noticed[0]["shard"] == noticed[1]["shard"] == room.keys.shard(room.address("bob"))
    assert noticed[0]["entries"] == 1
    assert [found["entries"] for found in readiness["regressed"]] == [1]
    assert re.search(r"^relay_store_regressed_total\S* 1\.0$", await metrics(room.a), re.MULTILINE)


async def metrics(instance: Instance) -> str:
    async with aiohttp.ClientSession() as http, http.get(f"{instance.url}/metrics") as answer:
        return await answer.text()


async def a_ghost(room: Room) -> str:
    """The name of a session of bob's that has left, and is back in the store."""
    bob = await room.agent("bob")
    await bob.drained()
    await back_up(room)
    await bob.close()
    await until(lambda: not watchers(room, "bob"))
    return str(bob.welcome["session"])


async def test_a_session_that_had_left_is_not_online_again(room: Room) -> None:
    ghost = await a_ghost(room)

    await go_back(room)
    await until(lambda: any(event["session"] == ghost for event in room.a.events("session_disowned")))

    assert watchers(room, "bob") == []


async def test_what_is_sent_to_a_ghost_is_free_for_who_comes(room: Room) -> None:
    await a_ghost(room)
    alice = await room.agent("alice", at=room.b)

    await go_back(room)
    await alice.sent(*messages(3))
    bob: Agent = await room.agent("bob", at=room.b, mode="shared")

    assert [one["id"] for one in await bob.deliveries(3)] == ["m-1", "m-2", "m-3"]
