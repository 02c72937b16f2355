"""Records that cannot be read, in a mailbox and a dead-letter box of a running relay: every way in and out goes on."""

from typing import Any

import pytest

from tests.agents import message, until
from tests.callers import Caller, caller
from tests.records import letters, unreadable, without_content, without_form
from tests.system.conftest import Room

SETTINGS: dict[str, Any] = {"shards": 2, "rate_per_s": 0}
LANES = (0, 5)


def put_all(room: Room, name: str) -> int:
    """Every kind into every lane of a mailbox."""
    address, count = room.address(name), 0
    for lane in LANES:
        for record in unreadable(address, lane).values():
            room.redis.execute_command("XADD", room.keys.box(address, lane), "*", *record)
            count += 1
    return count


async def fill(room: Room, name: str = "bob") -> int:
    """Mail of two lanes, and in between whatever nobody can read."""
    alice = await room.agent("alice")
    await alice.sent(*(message(f"before-{lane}", to=name, priority=lane) for lane in LANES))
    count = put_all(room, name)
    await alice.sent(*(message(f"behind-{lane}", to=name, priority=lane) for lane in LANES))
    return count


IN_ORDER = [f"{where}-{lane}" for lane in sorted(LANES, reverse=True) for where in ("before", "behind")]


async def letters_of(bob: Caller, count: int, **query: Any) -> list[dict[str, Any]]:
    """The dead letters, once there are so many."""
    found: list[dict[str, Any]] = []
    address = f"/v1/agents/{bob.name}/dead"
    while len(found) < count:
        answer = await bob.get(address, limit=1_000, **query)
        assert answer.status == 200, answer
        found = answer["messages"]
    return found


async def test_a_session_gets_the_rest_and_its_drained(room: Room) -> None:
    count = await fill(room)

    bob = await room.agent("bob")
    deliveries = await bob.deliveries(len(IN_ORDER))
    drained = await bob.expect("drained")
    await bob.ack(*deliveries)
    found = await letters_of(caller(room, "bob"), count)

    assert [one["id"] for one in deliveries] == IN_ORDER
    assert drained["delivered"] == len(IN_ORDER)
    assert {one["reason"] for one in found} == {"unreadable"}
    await until(lambda: room.depth("bob") == 0)


async def test_a_session_that_is_pushed_to_goes_on(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob")
    await alice.sent(message("first"))
    await bob.ack(await bob.delivery())
    put_all(room, "bob")

    await alice.sent(message("second"), message("third", priority=5))

    assert {one["id"] for one in await bob.deliveries(2)} == {"second", "third"}


@pytest.mark.parametrize("wait_s", [0, 5])
async def test_leases_get_the_rest(room: Room, wait_s: float) -> None:
    await fill(room)
    bob = caller(room, "bob")

    given = [(await bob.lease_one(wait_s=wait_s))["id"] for _ in IN_ORDER]

    assert given == IN_ORDER
    assert await bob.lease() == []


async def test_a_mailbox_is_shown_page_by_page(room: Room) -> None:
    count = await fill(room)
    eve = caller(room, "eve", "send receive inspect")
    found: list[dict[str, Any]] = []
    query: dict[str, str] = {}

    while True:
        page = await eve.get("/v1/agents/bob/messages", limit=20, **query)
        assert page.status == 200, page
        found += page["messages"]
        if "cursor" not in page.body:
            break
        query = {"cursor": page["cursor"]}

    spoilt = [one for one in found if not one["id"]]
    assert len(found) == count + len(IN_ORDER)
    assert len(spoilt) == len(LANES) * len(without_form("acme/bob"))
    assert {(one["state"], one["why"], one["from"]) for one in spoilt} == {("delayed", "its record cannot be read", "")}
    assert [one["id"] for one in found if one["id"] not in ("", "bad")] == IN_ORDER


@pytest.mark.parametrize("path", ["/v1/agents/bob", "/v1/agents", "/v1/stats", "/v1/activity"])
async def test_every_other_look_is_answered(room: Room, path: str) -> None:
    await fill(room)

    answer = await caller(room, "eve", "send receive inspect").get(path)

    assert answer.status == 200


async def test_what_is_dead_is_listed_revived_and_dropped(room: Room) -> None:
    await caller(room, "bob").put("/v1/agents/bob", {})
    address, bob = room.address("bob"), caller(room, "bob", "send receive inspect admin")
    for letter in letters(address):
        room.redis.execute_command("XADD", room.keys.dead(address), "*", *letter)
    found = await letters_of(bob, 1)

    revived = await bob.post("/v1/agents/bob/dead/revive", {"all": True})
    resent = await bob.post("/v1/agents/bob/act", {"act": "resend", "dry_run": False, "limit": 1_000})
    dropped = await bob.post("/v1/agents/bob/act", {"act": "drop", "dry_run": False, "limit": 1_000})

    assert len(found) == len(list(letters(address)))
    assert (revived.status, resent.status, dropped.status) == (200, 200, 200)
    assert {one["code"] for one in revived["refused"]} >= {"unreadable"}
    assert len(revived["revived"]) + len(revived["refused"]) == len(found)
    assert "unreadable" in {one["outcome"] for one in resent["messages"]}
    assert {one["outcome"] for one in dropped["messages"]} == {"done"}
    assert (await bob.get("/v1/agents/bob/dead"))["messages"] == []


async def test_what_waits_is_cancelled_around_it(room: Room) -> None:
    await fill(room)
    admin = caller(room, "root", "send receive inspect admin")

    cancelled = await admin.post("/v1/agents/bob/act", {"act": "cancel", "dry_run": False, "limit": 1_000})

    outcomes = {one["id"]: one["outcome"] for one in cancelled["messages"]}
    assert {outcomes[id] for id in IN_ORDER} == {"done"}
    assert outcomes[""] == "unreadable"


async def test_the_log_and_the_metrics_tell_of_it(room: Room) -> None:
    count = await fill(room)
    bob = await room.agent("bob")
    await bob.deliveries(len(IN_ORDER))
    await letters_of(caller(room, "bob"), count)

    def mine() -> list[dict[str, Any]]:
        told = [line for process in room.relay.processes() for line in process.events("record_unreadable")]
        return [line for line in told if line["mailbox"] == room.address("bob")]

    await until(lambda: len(mine()) >= count)
    assert len({line["entry"] for line in mine()}) == len(mine()) == count
    spoilt = [line for line in room.a.events("record_unreadable") if line["mailbox"] == room.address("bob")]
    assert len(spoilt) == len(LANES) * len(without_content("acme/bob"))
