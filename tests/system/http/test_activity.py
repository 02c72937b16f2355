"""What happened and what happens: activity, stats, anomalies, and the stream of events."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.callers import Event, caller, operator
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def test_one_messages_life_is_told_newest_first(room: Room) -> None:
    alice, bob, eve = caller(room, "alice"), caller(room, "bob", at=room.b), caller(room, "eve", "inspect")
    await alice.send("bob", "m-1", type="job")
    await alice.send("bob", "m-2")
    delivery = await bob.lease_one(consumer="w1")
    await bob.settle("nack", delivery, delay_s=0, reason="no")
    await bob.settle("ack", await bob.lease_one())

    life = (await eve.get("/v1/activity", message="m-1"))["events"]
    acked = (await eve.get("/v1/activity", kind="acked", agent="bob"))["events"]
    of_alice = (await eve.get("/v1/activity", agent=room.address("alice"), limit=2))["events"]

    assert [one["kind"] for one in life] == ["acked", "taken", "nacked", "taken", "accepted"]
    assert {one["to"] for one in life} == {room.address("bob")}
    assert life[2]["reason"] == "no"
    assert life[0]["who"].startswith("http.")
    assert [one["id"] for one in acked] == ["m-1"]
    assert len(of_alice) == 2
    assert (await eve.get("/v1/activity", since_ms=life[0]["at_ms"] + 1, message="m-1"))["events"] == []


async def test_a_message_that_is_held_says_who_has_it(room: Room) -> None:
    alice, bob, eve = caller(room, "alice"), caller(room, "bob"), caller(room, "eve", "inspect")
    await alice.send("bob", "m-1", type="job", thread="t-1")
    waiting = (await eve.get("/v1/activity", message="m-1"))["events"]
    await bob.lease_one(consumer="w1")

    held = (await eve.get("/v1/activity", message="m-1"))["events"]

    assert [one["kind"] for one in waiting] == ["accepted"]
    assert [one["kind"] for one in held] == ["taken", "accepted"]
    assert held[0]["who"].startswith("http.w1.")
    assert held[0]["at_ms"] >= held[1]["at_ms"]


async def test_every_event_of_a_life_tells_what_the_message_is(room: Room) -> None:
    alice, bob, eve = caller(room, "alice"), caller(room, "bob"), caller(room, "eve", "inspect")
    await alice.send("bob", "m-1", "four", type="job", thread="t-1", priority=3)
    await bob.settle("ack", await bob.lease_one())

    life = (await eve.get("/v1/activity", message="m-1"))["events"]

    assert [one["kind"] for one in life] == ["acked", "taken", "accepted"]
    names = ("id", "type", "thread", "priority", "bytes", "seq", "instance")
    assert [[name for name in names if name not in one] for one in life] == [[], [], []]
    assert {(one["type"], one["thread"], one["priority"], one["bytes"], one["seq"]) for one in life} == {
        ("job", "t-1", 3, 6, 1)
    }


@pytest.mark.parametrize(("name", "value"), [("kind", "x"), ("limit", "0"), ("since_ms", "-1"), ("agent", "a b")])
async def test_a_question_out_of_range_is_malformed(room: Room, name: str, value: str) -> None:
    answer = await caller(room, "eve", "inspect").get("/v1/activity", **{name: value})

    assert answer.said == (400, "malformed")


async def test_activity_is_of_ones_own_tenant(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")
    other = caller(room, "other/eve", "inspect")

    assert (await other.get("/v1/activity", message="m-1"))["events"] == []
    assert (await other.get("/v1/activity", tenant=room.tenant)).said == (403, "forbidden")
    assert (await other.get("/v1/activity", agent=room.address("bob"))).said == (403, "forbidden")
    (event,) = (await operator(room).get("/v1/activity", tenant=room.tenant))["events"]
    assert event["id"] == "m-1"


@pytest.mark.parametrize("between", ["~", "/"])
async def test_an_operator_asks_for_an_agent_of_any_tenant(room: Room, between: str) -> None:
    bob = f"{room.tenant}{between}bob"
    await caller(room, "alice").send("bob", "m-1")

    seen = await operator(room).get("/v1/activity", agent=bob)
    both = await operator(room).get("/v1/activity", agent=bob, tenant="other")
    refused = await caller(room, "other/eve", "inspect admin").get("/v1/activity", agent=bob)

    assert [(one["id"], one["kind"]) for one in seen["events"]] == [("m-1", "accepted")]
    assert both.said == refused.said == (403, "forbidden")


async def test_stats_count_what_the_tenant_has(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1", "four")
    await alice.send("carol", "m-1", "four")
    await alice.send("bob", "m-2")
    (_, bad) = await bob.lease(max=2)
    await bob.settle("nack", bad, retry=False)
    await room.agent("dora")

    stats = (await caller(room, "eve", "metrics").get("/v1/stats", history_s=0)).body

    assert stats.pop("instance").keys() == {
        *("instance", "sessions", "accepted", "taken", "acked", "refused", "store_messages")
    }
    assert stats.pop("oldest_ms") > 0
    assert stats.pop("at_ms") > 0
    assert stats.pop("history") == []
    assert isinstance(stats.pop("busiest"), list)
    assert stats == {"tenant": room.tenant, "agents": 3, "online": 1, "messages": 2, "bytes": 12, "dead": 1}


async def test_only_an_operator_sees_what_all_tenants_do(room: Room) -> None:
    eve, root = caller(room, "eve", "inspect admin"), operator(room)

    async with root.follow("/v1/events") as events:
        counters = await anext(events)

    assert "instance" not in (await eve.get("/v1/stats")).body
    assert "instance" in (await root.get("/v1/stats")).body
    assert counters.data.keys() >= {"instance", "sessions", "accepted", "store_messages"}


async def test_an_id_is_shown_as_it_was_sent(room: Room) -> None:
    await caller(room, "alice").send("bob", "a\\tb", type="x\ty")

    (event,) = (await caller(room, "eve", "inspect").get("/v1/activity", kind="accepted"))["events"]

    assert (event["id"], event["type"]) == ("a\\tb", "x\ty")


async def test_events_are_followed_live_through_any_instance_and_gone_on_with(room: Room) -> None:
    alice, bob, eve = caller(room, "alice"), caller(room, "bob"), caller(room, "eve", "inspect", at=room.b)
    seen: list[Event] = []

    async with eve.follow("/v1/events") as events:
        counters = await anext(events)
        await alice.send("bob", "m-1")
        seen.append(await anext(events))
    for n in range(2, 5):
        await alice.send("bob", f"m-{n}")
    await bob.settle("ack", await bob.lease_one())
    async with eve.follow("/v1/events", last=seen[-1].id) as events:
        while len(seen) < 6:
            event = await anext(events)
            if event.kind != "counters":
                seen.append(event)
    async with eve.follow("/v1/events", last=seen[2].id) as events:
        again = [event async for event in _some(events, 3)]

    assert (counters.kind, counters.id) == ("counters", "")
    assert counters.data == {"accepted": 0, "taken": 0, "acked": 0, "refused": 0, "expired": 0, "dead": 0}
    assert [(one.kind, one.data["id"]) for one in seen] == [
        *(("accepted", f"m-{n}") for n in range(1, 5)),
        *(("taken", "m-1"), ("acked", "m-1")),
    ]
    assert again == seen[3:]


async def _some(events, count):  # type: ignore[no-untyped-def]
    async for event in events:
        if event.kind == "counters":
            continue
        yield event
        count -= 1
        if not count:
            return


async def test_a_follower_sees_its_own_tenant_only(room: Room) -> None:
    eve, mallory = caller(room, "eve", "inspect"), caller(room, "other/mallory", "inspect")
    await caller(room, "alice").send("bob", "m-1")
    start = f"{(await eve.get('/v1/activity'))['events'][0]['at_ms'] - 1_000}-0"

    async with eve.follow("/v1/events", last=start) as events:
        (own,) = [event async for event in _some(events, 1)]
    async with mallory.follow("/v1/events", last=start) as events:
        await caller(room, "other/alice").send("bob", f"m-{room.tenant}")
        others = [event.data["to"] async for event in _some(events, 1)]

    assert own.data["to"] == room.address("bob")
    assert {one.partition("/")[0] for one in others} == {"other"}
    refused = await mallory.call("GET", "/v1/events", tenant=room.tenant)
    assert refused.said == (403, "forbidden")


async def test_a_draining_instance_ends_its_streams(room: Room) -> None:
    third = room.relay.instance()
    eve, alice = caller(room, "eve", "inspect", at=third), caller(room, "alice", at=third)
    await alice.ask("bob", "ask")

    async with eve.follow("/v1/events") as events, alice.follow("/v1/tasks/ask") as task:
        await anext(events)
        third._process.terminate()
        rest = {event.kind async for event in events}
        parts = [event async for event in task]

    assert rest <= {"accepted", "counters", "end"}
    assert parts == []
    assert await asyncio.to_thread(third.wait) == 0
    assert third.complaints() == []


# -- filters


async def test_activity_is_found_by_several_kinds_by_session_and_before_a_time(room: Room) -> None:
    alice, bob, eve = caller(room, "alice"), caller(room, "bob"), caller(room, "eve", "inspect")
    await alice.send("bob", "m-1")
    await alice.send("bob", "m-2")
    first, second = await bob.lease(max=2, consumer="w1")
    await bob.settle("nack", first, reason="no")
    await bob.settle("ack", second)

    failed = (await eve.get("/v1/activity", kind="nacked,dead,expired"))["events"]
    done = (await eve.get("/v1/activity", kind="acked,nacked"))["events"]
    by_session = (await eve.get("/v1/activity", session=failed[0]["who"], kind="acked,nacked"))["events"]
    before = (await eve.get("/v1/activity", kind="acked,nacked", until_ms=done[0]["at_ms"]))["events"]

    assert [one["id"] for one in failed] == ["m-1"]
    assert [one["kind"] for one in done] == ["acked", "nacked"]
    assert by_session == done
    assert before == [one for one in done if one["at_ms"] < done[0]["at_ms"]]
    wrong = await eve.get("/v1/activity", kind="acked,nackd")
    assert wrong.said == (400, "malformed")
    assert "did you mean 'nacked'" in wrong["error"]["message"]


async def test_a_live_stream_is_filtered_by_kind_agent_session_and_message(room: Room) -> None:
    alice, bob, eve = caller(room, "alice"), caller(room, "bob"), caller(room, "eve", "inspect", at=room.b)
    start = f"{int((await eve.get('/v1/stats'))['at_ms']) - 1_000}-0"
    await alice.send("bob", "m-1")
    await alice.send("carol", "m-2")
    delivery = await bob.lease_one()
    await bob.settle("ack", delivery)

    async def seen(count: int, **wanted: str) -> list[tuple[str, str]]:
        async with eve.follow("/v1/events", last=start, **wanted) as events:
            return [(event.kind, event.data["id"]) async for event in _some(events, count)]

    assert await seen(1, kind="acked,dead") == [("acked", "m-1")]
    assert await seen(1, agent="carol") == [("accepted", "m-2")]
    assert await seen(3, message="m-1") == [("accepted", "m-1"), ("taken", "m-1"), ("acked", "m-1")]
    who = (await eve.get("/v1/activity", kind="acked"))["events"][0]["who"]
    assert await seen(2, session=who) == [("taken", "m-1"), ("acked", "m-1")]


async def test_a_log_that_no_longer_reaches_back_says_so(room: Room) -> None:
    alice, eve = caller(room, "alice"), caller(room, "eve", "inspect", at=room.relay.instance())
    await alice.send("bob", "m-1")
    await alice.send("bob", "m-2")
    room.redis.xtrim(room.keys.events(room.keys.shard(room.address("bob"))), maxlen=1, approximate=False)

    lost = (await eve.get("/v1/activity", message="m-1")).body
    kept = (await eve.get("/v1/activity", message="m-2")).body
    later = (await eve.get("/v1/activity", message="m-1", since_ms=lost["reaches_back_to_ms"])).body
    async with eve.follow("/v1/events", last="1-0") as events:
        told = [await anext(events), await anext(events)]

    assert (lost["events"], lost["complete"]) == ([], True)
    assert "the log goes back to" in lost["note"]
    assert ("note" in kept, "note" in later) == (False, False)
    (gap,) = [event for event in told if event.kind == "gap"]
    assert (gap.data["from_ms"], gap.data["to_ms"]) == (1, lost["reaches_back_to_ms"])


async def test_twenty_followers_are_all_told(room: Room) -> None:
    eve = caller(room, "eve", "inspect", at=room.b)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(eve.follow("/v1/events")) for _ in range(20)]
        for events in streams:
            await anext(events)
        await caller(room, "alice").send("bob", "m-1")

        for events in streams:
            assert [event.data["id"] async for event in _some(events, 1)] == ["m-1"]
