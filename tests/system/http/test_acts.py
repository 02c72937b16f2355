"""Acts: choose, see what would be done, then do it; every act is logged with who did it."""

from typing import Any

import pytest

from tests.callers import Caller, admin, caller
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def bury(room: Room, id: str, reason: str, sender: str = "alice", **fields: Any) -> None:
    bob = caller(room, "bob")
    await caller(room, sender).send("bob", id, **fields)
    (delivery,) = [one for one in await bob.lease(max=100) if one["id"] == id]
    await bob.settle("nack", delivery, retry=False, reason=reason)


async def act(who: Caller, what: str, **body: Any) -> Any:
    answer = await who.post("/v1/agents/bob/act", {"act": what, **body})
    assert answer.status == 200, answer
    return answer.body


async def dead_ids(room: Room) -> list[str]:
    return [one["id"] for one in (await admin(room).get("/v1/agents/bob/dead"))["messages"]]


async def who_did(room: Room, kind: str) -> dict[str, str]:
    events = (await admin(room).get("/v1/activity", kind=kind))["events"]
    return {one["id"]: one.get("who", "") for one in events}


async def three_letters(room: Room) -> Caller:
    await bury(room, "m-1", "cannot parse", type="job")
    await bury(room, "m-2", "too late", type="job")
    await bury(room, "m-3", "cannot parse", sender="carol")
    return admin(room)


async def test_a_dry_run_changes_nothing_and_says_what_would_be_done(room: Room) -> None:
    root = await three_letters(room)

    seen = await act(root, "revive", where={"reason": "parse"})

    assert (seen["dry_run"], seen["matched"], seen["done"]) == (True, 2, 0)
    assert [(one["id"], one["outcome"]) for one in seen["messages"]] == [
        *(("m-1", "would_be_done"), ("m-3", "would_be_done")),
    ]
    assert await dead_ids(room) == ["m-1", "m-2", "m-3"]


async def test_what_is_chosen_is_revived_and_dropped(room: Room) -> None:
    root = await three_letters(room)

    revived = await act(root, "revive", where={"type": "job", "reason": "parse"}, dry_run=False)
    dropped = await act(root, "drop", where={"from": "carol"}, dry_run=False)

    assert [(one["id"], one["outcome"]) for one in revived["messages"]] == [("m-1", "done")]
    assert revived["messages"][0]["new_entry"]
    assert [(one["id"], one["outcome"], dropped["done"]) for one in dropped["messages"]] == [("m-3", "done", 1)]
    assert await dead_ids(room) == ["m-2"]
    assert await who_did(room, "revived") == {"m-1": room.address("root")}
    assert await who_did(room, "dropped") == {"m-3": room.address("root")}


async def test_what_waits_is_cancelled_and_what_is_held_is_not(room: Room) -> None:
    alice, root = caller(room, "alice"), admin(room)
    await alice.send("bob", "held", type="job")
    await caller(room, "bob").lease_one()
    for id, kind in (("m-1", "job"), ("m-2", "report"), ("m-3", "job")):
        await alice.send("bob", id, type=kind, delay_s=60 if id == "m-3" else 0)

    seen = await act(root, "cancel", where={"type": "job"})
    done = await act(root, "cancel", where={"type": "job"}, dry_run=False)

    assert [(one["id"], one["outcome"]) for one in seen["messages"]] == [
        *(("held", "busy"), ("m-1", "would_be_done"), ("m-3", "would_be_done")),
    ]
    assert [(one["id"], one["outcome"]) for one in done["messages"]] == [
        *(("held", "busy"), ("m-1", "done"), ("m-3", "done")),
    ]
    assert await alice.where("bob", "m-2") == "queued"
    assert await who_did(room, "cancelled") == dict.fromkeys(("m-1", "m-3"), room.address("root"))


async def test_an_edited_copy_is_sent_once_and_the_letter_stays(room: Room) -> None:
    await bury(room, "m-1", "cannot parse", payload={"n": 1}, type="job", headers={"k": "v"})
    root, edit = admin(room), {"payload": {"n": 2}, "max_attempts": 3}

    sent = await act(root, "resend", edit=edit, dry_run=False)
    again = await act(root, "resend", edit=edit, dry_run=False)
    copy = await caller(room, "bob").lease_one()

    (one,) = sent["messages"]
    assert (one["outcome"], again["messages"][0]["outcome"]) == ("done", "duplicate")
    assert (copy["id"], copy["payload"], copy["type"]) == (one["new_id"], {"n": 2}, "job")
    assert copy["from"] == room.address("root")
    assert copy["headers"] == {"k": "v", "copy-of": f"{room.address('alice')} m-1"}
    assert await dead_ids(room) == ["m-1"]


async def test_a_long_box_is_gone_through_page_by_page(room: Room) -> None:
    root = await three_letters(room)

    first = await act(root, "drop", limit=2, dry_run=False)
    second = await act(root, "drop", limit=2, dry_run=False, cursor=first["cursor"])

    assert (first["done"], second["done"]) == (2, 1)
    assert "cursor" not in second
    assert await dead_ids(room) == []


async def test_an_agent_acts_on_its_own_dead_letters_only(room: Room) -> None:
    await bury(room, "m-1", "no")
    bob, eve = caller(room, "bob"), caller(room, "eve", "inspect metrics")

    async def said(who: Caller, what: str, **body: Any) -> Any:
        return (await who.post("/v1/agents/bob/act", {"act": what, **body})).said

    assert (await act(bob, "revive"))["matched"] == 1
    assert await said(bob, "cancel") == await said(bob, "resend") == (403, "forbidden")
    assert await said(caller(room, "mallory"), "revive") == await said(eve, "revive") == (403, "forbidden")
    assert await said(admin(room), "cancel", where={"reason": "no"}) == (400, "malformed")
    assert await said(admin(room), "revive", edit={"type": "x"}) == (400, "malformed")
    assert await said(admin(room), "revive", where={"typ": "x"}) == (400, "malformed")


async def test_a_rate_of_its_own_limits_one_sender(room: Room) -> None:
    root, alice, carol = admin(room), caller(room, "alice"), caller(room, "carol")
    limited = await root.put("/v1/agents/alice", {"rate_per_s": 1, "rate_burst": 5})

    async def send(who: Caller) -> int:
        return (await who.post("/v1/agents/bob/messages", {"payload": 1})).status

    statuses = [await send(alice) for _ in range(10)]
    others = [await send(carol) for _ in range(10)]
    lifted = await root.put("/v1/agents/alice", {"rate_per_s": None, "rate_burst": None})

    assert (limited["rate_per_s"], limited["rate_burst"]) == (1, 5)
    assert 202 in statuses
    assert 429 in statuses
    assert set(others) == {202}
    assert "rate_per_s" not in lifted.body
    assert await send(alice) == 202
    events = (await root.get("/v1/activity", kind="changed"))["events"]
    assert [(one["who"], one["reason"]) for one in events] == [
        (room.address("root"), "rate is now that of all"),
        (room.address("root"), "rate 1, 5"),
    ]
    assert (await alice.put("/v1/agents/alice", {"rate_per_s": 9})).said == (403, "forbidden")
