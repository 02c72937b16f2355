"""Lists for an operator: agents searched and sorted, instances and workers."""

import time
from typing import Any

from tests.agents import WAIT_S, message, messages
from tests.callers import Caller, admin, caller, operator
from tests.system.conftest import Room

SETTINGS = {"snapshot_every_s": 1}


async def all_pages(who: Caller, **query: Any) -> list[str]:
    """The names on all pages, without the tenant."""
    names: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await who.get("/v1/agents", **query, **cursor)).body
        names += [agent["agent"].partition("/")[2] for agent in page["agents"]]
        if "cursor" not in page:
            return names
        cursor = {"cursor": page["cursor"]}


async def some_agents(room: Room, *names: str) -> None:
    alice = await room.agent("alice")
    await alice.sent(*(message(to=name) for name in names))


async def test_agents_sorted_by_name_are_all_there_page_after_page(room: Room) -> None:
    names = [f"worker-{n:02}" for n in range(37)]
    await some_agents(room, *reversed(names))

    for limit in (1, 7, 100):
        assert await all_pages(admin(room), sort="name", limit=limit) == ["alice", *names]


async def test_a_search_finds_a_part_of_a_name_in_capitals_or_not(room: Room) -> None:
    await some_agents(room, "Planner-1", "planner-2", "writer")

    assert await all_pages(admin(room), search="PLAN", sort="name") == ["Planner-1", "planner-2"]
    assert sorted(await all_pages(admin(room), search="plan", limit=1)) == ["Planner-1", "planner-2"]
    assert await all_pages(admin(room), search="er", sort="name", limit=1) == ["Planner-1", "planner-2", "writer"]
    assert await all_pages(admin(room), search=room.tenant) == []  # the tenant is no part of the name


async def test_agents_sorted_by_what_they_have_are_those_of_the_latest_snapshot(room: Room) -> None:
    alice = await room.agent("alice")
    for name, count in (("few", 1), ("many", 5), ("some", 3)):
        await alice.sent(*messages(count, name))

    by_depth = await ranked(room, "depth", 3)

    assert [(agent["agent"], agent["depth"]) for agent in by_depth] == [
        (room.address(name), depth) for name, depth in (("many", 5), ("some", 3), ("few", 1))
    ]
    assert all("accepted_per_s" in agent for agent in by_depth)
    assert await all_pages(admin(room), sort="depth", search="m", limit=1) == ["many"]
    assert await all_pages(admin(room), sort="dead") == []


async def ranked(room: Room, sort: str, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + WAIT_S
    while len(agents := (await admin(room).get("/v1/agents", sort=sort))["agents"]) < count:
        assert time.monotonic() < deadline, agents
    return list(agents)


async def test_a_cursor_of_another_list_is_refused(room: Room) -> None:
    await some_agents(room, "bob")

    for cursor in ("3:other/bob", "other/bob", f"{room.tenant}/", "x"):
        assert (await admin(room).get("/v1/agents", sort="name", cursor=cursor)).said == (400, "malformed")


async def test_instances_and_workers_tell_how_they_are(room: Room) -> None:
    processes = (await operator(room).get("/v1/instances")).body

    (this,) = [one["instance"] for one in processes["instances"] if one["this"]]
    assert this == (await room.a.ready())[1]["instance"]
    assert len([one for one in processes["instances"] if one["alive"]]) >= 2
    by_name = {one["worker"]: one for one in processes["workers"]}
    assert {"sweeper", "overdue", "receipts", "observer"} <= set(by_name)
    assert [one for one in by_name.values() if one["late"] or "error" in one] == []
    assert by_name["observer"]["every_s"] == 1


async def test_a_tenant_does_not_see_what_runs(room: Room) -> None:
    assert (await caller(room, "root", "inspect admin").get("/v1/instances")).said == (403, "forbidden")
    assert (await caller(room, "prometheus", "metrics").get("/v1/instances")).status == 200
