"""The books balance by metrics alone: what came in, how it ended, and what waits."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import aiohttp
import pytest

from tests.agents import Agent, message, until
from tests.callers import Caller
from tests.servers import free_port
from tests.system.conftest import Relay, Room, start_relay
from tests.unit.telemetry.test_metrics import samples


@pytest.fixture(scope="module")
def relay() -> Iterator[Relay]:
    with ExitStack() as stack:
        yield start_relay(stack, metrics_port=free_port(), sweep_every_s=1)


async def scraped(room: Room) -> dict[str, float]:
    """Every series, added up over all processes."""
    sums: dict[str, float] = {}
    async with aiohttp.ClientSession() as http:
        for url in (room.a.url, room.b.url, f"http://127.0.0.1:{room.relay.settings['metrics_port']}"):
            async with http.get(f"{url}/metrics") as answer:
                for name, value in samples(await answer.read()).items():
                    sums[name] = sums.get(name, 0) + value
    return sums


def books(found: dict[str, float]) -> dict[str, float]:
    return {
        "accepted": found["relay_accepted_total"],
        "revived": found["relay_revived_total"],
        "acked": found["relay_settled_total,how=ack"] + found["relay_settled_total,how=reply"],
        "expired": found["relay_expired_total"],
        "dead": found["relay_dead_total"],
        "cancelled": found["relay_cancelled_total"],
        "waiting": sum(value for name, value in found.items() if name.startswith("relay_queue_depth")),
    }


async def answer_requests(bob: Agent, alice: Agent) -> None:
    """Two requests; their replies come to the requester's mailbox as messages, where they stay."""
    await alice.send(message("ask-1", request=True), message("ask-2", request=True))
    for one in await bob.deliveries(2):
        await bob.say("reply", entry=one["entry"], payload="part", more=True)
        await bob.say("reply", entry=one["entry"], payload="done", confirm=True)
        await bob.expect("settled")


async def test_what_came_in_is_what_ended_and_what_waits(room: Room) -> None:
    alice = await room.agent("alice", at=room.a)
    bob = await room.agent("bob", at=room.b)
    await alice.send(*(message(f"acked-{n}") for n in range(5)))
    await bob.settle("ack", *await bob.deliveries(5))
    await alice.send(message("dead-1"), message("dead-2"), message("dead-3"))
    await bob.settle("nack", *await bob.deliveries(3), retry=False)
    await answer_requests(bob, alice)
    await bob.close()
    sender, owner = Caller(room.a.url, room.token("alice")), Caller(room.b.url, room.token("bob"))
    letters = (await owner.call("GET", "/v1/agents/bob/dead"))["messages"]
    await owner.call("POST", "/v1/agents/bob/dead/revive", {"entries": [letters[0]["entry"]]})
    for n in range(2):
        await sender.call("POST", "/v1/agents/carol/messages", {"id": f"expires-{n}", "payload": 1, "ttl_s": 0.2})
        await sender.call("POST", "/v1/agents/carol/messages", {"id": f"cancelled-{n}", "payload": 1})
        await sender.call("DELETE", f"/v1/agents/carol/messages/cancelled-{n}")
    await sender.call("POST", "/v1/agents/carol/messages", {"id": "leased", "payload": 1, "type": "job"})
    puller = Caller(room.b.url, room.token("carol"))
    (leased,) = (await puller.call("POST", "/v1/agents/carol/lease", {"types": ["job"]}))["messages"]
    path = f"/v1/agents/carol/entries/{leased['entry']}/ack"
    assert (await puller.call("POST", path, {"lock_token": leased["lock_token"]})).status == 200

    expected = {"accepted": 19, "revived": 1, "acked": 8, "expired": 2, "dead": 3, "cancelled": 2, "waiting": 5}
    found = await until_books(room, expected)

    assert found == expected
    assert found["accepted"] + found["revived"] == sum(
        found[name] for name in ("acked", "expired", "dead", "cancelled", "waiting")
    )


async def until_books(room: Room, expected: dict[str, float]) -> dict[str, float]:
    """The worker measures every few seconds."""
    for _ in range(300):
        found = await scraped(room)
        if "relay_expired_total" in found and books(found) == expected:
            break
        await asyncio.sleep(0.05)
    return books(found)


async def test_ends_are_in_the_log_of_the_workers(room: Room) -> None:
    sender = Caller(room.a.url, room.token("alice"))
    await sender.call("POST", "/v1/agents/carol/messages", {"id": "logged", "payload": 1, "ttl_s": 0.2})

    def expired() -> list[str]:
        return [line["id"] for line in room.relay.workers.events("expired") if line["agent"] == room.address("carol")]

    await until(lambda: expired() == ["logged"], within_s=30)
