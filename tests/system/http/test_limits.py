"""The HTTP door at its limits, with settings small enough to reach them."""

import asyncio

import pytest

from tests.agents import make_token, until
from tests.callers import Caller, admin, caller, soon, watchers
from tests.system.conftest import SECRET, Room

pytestmark = pytest.mark.xdist_group("http limits")

SETTINGS = {
    "mailbox_max_messages": 3,
    "mailbox_max_bytes": 2_048,
    "max_payload_bytes": 1_500,
    "rate_per_s": 20,
    "rate_burst": 20,
    "open_tenants": "open",
    "allowed_origins": "https://good.example,https://other.example",
    "recheck_s": 30,
}
GOOD, BAD = "https://good.example", "https://bad.example"


@pytest.fixture
def room(room: Room) -> Room:
    """Most of these tests need an open tenant; names are still the test's own."""
    room.closed, room.tenant = room.tenant, "open"  # type: ignore[attr-defined]
    return room


def own(room: Room, name: str) -> str:
    return f"{name}-{room.closed}"  # type: ignore[attr-defined]


async def test_a_full_mailbox_is_429_and_takes_again_after_one_ack(room: Room) -> None:
    alice, bob = caller(room, own(room, "alice")), caller(room, own(room, "bob"), at=room.b)
    for n in range(1, 4):
        await alice.send(bob.name, f"m-{n}", n)

    full = await alice.post(f"/v1/agents/{bob.name}/messages", {"id": "m-4", "payload": 4})
    waiting = await alice.ask(bob.name, "m-5", wait_s=5)
    batch = await alice.post(f"/v1/agents/{bob.name}/messages", {"messages": [{"id": "m-6", "payload": 6}]})
    depth = room.depth(bob.name)
    await bob.settle("ack", await bob.lease_one())
    taken = await alice.send(bob.name, "m-4", 4)

    assert full.said == waiting.said == (429, "queue_full")
    error = full["error"]
    assert (error["depth"], error["limit"], error["bytes"], error["bytes_limit"]) == (3, 3, 3, 2_048)
    assert error["retryable"]
    assert int(full.headers["Retry-After"]) == -(-error["retry_after_ms"] // 1_000)
    assert (await alice.get("/v1/tasks/m-5")).status == 404
    assert (batch.status, batch["accepted"], batch["refused"][0]["id"], batch["refused"][0]["code"]) == (
        *(202, [], "m-6", "queue_full"),
    )
    assert depth == 3
    assert taken["seq"] == 4


async def test_a_sender_that_is_too_fast_is_429_also_through_the_other_instance_and_others_are_not(room: Room) -> None:
    fast, calm = own(room, "fast"), own(room, "calm")
    here, there = caller(room, fast), caller(room, fast, at=room.b)
    batch = {"messages": [{"payload": "x" * 2_000}] * 3 + [{"payload": n} for n in range(60)]}

    first = await here.post(f"/v1/agents/{own(room, 'bob')}/messages", batch)
    limited = await there.post(f"/v1/agents/{own(room, 'bob')}/messages", batch)
    one = await soon_limited(there, own(room, "bob"))
    other = await caller(room, calm).send(own(room, "carol"), "m-1")

    codes = {refused["code"] for refused in first["refused"] + limited["refused"]}
    assert codes >= {"rate_limited", "too_large"}
    assert one.said == (429, "rate_limited")
    assert one["error"]["retry_after_ms"] >= 1
    assert int(one.headers["Retry-After"]) >= 1
    assert other.status == 202


async def soon_limited(sender: Caller, to: str):  # type: ignore[no-untyped-def]
    """The first single message of a sender at its limit that is refused for it."""
    for _ in range(200):
        answers = await asyncio.gather(*(sender.post(f"/v1/agents/{to}/messages", {"payload": 1}) for _ in range(10)))
        for answer in answers:
            if answer.status == 429 and answer.code == "rate_limited":
                return answer
    raise AssertionError("was never limited")


async def test_waits_are_bounded_for_each_identity(room: Room) -> None:
    greedy, modest = caller(room, own(room, "greedy")), caller(room, own(room, "modest"))
    waits = [asyncio.create_task(greedy.lease(wait_s=30)) for _ in range(100)]

    try:
        await until(lambda: len(watchers(room, greedy.name)) == 100)
        refused = await greedy.post(f"/v1/agents/{greedy.name}/lease", {"wait_s": 1})
        at_once = await greedy.post(f"/v1/agents/{greedy.name}/lease", {})
        other = await modest.post(f"/v1/agents/{modest.name}/lease", {"wait_s": 0.01})
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    await soon(lambda: _status(greedy), 200)

    assert refused.said == (429, "rate_limited")
    assert (refused["error"]["retryable"], refused.headers["Retry-After"]) == (True, "1")
    assert (at_once.status, other.status) == (200, 200)


async def _status(greedy: Caller) -> int:
    return (await greedy.post(f"/v1/agents/{greedy.name}/lease", {"wait_s": 0.001})).status


async def test_in_a_closed_tenant_an_unknown_agent_is_404_and_an_admin_or_its_own_token_makes_it_known(
    room: Room,
) -> None:
    tenant = room.closed  # type: ignore[attr-defined]
    alice, root = caller(room, f"{tenant}/alice"), admin(room, f"{tenant}/root")

    unknown = await alice.post("/v1/agents/bob/messages", {"payload": 1})
    asked = await alice.ask("bob", "ask", wait_s=5)
    by_admin = await root.put("/v1/agents/bob", {"mode": "shared"})
    known = await alice.post("/v1/agents/bob/messages", {"payload": 1})
    own_change = await caller(room, f"{tenant}/bob").put("/v1/agents/bob", {"card": {"a": 1}})
    own_key = await caller(room, f"{tenant}/bob").put("/v1/agents/bob", {"key": "A" * 43 + "="})

    assert unknown.said == asked.said == (404, "unknown_agent")
    assert not unknown["error"]["retryable"]
    assert own_key.said == (403, "forbidden")
    assert by_admin["registered"]
    assert known.status == 202
    assert own_change["card"] == {"a": 1}


async def test_pages_of_other_origins_may_call_if_they_are_on_the_list(room: Room) -> None:
    alice, anybody = caller(room, own(room, "alice")), Caller(room.a.url)
    path = f"/v1/agents/{own(room, 'bob')}/messages"

    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = await anybody.call("OPTIONS", path, headers={"Origin": GOOD, **asks})
    other = await anybody.call("OPTIONS", path, headers={"Origin": BAD, **asks})
    nowhere = await anybody.call("OPTIONS", "/nowhere", headers={"Origin": GOOD, **asks})
    sent = await alice.call("POST", path, {"payload": 1}, headers={"Origin": GOOD})
    by_other = await alice.call("POST", path, {"payload": 1}, headers={"Origin": BAD})
    failed = await anybody.call("POST", path, {"payload": 1}, headers={"Origin": GOOD})

    assert preflight.status == 204
    assert preflight.headers["Access-Control-Allow-Origin"] == GOOD
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in preflight.headers
    assert nowhere.status == 404
    assert not any(name.startswith("Access-Control") for name in (*other.headers, *by_other.headers))
    assert sent.status == by_other.status == 202
    for answer in (sent, failed):
        assert answer.headers["Access-Control-Allow-Origin"] == GOOD
        assert answer.headers["Vary"] == "Origin"
        assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"]


async def test_a_stream_may_be_followed_from_another_origin(room: Room) -> None:
    asker = own(room, "asker")
    alice = caller(room, asker)
    await alice.ask(own(room, "carol"), "ask", ttl_s=0.001)

    headers = {"Origin": GOOD, "Accept": "text/event-stream"}
    answer = await alice.call("GET", "/v1/tasks/ask", headers=headers)

    assert answer.headers["Access-Control-Allow-Origin"] == GOOD
    assert "event: end" in answer.text


async def test_a_payload_over_the_limit_of_this_relay_is_413(room: Room) -> None:
    alice = caller(room, own(room, "big"))

    refused = await alice.post(f"/v1/agents/{own(room, 'dora')}/messages", {"payload": "x" * 1_499})
    sent = await alice.post(f"/v1/agents/{own(room, 'dora')}/messages", {"payload": "x" * 1_498})

    assert refused.said == (413, "too_large")
    assert refused["error"]["max"] == 1_500
    assert sent.status == 202


async def test_a_token_of_one_tenant_does_nothing_in_another(room: Room) -> None:
    mallory = Caller(room.a.url, make_token(SECRET, "evil/mallory"), "mallory")

    answers = [
        await mallory.post("/v1/agents/open~bob/lease"),
        await mallory.get("/v1/agents/open~bob"),
        await mallory.put("/v1/agents/open~bob", {}),
        await mallory.delete("/v1/agents/open~bob", force="true"),
        await mallory.get("/v1/agents/open~bob/messages"),
        await mallory.get("/v1/agents", tenant="open"),
    ]

    assert [one.said for one in answers] == [(403, "forbidden")] * 6
