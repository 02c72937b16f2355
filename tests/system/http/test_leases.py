"""Leases: pulling, lock tokens, long polls and settling, over two instances."""

import asyncio
from typing import Any

import pytest

from tests.agents import until
from tests.callers import Caller, admin, caller, soon, watchers
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


def consumers(room: Room, name: str) -> set[str]:
    """The consumers of an agent's mailbox that come from pulling."""
    found: set[str] = set()
    for lane in range(10):
        key = room.keys.box(room.address(name), lane)
        if room.redis.exists(key) and room.redis.xinfo_groups(key):
            found |= {
                one["name"] for one in room.redis.xinfo_consumers(key, "agent") if one["name"].startswith("http.")
            }
    return found


async def waiting(room: Room, bob: Caller, **body: Any) -> "asyncio.Task[list[dict[str, Any]]]":
    """A lease that waits, and is known to do so."""
    task = asyncio.create_task(bob.lease(**({"wait_s": 20} | body)))
    await until(lambda: watchers(room, "bob"))
    return task


async def test_a_lease_gives_deliveries_with_tokens(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    await alice.send("bob", "m-1", {"n": 1}, type="job", thread="t", reply_to="r", headers={"a": "b"}, signature="s")

    delivery = await bob.lease_one(consumer="w1")

    token = delivery.pop("lock_token")
    entry = delivery.pop("entry")
    assert delivery.pop("expires_at_ms") - delivery.pop("sent_at_ms") == 604_800_000
    assert delivery == {
        "id": "m-1",
        "from": room.address("alice"),
        "type": "job",
        "thread": "t",
        "seq": 1,
        "priority": 0,
        "payload": {"n": 1},
        "attempt": 1,
        "was_stored": True,
        "reply_to": "r",
        "request": False,
        "headers": {"a": "b"},
        "signature": "s",
    }
    assert (await bob.post(f"/v1/agents/bob/entries/{entry}/ack", {"lock_token": token})).status == 200


async def test_an_empty_mailbox_gives_an_empty_list(room: Room) -> None:
    assert await caller(room, "bob").lease() == []
    assert await caller(room, "bob").lease(types=[]) == []


async def test_exactly_what_is_returned_is_leased(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    for n in range(5):
        await alice.send("bob", f"m-{n}")

    leased = await bob.lease(max=3)

    assert [one["id"] for one in leased] == ["m-0", "m-1", "m-2"]
    assert {entry for entry, (holder, _) in room.holders("bob").items() if holder.startswith("http.")} == {
        one["entry"] for one in leased
    }
    assert len({one["lock_token"] for one in leased}) == 3
    assert [await alice.where("bob", f"m-{n}") for n in range(5)] == ["held"] * 3 + ["queued"] * 2


async def test_high_priorities_come_first_and_in_order_also_with_a_filter(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob", at=room.b)
    for n, (kind, priority) in enumerate([("a", 0), ("b", 0), ("a", 9), ("b", 9), ("a", 0), ("a", 9), ("b", 5)]):
        await alice.send("bob", f"m-{n}", type=kind, priority=priority)
    await alice.send("bob", "m-7")

    only_a = await bob.lease(max=2, types=["a"])
    held = {one["id"] for one in (await bob.get("/v1/agents/bob/messages", state="held"))["messages"]}
    more_a = await bob.lease(max=10, types=["a", "nothing"])
    rest = await bob.lease(max=10)

    assert [one["id"] for one in only_a] == ["m-2", "m-5"]
    assert held == {"m-2", "m-5"}
    assert [one["id"] for one in more_a] == ["m-0", "m-4"]
    assert [one["id"] for one in rest] == ["m-3", "m-6", "m-1", "m-7"]
    for one in (*only_a, *more_a, *rest):
        assert (await bob.settle("ack", one)).status == 200
    assert room.depth("bob") == 0
    assert consumers(room, "bob") == set()


async def test_ten_pullers_over_two_instances_get_ten_messages_once_each(room: Room) -> None:
    alice = caller(room, "alice")
    for n in range(10):
        await alice.send("bob", f"m-{n}")
    pullers = [caller(room, "bob", at=at) for at in (room.a, room.b) for _ in range(5)]

    leased = await asyncio.gather(*(one.lease_one(consumer="same") for one in pullers))
    acked = await asyncio.gather(*(one.settle("ack", got) for one, got in zip(pullers, leased, strict=True)))

    assert {one["id"] for one in leased} == {f"m-{n}" for n in range(10)}
    assert len({one["lock_token"] for one in leased}) == 10
    assert [one.status for one in acked] == [200] * 10
    assert room.depth("bob") == 0
    assert consumers(room, "bob") == set()


async def test_when_a_lease_has_ended_the_next_holder_settles_and_the_first_does_not(room: Room) -> None:
    alice, first, second = caller(room, "alice"), caller(room, "bob"), caller(room, "bob", at=room.b)
    await alice.send("bob", "m-1")

    old = await first.lease_one(ack_timeout_s=0.01)
    new = await second.lease_one(wait_s=20)
    late = [await first.settle(how, old) for how in ("ack", "nack", "release", "touch")]
    done = await second.settle("ack", new)

    assert (old["entry"], old["attempt"], new["attempt"]) == (new["entry"], 1, 2)
    assert [one.said for one in late] == [(409, "lock_lost")] * 4
    assert done.body == {"entry": new["entry"], "settled": "ack"}
    assert consumers(room, "bob") == set()


async def test_what_a_consumer_gave_back_and_took_again_is_settled_by_the_new_token_only(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    old = await bob.lease_one(consumer="w1")
    await bob.settle("release", old)
    new = await bob.lease_one(consumer="w1")

    answers = [await bob.settle("ack", old), await bob.settle("ack", new)]

    assert (old["attempt"], new["attempt"]) == (1, 1)
    assert [one.status for one in answers] == [409, 200]


async def test_a_token_of_another_entry_proves_nothing(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    await alice.send("bob", "m-2")
    one, two = await bob.lease(max=2)

    crossed = await bob.settle("ack", one | {"lock_token": two["lock_token"]})
    made_up = await bob.settle("ack", one | {"lock_token": "made-up"})
    missing = await bob.post(f"/v1/agents/bob/entries/{one['entry']}/ack", {})
    number = await bob.post(f"/v1/agents/bob/entries/{one['entry']}/ack", {"lock_token": 7})
    nowhere = [await bob.settle("ack", one | {"entry": entry}) for entry in ("1-1", "nonsense", "1-1p3")]

    assert [crossed.said, made_up.said] == [(409, "lock_lost")] * 2
    assert [missing.said, number.said] == [(400, "malformed")] * 2
    assert [answer.said for answer in nowhere] == [(404, "not_found")] * 3
    assert room.depth("bob") == 2


@pytest.mark.parametrize("how", ["ack", "nack", "release", "touch", "reply"])
async def test_a_settlement_may_say_confirm_as_over_websocket(room: Room, how: str) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1", request=True)
    delivery = await bob.lease_one()

    answer = await bob.settle(how, delivery, confirm=True, **({"payload": 4} if how == "reply" else {}))

    assert (answer.status, answer["settled"]) == (200, how)


async def test_nobody_settles_what_is_in_anothers_mailbox(room: Room) -> None:
    alice, bob, eve = caller(room, "alice"), caller(room, "bob"), caller(room, "eve")
    await alice.send("bob", "m-1")
    delivery = await bob.lease_one()

    in_own_name = await eve.settle("ack", delivery)
    in_bobs_name = await eve.post(
        f"/v1/agents/bob/entries/{delivery['entry']}/ack", {"lock_token": delivery["lock_token"]}
    )
    leased = await eve.post("/v1/agents/bob/lease", {})

    assert in_own_name.said == (404, "not_found")
    assert in_bobs_name.said == leased.said == (403, "forbidden")
    assert (await bob.settle("ack", delivery)).status == 200


async def test_nack_counts_release_does_not_and_touch_moves_the_time(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")

    await bob.settle("release", await bob.lease_one())
    after_release = await bob.lease_one()
    await bob.settle("nack", after_release, delay_s=0, reason="not yet")
    after_nack = await bob.lease_one(ack_timeout_s=30)
    (before,) = room.due("bob").values()
    touched = await bob.settle("touch", after_nack, extend_s=600)
    (after,) = room.due("bob").values()

    assert (after_release["attempt"], after_nack["attempt"]) == (1, 2)
    assert touched["settled"] == "touch"
    assert after - before > 500


async def test_many_are_settled_at_once_and_each_refusal_is_named(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    for n in range(6):
        await alice.send("bob", f"m-{n}", priority=n % 3)
    leased = await bob.lease(max=3) + await bob.lease(max=3)
    tokens = [{"entry": one["entry"], "lock_token": one["lock_token"]} for one in leased]

    answer = await bob.post(
        "/v1/agents/bob/settle",
        {
            "ack": [*tokens[:2], {"entry": "1-1", "lock_token": "x"}],
            "nack": [
                tokens[2] | {"delay_s": 60, "reason": "busy"},
                tokens[5] | {"lock_token": tokens[4]["lock_token"]},
            ],
            "release": [tokens[3]],
            "touch": [tokens[4] | {"extend_s": 60}],
        },
    )

    assert sorted(answer["settled"]) == sorted(one["entry"] for one in tokens[:5])
    assert {(one["entry"], one["code"]) for one in answer["refused"]} == {
        ("1-1", "not_found"),
        (tokens[5]["entry"], "lock_lost"),
    }
    states = {one["id"]: one["state"] for one in (await bob.get("/v1/agents/bob/messages"))["messages"]}
    assert sorted(states.values()) == ["delayed", "held", "held", "queued"]


@pytest.mark.parametrize(
    "body",
    [
        *({"max": 0}, {"max": 101}, {"wait_s": 31}, {"wait_s": -1}, {"ack_timeout_s": 0}, {"consumer": "a b"}),
        *({"types": "a"}, {"types": ["x" * 129]}, {"max": "1"}, []),
    ],
)
async def test_a_lease_out_of_range_is_malformed(room: Room, body: Any) -> None:
    answer = await caller(room, "bob").post("/v1/agents/bob/lease", body)

    assert answer.said == (400, "malformed")


async def test_a_hundred_may_be_leased_at_once(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.post("/v1/agents/bob/messages", {"messages": [{"payload": n} for n in range(120)]})

    leased = await bob.lease(max=100)

    assert [one["payload"] for one in leased] == list(range(100))


# -- long polls


async def test_a_waiting_lease_is_woken_through_the_other_instance_at_once(room: Room) -> None:
    task = await waiting(room, caller(room, "bob"))
    online = (await admin(room).get("/v1/agents/bob"))["online"]

    await caller(room, "alice", at=room.b).send("bob", "m-1")
    (delivery,) = await asyncio.wait_for(task, 1)

    assert online
    assert (delivery["id"], delivery["was_stored"]) == ("m-1", False)
    await until(lambda: watchers(room, "bob") == [])


async def test_one_message_wakes_many_and_goes_to_one(room: Room) -> None:
    bob = caller(room, "bob")
    tasks = [asyncio.create_task(bob.lease(wait_s=1)) for _ in range(3)]
    tasks += [asyncio.create_task(caller(room, "bob", at=room.b).lease(wait_s=1)) for _ in range(3)]
    await until(lambda: len(watchers(room, "bob")) == 6)

    await caller(room, "alice").send("bob", "m-1")
    given = await asyncio.gather(*tasks)

    assert sorted(len(one) for one in given) == [0] * 5 + [1]
    await until(lambda: watchers(room, "bob") == [])


async def test_a_lease_that_waits_for_a_type_is_not_given_another(room: Room) -> None:
    alice = caller(room, "alice")
    task = await waiting(room, caller(room, "bob"), types=["wanted"])

    await alice.send("bob", "m-1", type="other")
    await alice.send("bob", "m-2", type="wanted")
    (delivery,) = await asyncio.wait_for(task, 5)

    assert delivery["id"] == "m-2"
    assert await alice.where("bob", "m-1") == "queued"


async def test_a_wait_that_ends_without_mail_leaves_nothing_behind(room: Room) -> None:
    bob = caller(room, "bob")
    await bob.put("/v1/agents/bob", {"next_active_at_ms": 1_900_000_000_000})

    assert await bob.lease(wait_s=0.05) == []

    await until(lambda: watchers(room, "bob") == [])
    shown = await bob.get("/v1/agents/bob")
    assert (shown["online"], shown["next_active_at_ms"]) == (False, 1_900_000_000_000)
    assert consumers(room, "bob") == set()


async def test_a_caller_that_goes_away_is_not_waited_for_and_takes_nothing(room: Room) -> None:
    bob = caller(room, "bob")
    task = await waiting(room, bob)

    task.cancel()
    await until(lambda: watchers(room, "bob") == [])
    await caller(room, "alice").send("bob", "m-1")

    assert (await bob.lease_one())["attempt"] == 1


async def test_a_draining_instance_ends_its_waits_cleanly(room: Room) -> None:
    third = room.relay.instance()
    task = await waiting(room, caller(room, "bob", at=third))
    asked = asyncio.create_task(caller(room, "alice", at=third).ask("carol", "ask", wait_s=20))
    await soon(lambda: caller(room, "alice").where("carol", "ask"), "queued")

    third._process.terminate()
    leased, answer = await asyncio.wait_for(task, 5), await asyncio.wait_for(asked, 5)

    assert leased == []
    assert (answer.status, answer["state"]) == (202, "queued")
    assert third.wait() == 0
    assert third.complaints() == []
    assert watchers(room, "bob") == []


async def test_mail_that_becomes_due_wakes_a_waiting_lease(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1", delay_s=0.3)

    delivery = await bob.lease_one(wait_s=20)

    assert (delivery["id"], delivery["attempt"]) == ("m-1", 1)


# -- with sessions


async def test_an_exclusive_session_keeps_pullers_away(room: Room) -> None:
    bob = caller(room, "bob", at=room.b)
    task = asyncio.create_task(bob.post("/v1/agents/bob/lease", {"wait_s": 20}))
    await until(lambda: watchers(room, "bob"))

    session = await room.agent("bob")
    while_waiting = await asyncio.wait_for(task, 1)
    at_once = await bob.post("/v1/agents/bob/lease", {"wait_s": 5})
    await session.close()
    await soon(lambda: _status(bob), 200)

    assert while_waiting.said == at_once.said == (409, "busy")
    assert at_once["error"]["retryable"]
    assert int(at_once.headers["Retry-After"]) >= 1


async def _status(bob: Caller) -> int:
    return (await bob.post("/v1/agents/bob/lease")).status


async def test_a_shared_session_competes_with_pullers(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    held = await bob.lease_one()
    session = await room.agent("bob", mode="shared")
    await session.drained()

    await alice.send("bob", "m-2")
    delivery = await session.delivery()

    assert delivery["id"] == "m-2"
    assert (await bob.settle("ack", held)).status == 200


async def test_what_a_puller_holds_goes_on_when_an_exclusive_session_comes(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    held = await bob.lease_one()

    session = await room.agent("bob")
    await session.drained()

    assert (await bob.settle("ack", held)).status == 200


async def counted(room: Room) -> dict[str, float]:
    """The counters of the instance, by name."""
    lines = (await Caller(room.a.url).get("/metrics")).text.splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


async def test_a_lease_is_counted_like_a_delivery(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.send("bob", "m-1")
    before = await counted(room)

    await bob.settle("nack", await bob.lease_one(), delay_s=0)
    await bob.settle("ack", await bob.lease_one())

    after = await counted(room)
    names = ("relay_taken_total", "relay_taken_again_total", "relay_accepted_to_taken_seconds_count")
    assert [after[name] - before[name] for name in names] == [2, 1, 2]
    assert after["relay_taken_to_acked_seconds_count"] - before["relay_taken_to_acked_seconds_count"] == 1
