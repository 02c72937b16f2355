"""A client limited to few messages a second that settles, asks and looks without end: all of it costs rate."""

import asyncio
import time
from typing import Any

import pytest

from tests.agents import Agent, message, messages, until
from tests.callers import caller
from tests.system.conftest import Room

PER_S, BURST = 5, 20
SETTINGS = {"rate_per_s": PER_S, "rate_burst": BURST, "open_tenants": "*"}


async def until_settled(agent: Agent, entry: str) -> None:
    """Says the same until the rate allows it."""
    settled: list[Any] = []
    while not settled:
        await agent.say("ack", entries=[entry], confirm=True)
        answer = await until(lambda: next((one for one in agent.inbox if one["op"] in ("settled", "refused")), None))
        agent.inbox.remove(answer)
        settled = answer.get("entries", [])


async def refusals_of(agent: Agent, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += (await agent.expect("refused"))["refusals"]
    return found


@pytest.mark.parametrize("how", ["touch", "release", "nack"])
async def test_a_loop_of_settling_is_held_to_the_rate(room: Room, how: str) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob", window=BURST)
    await alice.sent(*messages(BURST))
    entries = [one["entry"] for one in await bob.deliveries(BURST)]
    fields = {"nack": {"retry": True, "delay_s": 60}}.get(how, {})

    began = time.monotonic()
    for _ in range(40):
        await bob.say(how, entries=entries, **fields)
    await bob.say("ping")
    await bob.expect("pong")
    await bob.say("sync", peer="alice")  # in line behind all of it
    await until(lambda: any(one["op"] in ("sync_state", "error") for one in bob.inbox))
    took_s = time.monotonic() - began

    refused = [one for frame in bob.heard if frame["op"] == "refused" for one in frame["refusals"]]
    limited = [one for one in refused if one["code"] == "rate_limited"]
    done = 40 * BURST - len(limited)
    assert done <= 5 * (BURST + PER_S * (took_s + 0.2))
    assert all(one["retryable"] and one["retry_after_ms"] > 0 and one["entry"] in entries for one in limited)


async def test_an_ack_over_the_rate_changes_nothing_and_may_be_said_again(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob")
    await alice.sent(message("m-1"))
    delivery = await bob.delivery()
    await bob.say("presence", agents=["x"] * 1_000)  # costs all there is
    await bob.say("ack", entries=[*(f"1-{n}" for n in range(100)), delivery["entry"]])

    refused = next(one for one in await refusals_of(bob, 101) if one["entry"] == delivery["entry"])
    held = room.holders("bob")
    await until_settled(bob, delivery["entry"])

    assert len(held) == 1
    assert refused["code"] == "rate_limited"
    assert room.depth("bob") == 0


async def test_whoever_acks_all_that_a_sender_can_send_is_not_limited(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob")
    await alice.sent(*messages(BURST))

    for _ in range(BURST):
        await bob.ack(*await bob.deliveries(1))

    assert room.depth("bob") == 0
    assert not [frame for frame in bob.heard if frame["op"] == "refused"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/agents"),
        ("GET", "/v1/agents/bob/messages"),
        ("POST", "/v1/agents/bob/lease"),
        ("PUT", "/v1/agents/bob"),
    ],
)
async def test_calls_over_http_cost_rate_too(room: Room, method: str, path: str) -> None:
    bob = caller(room, "bob")
    agent = await room.agent("bob")
    await agent.say("presence", agents=["x"] * 1_000)
    await agent.expect("presence")
    await agent.close()

    answers = await asyncio.gather(*(bob.call(method, path, None if method == "GET" else {}) for _ in range(20)))
    answer = next(one for one in answers if one.status == 429)

    assert answer.said == (429, "rate_limited")
    assert int(answer.headers["Retry-After"]) >= 1
