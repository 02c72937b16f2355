"""Stats: what a tenant has and does, now and before."""

from typing import Any

from tests.callers import admin, caller, operator, soon
from tests.system.conftest import Room

SETTINGS = {"snapshot_every_s": 0.2, "heartbeat_s": 5}


async def told(room: Room, kind: str) -> int:
    """How many events of this kind the snapshots of the tenant count."""
    history = (await admin(room).get("/v1/stats"))["history"]
    return sum(snapshot["counts"].get(kind, 0) for snapshot in history)


async def test_history_counts_every_event_once_and_replies_are_acked(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    await alice.send("bob", "m-1")
    await alice.ask("bob", "m-2")
    first, second = await bob.lease(max=2)
    await bob.settle("ack", first)
    await bob.settle("reply", second, payload="4")

    await soon(lambda: told(room, "acked"), 2)

    history = (await admin(room).get("/v1/stats"))["history"]
    assert [await told(room, kind) for kind in ("accepted", "taken", "replied")] == [2, 2, 1]
    assert history == sorted(history, key=lambda snapshot: snapshot["at_ms"])
    (latest, *_) = [snapshot for snapshot in reversed(history) if snapshot["counts"].get("acked")]
    assert latest["acked_per_s"] > 0
    assert latest["acked_ms"].keys() == {"p50", "p95", "p99"}


async def test_the_busiest_agents_are_named(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")

    async def depths() -> dict[str, int]:
        busiest = (await admin(room).get("/v1/stats"))["busiest"]
        return {one["agent"]: one["depth"] for one in busiest}

    await soon(depths, {room.address("alice"): 0, room.address("bob"): 1})


async def test_an_operator_sees_all_tenants_together(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")
    root = operator(room)

    async def whole() -> Any:
        return (await root.get("/v1/stats", tenant="*")).body

    shard = room.keys.shard(room.address("bob"))

    async def is_told() -> bool:
        stats = await whole()  # of one round, which does not look at everything at once
        return stats["messages"] >= 1 and shard in [one["shard"] for one in stats["shards"]]

    await soon(is_told, True)
    stats = await whole()
    assert stats["tenant"] == "*"
    assert stats["agents"] >= 1
    assert "instance" in stats
    assert (await admin(room).get("/v1/stats", tenant="*")).said == (403, "forbidden")


async def test_a_tenants_history_is_its_own(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")
    await soon(lambda: told(room, "accepted"), 1)

    other = await caller(room, f"{room.tenant}-b/eve", "inspect").get("/v1/stats")

    assert (other["history"], other["busiest"], other["messages"]) == ([], [], 0)


async def test_no_history_is_told_if_none_is_wanted(room: Room) -> None:
    assert (await admin(room).get("/v1/stats", history_s=0))["history"] == []
    assert (await admin(room).get("/v1/stats", history_s=-1)).said == (400, "malformed")


# -- anomalies


async def test_anomalies_are_raised_told_and_chosen(room: Room) -> None:
    alice, bob, root = caller(room, "alice"), caller(room, "bob"), admin(room)
    await root.put("/v1/agents/bob", {"max_messages": 5})
    for _ in range(5):
        await alice.send("bob", payload=1)
    await bob.settle("nack", await bob.lease_one(), retry=False, reason="cannot parse")

    async def kinds(**wanted: Any) -> set[str]:
        return {one["kind"] for one in (await root.get("/v1/anomalies", **wanted))["anomalies"]}

    await soon(kinds, {"mailbox_nearly_full", "dead_lettered"})
    found = (await root.get("/v1/anomalies", kind="dead_lettered", active="true"))["anomalies"]
    assert [(one["agent"], one["severity"], one["evidence"]) for one in found] == [
        (room.address("bob"), "warning", {"dead": 1, "reason": "cannot parse"})
    ]
    assert await kinds(agent="alice") == await kinds(severity="critical") == await kinds(active="false") == set()
    assert (await root.get("/v1/anomalies", kind="mailbox_ful")).said == (400, "malformed")
    first = await root.get("/v1/anomalies", limit=1)
    second = await root.get("/v1/anomalies", limit=1, cursor=first["cursor"])
    assert {first["anomalies"][0]["kind"], second["anomalies"][0]["kind"]} == await kinds()
    assert "cursor" not in second.body


async def test_anomalies_are_of_ones_own_tenant(room: Room) -> None:
    eve = caller(room, "eve", "inspect")

    assert (await eve.get("/v1/anomalies", tenant="*")).said == (403, "forbidden")
    assert (await eve.get("/v1/anomalies", tenant="other")).said == (403, "forbidden")
    broken = (await operator(room).get("/v1/anomalies", tenant="*", kind="wake_path_broken"))["anomalies"]
    assert broken == []
