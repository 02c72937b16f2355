"""A client that sends until the store is full: others can still come, drain their mail and settle it, and it heals."""

import asyncio
import time
from itertools import count

from tests.agents import Agent, Frame, message, until
from tests.callers import caller
from tests.system.conftest import Room

LIMIT_BYTES = 24 * 2**20
OPTIONS = {"maxmemory": str(LIMIT_BYTES)}
SETTINGS = {"rate_per_s": 0, "sweep_every_s": 0.5, "mailbox_max_messages": 5_000, "open_tenants": "*"}
LARGE = "x" * 50_000


async def answers_to(agent: Agent, *batch: Frame) -> tuple[int, list[Frame]]:
    """How many of a frame's messages were accepted, and the refusals."""
    await agent.send(*batch)
    accepted, refusals = 0, []
    while accepted + len(refusals) < len(batch):
        found = await asyncio.wait_for(_next(agent), 10)
        if found["op"] == "accepted":
            accepted += len(found["ids"])
        else:
            refusals += found["refusals"]
    return accepted, refusals


async def _next(agent: Agent) -> Frame:
    while True:
        for n, frame in enumerate(agent.inbox):
            if frame["op"] in ("accepted", "refused"):
                return agent.inbox.pop(n)
        await asyncio.sleep(0.005)


async def fill(agent: Agent, to: str = "bob", **fields: object) -> Frame:
    """Sends until something is refused. Returns the first refusal."""
    for n in count():
        batch = [message(f"{to}-{n}-{m}", to, LARGE, **fields) for m in range(20)]
        _, refusals = await answers_to(agent, *batch)
        if refusals:
            return refusals[0]
    raise AssertionError("it never became full")


async def is_accepted_again(agent: Agent, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    for n in count():
        accepted, refusals = await answers_to(agent, message(f"again-{n}-{time.monotonic_ns()}", "carol"))
        if accepted:
            return
        assert time.monotonic() < deadline, refusals
        await asyncio.sleep(0.1)


async def test_a_nearly_full_store_refuses_what_is_new_and_is_drained_by_those_who_come(room: Room) -> None:
    alice = await room.agent("alice", at=room.b)

    refusal = await fill(alice)
    ready, body = await room.b.ready()
    over_http = await caller(room, "alice", at=room.b).post("/v1/agents/bob/messages", {"payload": 1})
    registering = await caller(room, "zoe", at=room.b).put("/v1/agents/zoe", {"mode": "shared"})
    bob = await room.agent("bob", window=500)
    for _ in range(room.depth("bob")):
        await bob.ack(await bob.delivery())

    assert (refusal["code"], refusal["retryable"]) == ("store_unavailable", True)
    assert refusal["retry_after_ms"] > 0
    assert refusal["id"].startswith("bob-")
    assert over_http.said == registering.said == (503, "store_unavailable")
    assert int(over_http.headers["Retry-After"]) >= 1
    assert ready == 200
    assert body["memory"]["refusing_sends"]
    assert body["memory"]["max_bytes"] == LIMIT_BYTES
    assert 0.85 < body["memory"]["share"] < 1.05
    assert "nearly full" in " ".join(body["warnings"])
    assert int(room.redis.info("memory")["used_memory"]) < LIMIT_BYTES
    await is_accepted_again(alice)
    assert not (await room.b.ready())[1]["memory"]["refusing_sends"]


async def test_a_server_that_is_full_already_is_drained_over_both_doors(room: Room) -> None:
    alice = await room.agent("alice")
    for to in ("bob", "carol"):
        await answers_to(alice, *(message(f"{to}-{n}", to, LARGE) for n in range(20)))

    room.redis.config_set("maxmemory", 2**20)
    try:
        third = room.relay.instance()
        await third.is_ready()
        bob, carol = await room.agent("bob", at=third), caller(room, "carol", at=third)
        for _ in range(20):
            await bob.ack(await bob.delivery())
        for leased in await carol.lease(max=20):
            assert (await carol.settle("ack", leased)).status == 200
        accepted, refusals = await answers_to(alice, message("one more"))
    finally:
        room.redis.config_set("maxmemory", LIMIT_BYTES)

    assert accepted == 0
    assert refusals[0]["code"] == "store_unavailable"
    assert room.depth("bob") == room.depth("carol") == 0
    await is_accepted_again(alice)


async def test_what_nobody_fetches_frees_the_store_when_its_time_is_over(room: Room) -> None:
    alice = await room.agent("alice")

    await fill(alice, ttl_s=2)

    await is_accepted_again(alice)
    await until(lambda: int(room.redis.info("memory")["used_memory"]) < LIMIT_BYTES / 2)
