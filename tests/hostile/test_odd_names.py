"""Names and numbers at the edge of what is allowed: whoever chooses them breaks nothing for others.

Tried: consumers with a newline at the end, with backslashes, with what looks like an escape; replies written over
several lines; records in the store that no version of the relay writes.
"""

import pytest

from tests.callers import admin, caller
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


@pytest.mark.parametrize("name", ["w1\n", "\n", "w 1", "w\t1", "ä", "", "w" * 65])
async def test_a_consumer_whose_name_could_break_a_line_is_refused(room: Room, name: str) -> None:
    answer = await caller(room, "bob").post("/v1/agents/bob/lease", {"consumer": name})

    assert answer.said == (400, "malformed")


@pytest.mark.parametrize("name", ["\\", "a\\tb", "\\n", "\\" * 64, "http.", "~ready", "1.2.3-4"])
async def test_a_consumer_with_an_odd_name_settles_and_is_shown_as_it_is(room: Room, name: str) -> None:
    alice, bob, root = caller(room, "alice"), caller(room, "bob"), admin(room)
    await alice.send("bob", "m-1", max_attempts=2)
    first = await bob.lease_one(consumer=name)
    touched = await bob.settle("touch", first)
    held = (await root.get("/v1/agents/bob/messages"))["messages"]
    await bob.settle("nack", first, delay_s=0)
    await bob.settle("nack", await bob.lease_one(consumer=name), delay_s=0)

    (dead,) = (await root.get("/v1/agents/bob/dead"))["messages"]
    events = (await root.get("/v1/activity", message="m-1"))["events"]

    assert touched.status == 200
    assert held[0]["holder"].startswith(f"http.{name}.")
    assert [one["holder"].rpartition(".")[0] for one in dead["history"]] == [f"http.{name}"] * 2
    assert {one["who"].rpartition(".")[0] for one in events if one["kind"] == "nacked"} == {f"http.{name}"}


async def test_a_reply_of_several_lines_is_one_event_of_a_stream(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.ask("bob", "q-1")
    held = await bob.lease_one()
    path = f"/v1/agents/bob/entries/{held['entry']}/reply"
    for payload, more in (('{"a":\n\n1,\r\n"b":\r2}', "true"), ('[\n\n"event: end"\n]', "false")):
        body = f'{{"lock_token":"{held["lock_token"]}","payload":{payload},"more":{more}}}'
        assert (await bob.call("POST", path, body.encode())).status == 200

    async with alice.follow("/v1/tasks/q-1") as events:
        part, end = [event async for event in events]

    assert (part.kind, part.data) == ("part", {"a": 1, "b": 2})
    assert (end.kind, end.data["reply"]) == ("end", ["event: end"])


async def test_a_record_that_cannot_be_read_hides_no_other(room: Room) -> None:
    alice, bob, root = caller(room, "alice"), caller(room, "bob"), admin(room)
    await alice.send("bob", "m-1", max_attempts=1)
    await bob.settle("nack", await bob.lease_one(), reason="no")
    address = room.address("bob")
    shard = room.keys.shard(address)
    room.redis.hset(room.keys.seen(shard), address, "4.5035996273705e+15\tnever")
    unreadable = f"nacked\tnot\t{room.tenant}\tbob\tan event\nat all"  # the store cannot tell, and hands it out
    room.redis.execute_command("XADD", room.keys.events(shard), "*", "e1", f"5\ti1\n{unreadable}")
    ((_, letter),) = room.redis.xrange(room.keys.dead(address))
    history = "1\t2\tw1\n.ab\tbroken\nalso\n" + letter["history"]
    room.redis.xadd(room.keys.dead(address), letter | {"history": history})

    listed = await root.get("/v1/agents")
    dead = await root.get("/v1/agents/bob/dead")
    latest = await root.get("/v1/activity", agent="bob")
    stats = await root.get("/v1/stats")

    assert [answer.status for answer in (listed, dead, latest, stats)] == [200] * 4
    assert len(dead["messages"]) == 2
    assert dead["messages"][1]["history"][-1]["reason"] == "no"
    assert "accepted" in {one["kind"] for one in latest["events"]}
    assert room.a.events("event_unreadable")
