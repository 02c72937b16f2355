"""Agents over HTTP: registration, listing, looking into mailboxes, dead letters, deletion."""

import pytest

from tests.agents import Key
from tests.callers import admin, caller, operator, soon
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def test_an_agent_is_registered_changed_and_shown(room: Room) -> None:
    bob, key = caller(room, "bob"), Key()

    unknown = await bob.get("/v1/agents/bob")
    made = await bob.put("/v1/agents/bob", {"card": {"skills": [], "n": 1.50}, "mode": "shared", "key": key.public})
    changed = await bob.put("/v1/agents/bob", {"mode": None, "next_active_at_ms": 1_900_000_000_000})
    seen = await caller(room, "alice", at=room.b).get("/v1/agents/bob")

    assert unknown.said == (404, "not_found")
    assert made.status == 200
    assert seen.body == changed.body
    assert seen.body == {
        "agent": room.address("bob"),
        "registered": True,
        "online": False,
        "last_seen_ms": None,
        "depth": 0,
        "waiting": 0,
        "held": 0,
        "delayed": 0,
        "sessions": [],
        "bytes": 0,
        "oldest_ms": None,
        "oldest_age_s": None,
        "dead": 0,
        "mode": None,
        "key": key.public,
        "card": {"skills": [], "n": 1.5},
        "next_active_at_ms": 1_900_000_000_000,
        "presence": {"online": False, "last_seen_ms": None, "next_active_at_ms": 1_900_000_000_000},
    }
    assert '"n": 1.5' in seen.text


async def test_presence_depth_and_age_are_what_they_are(room: Room) -> None:
    alice = await room.agent("alice")
    await caller(room, "alice").send("bob", "m-1", "four", priority=3)
    await caller(room, "alice").send("bob", "m-2", "four")

    here, away = await admin(room).get("/v1/agents/alice"), await admin(room, at=room.b).get("/v1/agents/bob")
    await alice.say("presence", agents=["bob", "alice"])
    presence = (await alice.expect("presence"))["agents"]

    assert (here["online"], here["registered"]) == (True, True)
    assert here["last_seen_ms"] > 0
    assert (away["online"], away["registered"], away["depth"], away["bytes"]) == (False, False, 2, 12)
    assert 0 <= away["oldest_age_s"] < 60
    assert presence[room.address("bob")]["online"] is False


async def test_when_a_part_time_agent_is_back_is_told_over_both_doors(room: Room) -> None:
    bob = caller(room, "bob")
    await bob.put("/v1/agents/bob", {"next_active_at_ms": 1_900_000_000_000})
    alice = await room.agent("alice", at=room.b)

    await alice.say("presence", agents=["bob"])
    told = (await alice.expect("presence"))["agents"][room.address("bob")]
    cleared = await bob.put("/v1/agents/bob", {"next_active_at_ms": None})

    assert told == {"online": False, "last_seen_ms": None, "next_active_at_ms": 1_900_000_000_000}
    assert "next_active_at_ms" not in cleared.body


async def test_a_new_key_takes_the_place_of_the_old_one(room: Room) -> None:
    old, new = Key(), Key()
    bob = caller(room, "bob")
    await bob.put("/v1/agents/bob", {"key": old.public})

    await bob.put("/v1/agents/bob", {"key": new.public})
    refused = await room.socket("bob")
    hello = await refused.expect("hello")
    await refused.say("auth", **old.auth(hello, room.address("bob")))
    taken = await room.socket("bob")
    hello = await taken.expect("hello")
    await taken.say("auth", **new.auth(hello, room.address("bob")))

    assert (await refused.error())["code"] == "unauthorized"
    assert (await taken.expect("welcome"))["agent"] == room.address("bob")


@pytest.mark.parametrize(
    "body",
    [
        *(
            {"key": "short"},
            {"key": "AAAA"},
            {"mode": "both"},
            {"card": []},
            {"card": "x"},
            {"card": {"x": "y" * 17_000}},
        ),
        *({"next_active_at_ms": -1}, {"next_active_at_ms": "soon"}, []),
    ],
)
async def test_a_registration_that_is_wrong_changes_nothing(room: Room, body: object) -> None:
    bob = caller(room, "bob")

    assert (await bob.put("/v1/agents/bob", body)).said == (400, "malformed")
    assert (await bob.get("/v1/agents/bob")).status == 404


async def test_one_registers_oneself_only_and_caps_are_an_admins(room: Room) -> None:
    alice = caller(room, "alice")

    other = await alice.put("/v1/agents/bob", {"mode": "shared"})
    caps = await alice.put("/v1/agents/alice", {"max_messages": 5})
    by_admin = await admin(room).put("/v1/agents/bob", {"mode": "shared", "max_messages": 5})

    assert other.said == caps.said == (403, "forbidden")
    assert (by_admin["mode"], by_admin["max_messages"]) == ("shared", 5)


async def test_a_mailbox_with_a_cap_of_its_own_is_full_at_it(room: Room) -> None:
    alice, root = caller(room, "alice"), admin(room, at=room.b)
    await root.put("/v1/agents/bob", {"max_messages": 2})
    await alice.send("bob", "m-1")
    await alice.send("bob", "m-2")

    full = await alice.post("/v1/agents/bob/messages", {"payload": 1})
    both = await root.put("/v1/agents/bob", {"max_bytes": 10_000})
    lifted = await root.put("/v1/agents/bob", {"max_messages": None, "max_bytes": None})
    sent = await alice.send("bob", "m-3")

    assert full.said == (429, "queue_full")
    assert {name: full["error"][name] for name in ("depth", "limit", "retryable")} == {
        "depth": 2,
        "limit": 2,
        "retryable": True,
    }
    assert int(full.headers["Retry-After"]) >= full["error"]["retry_after_ms"] // 1_000
    assert (both["max_messages"], both["max_bytes"]) == (2, 10_000)
    assert "max_messages" not in lifted.body
    assert sent.status == 202


async def test_agents_are_listed_page_by_page_over_all_shards(room: Room) -> None:
    alice = caller(room, "alice")
    names = {f"a{n}" for n in range(30)}
    for name in sorted(names):
        await alice.send(name, payload=1)

    listed, cursor, pages = [], {}, 0
    while pages == 0 or cursor:
        page = (await alice.get("/v1/agents", limit=7, **cursor)).body
        listed += [one["agent"].partition("/")[2] for one in page["agents"]]
        cursor = {"cursor": page["cursor"]} if "cursor" in page else {}
        pages += 1

    assert pages == 5
    assert sorted(listed) == sorted(names)


async def test_a_tenant_sees_itself_only(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")

    other = await caller(room, "other/alice").get("/v1/agents", tenant=room.tenant)
    root = await operator(room).get("/v1/agents", tenant=room.tenant)
    named = await caller(room, "other/alice").get(f"/v1/agents/{room.tenant}~bob")
    by_admin = await operator(room).get(f"/v1/agents/{room.tenant}~bob")

    assert other.said == named.said == (403, "forbidden")
    assert [one["agent"] for one in root["agents"]] == [room.address("bob")]
    assert by_admin["depth"] == 1


@pytest.mark.parametrize("cursor", ["x", "99999:a", "-1:", "1", "٣:"])
async def test_a_cursor_that_the_relay_never_made_is_malformed(room: Room, cursor: str) -> None:
    root = admin(room)

    answers = [await root.get(path, cursor=cursor) for path in ("/v1/agents", "/v1/agents/bob/dead")]

    assert [one.said for one in answers] == [(400, "malformed")] * 2


# -- a look into a mailbox


async def test_a_look_shows_every_message_and_leases_none(room: Room) -> None:
    alice, bob, inspector = caller(room, "alice"), caller(room, "bob"), caller(room, "eve", "inspect", at=room.b)
    await alice.send("bob", "m-1", {"secret": 1}, type="job", thread="t")
    await alice.send("bob", "m-2", priority=9)
    await alice.send("bob", "m-3", delay_s=60, type="job")
    await alice.send("bob", "gone", ttl_s=0.001)
    held = await bob.lease_one()

    async def ids() -> list[str]:
        return [one["id"] for one in (await inspector.get("/v1/agents/bob/messages"))["messages"]]

    await soon(ids, ["m-2", "m-1", "m-3"])  # the clocks of two instances may differ by a moment
    own, whole = await bob.get("/v1/agents/bob/messages"), await inspector.get("/v1/agents/bob/messages")
    jobs = await inspector.get("/v1/agents/bob/messages", type="job")
    states = {
        word: [one["id"] for one in (await inspector.get("/v1/agents/bob/messages", state=word))["messages"]]
        for word in ("queued", "held", "delayed")
    }

    assert [(one["id"], one["state"]) for one in own["messages"]] == [
        ("m-2", "held"),
        ("m-1", "queued"),
        ("m-3", "delayed"),
    ]
    assert not any("payload" in one for one in own["messages"])
    assert [one["payload"] for one in whole["messages"]] == ["hello", {"secret": 1}, "hello"]
    assert [one["id"] for one in jobs["messages"]] == ["m-1", "m-3"]
    assert states == {"queued": ["m-1"], "held": ["m-2"], "delayed": ["m-3"]}
    assert own["messages"][0]["entry"] == held["entry"]
    assert (await caller(room, "carol").get("/v1/agents/bob/messages")).said == (403, "forbidden")


async def test_a_mailbox_that_does_not_exist_is_empty(room: Room) -> None:
    answer = await caller(room, "nobody").get("/v1/agents/nobody/messages")

    assert (answer.status, answer.body) == (200, {"messages": []})


async def test_a_mailbox_is_looked_through_page_by_page(room: Room) -> None:
    bob = caller(room, "bob")
    batch = [{"id": f"m-{n}", "payload": n, "priority": n % 2 * 9} for n in range(25)]
    await caller(room, "alice").post("/v1/agents/bob/messages", {"messages": batch})

    seen, cursor, pages = [], {}, 0
    while pages == 0 or cursor:
        page = (await bob.get("/v1/agents/bob/messages", limit=10, **cursor)).body
        seen += [one["id"] for one in page["messages"]]
        cursor = {"cursor": page["cursor"]} if "cursor" in page else {}
        pages += 1

    assert seen == [f"m-{n}" for n in (*range(1, 25, 2), *range(0, 25, 2))]
    for wrong in ("0:", "11:", "1:x", "1:1-1p3", f"1:{'9' * 20}-1"):
        assert (await bob.get("/v1/agents/bob/messages", cursor=wrong)).said == (400, "malformed")
    for name, value in (("state", "gone"), ("limit", "0"), ("limit", "1001"), ("limit", "1.5")):
        assert (await bob.get("/v1/agents/bob/messages", **{name: value})).said == (400, "malformed")


# -- dead letters


async def test_a_message_that_fails_too_often_is_dead_and_revived_it_begins_again(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    await alice.send("bob", "m-1", {"n": 1}, max_attempts=2, type="job")

    attempts = []
    for n in range(2):
        delivery = await bob.lease_one()
        attempts.append(delivery["attempt"])
        await bob.settle("nack", delivery, delay_s=0, reason=f"failure\t{n}")
    (letter,) = (await bob.get("/v1/agents/bob/dead"))["messages"]
    (shown,) = (await admin(room).get("/v1/agents/bob/dead"))["messages"]
    revived = await bob.post("/v1/agents/bob/dead/revive", {"entries": [letter["entry"], "1-1", "x", "1-1p2"]})
    again = await bob.lease_one()

    assert attempts == [1, 2]
    assert (letter["id"], letter["attempts"], letter["reason"], letter["type"]) == ("m-1", 2, "failure\t1", "job")
    assert [(one["attempt"], one["reason"]) for one in letter["history"]] == [(1, "failure\t0"), (2, "failure\t1")]
    assert ("payload" in letter, shown["payload"]) == (False, {"n": 1})
    assert revived["revived"] == [{"entry": letter["entry"], "new_entry": again["entry"]}]
    assert [one["code"] for one in revived["refused"]] == ["not_found"] * 3
    assert (again["id"], again["attempt"], again["payload"]) == ("m-1", 1, {"n": 1})
    assert (await bob.settle("ack", again)).status == 200
    assert await alice.where("bob", "m-1") == "acked"
    assert room.dead("bob") == []


async def test_all_are_revived_and_wake_who_waits(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    for n in range(3):
        await alice.send("bob", f"m-{n}")
    for delivery in await bob.lease(max=3):
        await bob.settle("nack", delivery, retry=False)
    session = await room.agent("bob", at=room.b)
    await session.drained()

    revived = await bob.post("/v1/agents/bob/dead/revive", {"all": True})

    assert len(revived["revived"]) == 3
    assert {one["id"] for one in await session.deliveries(3)} == {"m-0", "m-1", "m-2"}
    for body in ({}, {"entries": [], "all": False}, {"entries": ["1-1"], "all": True}, {"entries": [7]}):
        assert (await bob.post("/v1/agents/bob/dead/revive", body)).said == (400, "malformed")


async def test_a_full_mailbox_takes_no_dead_letters_back(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    await bob.settle("nack", await bob.lease_one(), retry=False)
    await admin(room).put("/v1/agents/bob", {"max_messages": 1})
    await alice.send("bob", "m-2")

    answer = await bob.post("/v1/agents/bob/dead/revive", {"all": True})

    assert (answer["revived"], [one["code"] for one in answer["refused"]]) == ([], ["queue_full"])
    assert len(room.dead("bob")) == 1


async def test_a_dead_letter_is_dropped_for_good(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    await bob.settle("nack", await bob.lease_one(), retry=False)
    (letter,) = (await bob.get("/v1/agents/bob/dead"))["messages"]

    answers = [await bob.delete(f"/v1/agents/bob/dead/{letter['entry']}") for _ in range(2)]
    never = [await bob.delete(f"/v1/agents/bob/dead/{entry}") for entry in ("1-1p3", "x")]

    assert [one.status for one in (*answers, *never)] == [200, 404, 404, 404]
    assert (await bob.get("/v1/agents/bob/dead"))["messages"] == []


async def test_dead_letters_come_in_pages(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.post("/v1/agents/bob/messages", {"messages": [{"id": f"m-{n}", "payload": n} for n in range(5)]})
    for delivery in await bob.lease(max=5):
        await bob.settle("nack", delivery, retry=False)

    first = await bob.get("/v1/agents/bob/dead", limit=3)
    second = await bob.get("/v1/agents/bob/dead", limit=3, cursor=first["cursor"])

    assert [one["id"] for one in first["messages"] + second["messages"]] == [f"m-{n}" for n in range(5)]
    assert "cursor" not in second.body
    assert (await caller(room, "eve").get("/v1/agents/bob/dead")).said == (403, "forbidden")


# -- deletion


async def test_a_mailbox_that_is_not_empty_is_deleted_by_force_only(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    await bob.put("/v1/agents/bob", {"mode": "shared"})
    await alice.send("bob", "m-1")
    await alice.send("bob", "m-2", priority=9)
    await bob.lease_one()

    answers = [await bob.delete("/v1/agents/bob")]
    answers += [await bob.delete("/v1/agents/bob", force="true") for _ in range(2)]
    wrong = await bob.delete("/v1/agents/bob", force="yes")

    assert [one.status for one in answers] == [409, 200, 404]
    assert answers[0].code == "busy"
    assert wrong.said == (400, "malformed")
    assert (await bob.get("/v1/agents/bob")).status == 404
    assert room.depth("bob") == 0
    assert [await alice.where("bob", id) for id in ("m-1", "m-2")] == ["cancelled", "cancelled"]
    assert (await alice.send("bob", "m-3"))["duplicate"] is False


async def test_an_agent_that_is_deleted_is_sent_away(room: Room) -> None:
    session = await room.agent("bob")

    answer = await admin(room, at=room.b).delete("/v1/agents/bob")

    assert answer.body == {"agent": room.address("bob"), "removed": True}
    assert await session.closed() == 4509
    await soon(lambda: _status(room), 404)


async def _status(room: Room) -> int:
    return (await admin(room).get("/v1/agents/bob")).status


async def test_nobody_deletes_another(room: Room) -> None:
    await caller(room, "alice").send("bob", "m-1")

    answer = await caller(room, "alice").delete("/v1/agents/bob", force="true")

    assert answer.said == (403, "forbidden")
    assert room.depth("bob") == 1


@pytest.mark.parametrize("slash", ["/", "~", "%2F"])
async def test_who_is_blocked_may_be_a_whole_address(room: Room, slash: str) -> None:
    bob = caller(room, "bob")
    path = f"/v1/agents/bob/blocks/{room.tenant}{slash}alice"

    blocked = await bob.put(path)
    asked = await bob.get(path)
    unblocked = await bob.delete(path)

    assert blocked["agents"] == [room.address("alice")]
    assert asked["blocked"] is True
    assert unblocked["agents"] == []


async def test_a_block_has_no_fields(room: Room) -> None:
    bob = caller(room, "bob")

    refused = await bob.put("/v1/agents/bob/blocks/alice", {"agents": ["carol"]})
    nobody = await bob.get("/v1/agents/bob/blocks")
    empty = await bob.put("/v1/agents/bob/blocks/alice", {})

    assert (refused.said, nobody["agents"]) == ((400, "malformed"), [])
    assert empty["agents"] == [room.address("alice")]


async def test_a_session_serves_in_the_mode_that_its_agent_is_registered_with(room: Room) -> None:
    await admin(room).put("/v1/agents/bob", {"mode": "shared"})

    first, second = await room.agents("bob", "bob")
    alone = await room.agent("bob", mode="exclusive")

    assert await first.closed() == await second.closed() == 4509
    assert alone.is_open
    assert first.got("closing")[0]["code"] == "replaced"
    assert (await admin(room).get("/v1/agents/bob"))["mode"] == "shared"


async def test_blocks_are_listed_and_are_of_ones_own_tenant(room: Room) -> None:
    bob = caller(room, "bob")
    await bob.put("/v1/agents/bob/blocks/alice")

    listed = await bob.get("/v1/agents/bob/blocks")
    elsewhere = await bob.put("/v1/agents/bob/blocks/other~alice")
    malformed = await bob.put("/v1/agents/bob/blocks/a%20b")
    not_bobs = await caller(room, "alice").delete("/v1/agents/bob/blocks/alice")
    session = await room.agent("bob")
    await session.say("unblock", agents=["alice"])

    assert listed["agents"] == [room.address("alice")]
    assert elsewhere.said == not_bobs.said == (403, "forbidden")
    assert malformed.said == (400, "malformed")
    assert (await session.expect("blocks"))["agents"] == []
    assert (await bob.get("/v1/agents/bob/blocks/alice")).said == (404, "not_found")
