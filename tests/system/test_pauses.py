"""Pauses: senders are accepted, nothing is taken, everybody can see it, and it goes on where it stopped."""

import pytest

from tests.agents import Agent
from tests.callers import admin, caller, operator, soon
from tests.system.conftest import Room

SETTINGS = {"recheck_s": 0.2}


async def has_mail(agent: Agent, *ids: str) -> bool:
    return [one["id"] for one in await agent.deliveries(len(ids))] == list(ids)


@pytest.mark.parametrize("whose", ["agents/bob", "tenants/{tenant}"])
async def test_mail_waits_while_delivery_is_paused(room: Room, whose: str) -> None:
    alice, root = caller(room, "alice"), admin(room)
    path = f"/v1/{whose.format(tenant=room.tenant)}/pause"
    bob = await room.agent("bob", at=room.b)
    await alice.send("bob", "m-1")
    (held,) = await bob.deliveries(1)

    paused = await root.put(path, {"reason": "moving house"})
    await alice.send("bob", "m-2")
    agent = (await root.get("/v1/agents/bob")).body
    where = (await alice.get("/v1/agents/bob/messages/m-2")).body
    await bob.settle("ack", held)
    await soon(lambda: alice.where("bob", "m-1"), "acked")
    waits = await alice.where("bob", "m-2")
    resumed = await root.delete(path)

    assert paused["paused"]["by"] == room.address("root")
    assert (agent["paused"]["reason"], agent["why"], where["why"]) == ("moving house", "paused", "paused")
    assert waits == "queued"
    assert resumed["paused"] is None
    assert await has_mail(bob, "m-2")


async def test_who_comes_or_pulls_while_it_is_paused_gets_nothing(room: Room) -> None:
    alice, root = caller(room, "alice"), admin(room)
    await alice.send("bob", "m-1")
    await alice.send("carol", "m-1")
    await root.put(f"/v1/tenants/{room.tenant}/pause")

    leased = await caller(room, "carol").lease()
    bob = await room.agent("bob")
    await root.delete(f"/v1/tenants/{room.tenant}/pause")

    assert leased == []
    assert await has_mail(bob, "m-1")
    assert len(await caller(room, "carol").lease()) == 1


async def test_a_waiting_call_gets_its_mail_when_delivery_goes_on(room: Room) -> None:
    alice, bob, root = caller(room, "alice"), caller(room, "bob"), admin(room)
    await root.put("/v1/agents/bob/pause")
    await alice.send("bob", "m-1")
    assert await bob.lease(wait_s=0.1) == []

    await root.delete("/v1/agents/bob/pause")

    assert [one["id"] for one in await bob.lease(wait_s=10)] == ["m-1"]


async def test_a_pause_that_no_wake_told_of_is_found(room: Room) -> None:
    address = room.address("bob")
    bob = await room.agent("bob")
    shard = room.keys.shard(address)
    room.redis.hset(room.keys.paused(shard), address, "acme/root\t1\t")
    alice = caller(room, "alice")
    n = 0

    async def is_paused() -> bool:
        nonlocal n
        n += 1
        await alice.send("bob", f"m-{n}")
        return (await alice.get(f"/v1/agents/bob/messages/m-{n}")).body["state"] == "queued"

    await soon(is_paused, True)
    room.redis.hdel(room.keys.paused(shard), address)
    assert await has_mail(bob, *(f"m-{k}" for k in range(1, n + 1)))


async def test_pauses_are_listed_and_logged_with_who_did_it(room: Room) -> None:
    root, eve = admin(room), caller(room, "eve", "inspect")
    await root.put("/v1/agents/bob/pause", {"reason": "no"})
    await root.put(f"/v1/tenants/{room.tenant}/pause")

    listed = (await eve.get("/v1/pauses")).body
    events = (await eve.get("/v1/activity", kind="paused,resumed"))["events"]

    assert listed["tenant"]["scope"] == "tenant"
    (agent,) = listed["agents"]
    assert (agent["agent"], agent["by"], agent["reason"]) == (room.address("bob"), room.address("root"), "no")
    assert {(one["kind"], one["who"]) for one in events} == {("paused", room.address("root"))}
    assert (await eve.get("/v1/stats"))["paused"]["by"] == room.address("root")
    other = (await operator(room).get("/v1/pauses")).body
    assert (other["tenant"], other["agents"]) == (None, [])


async def test_only_an_admin_of_the_tenant_pauses(room: Room) -> None:
    for scope in ("send receive", "inspect metrics"):
        mallory = caller(room, "bob", scope)
        assert (await mallory.put("/v1/agents/bob/pause")).said == (403, "forbidden")
        assert (await mallory.delete(f"/v1/tenants/{room.tenant}/pause")).said == (403, "forbidden")
    assert (await admin(room).put("/v1/tenants/other/pause")).said == (403, "forbidden")
    assert (await operator(room).put(f"/v1/tenants/{room.tenant}/pause")).status == 200
    assert (await operator(room).delete(f"/v1/tenants/{room.tenant}/pause")).status == 200
