"""Strangers, former keys and admins of other tenants try to get what is not theirs."""

import secrets
from typing import Any

import aiohttp
import pytest

from tests.agents import Agent, Key, message
from tests.callers import Caller, admin, caller, operator
from tests.system.conftest import Room

SETTINGS = {"open_tenants": "open", "recheck_s": 30}

# -- an admin is its own tenant's

ABROAD = [
    ("GET", "/v1/agents?tenant={}", None),
    ("GET", "/v1/agents/{}~bob", None),
    ("PUT", "/v1/agents/{}~bob", {"mode": "shared"}),
    ("DELETE", "/v1/agents/{}~bob?force=true", None),
    ("GET", "/v1/agents/{}~bob/messages", None),
    ("GET", "/v1/agents/{}~bob/messages/m-1?from={}~alice", None),
    ("DELETE", "/v1/agents/{}~bob/messages/m-1?from={}~alice", None),
    ("POST", "/v1/agents/{}~bob/lease", {}),
    ("GET", "/v1/agents/{}~bob/dead", None),
    ("POST", "/v1/agents/{}~bob/dead/revive", {"all": True}),
    ("GET", "/v1/agents/{}~bob/blocks", None),
    ("PUT", "/v1/agents/{}~bob/blocks/alice", None),
    ("GET", "/v1/tasks/m-1?from={}~alice", None),
    ("GET", "/v1/activity?tenant={}", None),
    ("GET", "/v1/stats?tenant={}", None),
    ("GET", "/v1/anomalies?tenant={}", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ABROAD)
async def test_an_admin_has_no_say_in_other_tenants(room: Room, method: str, path: str, body: object) -> None:
    stranger = admin(room, "elsewhere/root")

    answer = await stranger.call(method, path.replace("{}", room.tenant), body)

    assert answer.said == (403, "forbidden")


async def test_an_operator_has_a_say_in_every_tenant(room: Room) -> None:
    root = operator(room, "elsewhere/root")

    registered = await root.put(f"/v1/agents/{room.tenant}~bob", {"max_messages": 5})
    listed = await root.get("/v1/agents", tenant=room.tenant)

    assert registered["max_messages"] == 5
    assert [one["agent"] for one in listed["agents"]] == [room.address("bob")]


async def test_the_old_meaning_of_admin_is_a_setting(room: Room) -> None:
    at = room.relay.instance(admin_is_operator="true")

    answer = await admin(room, "elsewhere/root", at=at).get("/v1/agents", tenant=room.tenant)

    assert answer.status == 200


# -- claims that are no claims


@pytest.mark.parametrize("claims", [{"exp": "99999999999"}, {"nbf": "1"}, {"iat": "x"}, {"exp": float("inf")}])
async def test_a_claim_of_another_type_is_401_and_closes_with_4501(room: Room, claims: dict[str, object]) -> None:
    token = room.token("alice", **claims)

    answer = await Caller(room.a.url, token).get("/v1/agents")
    alice = await room.socket("alice")
    await alice.say("auth", token=token)

    assert answer.said == (401, "unauthorized")
    assert await alice.closed() == 4501


# -- pages of other origins


async def test_a_name_that_was_led_here_by_somebody_else_is_no_origin_of_ours(room: Room) -> None:
    host = f"rebound.example:{room.a.url.rpartition(':')[2]}"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await room.socket("alice", headers={"Origin": f"http://{host}", "Host": host})

    assert refused.value.status == 403
    assert room.a.events("origin_refused")[-1]["origin"] == f"http://{host}"


async def test_a_refused_origin_is_told_which_setting_would_let_it_in(room: Room) -> None:
    answer = await Caller(room.a.url).call("GET", "/v1/ws", headers={"Origin": "https://evil.example"})

    assert answer.said == (403, "forbidden")
    assert "RELAY_ALLOWED_ORIGINS" in answer["error"]["message"]


@pytest.mark.parametrize("origin", ["http://[", "http://", "", "null", "http://127.0.0.1"])
async def test_a_broken_origin_is_refused(room: Room, origin: str) -> None:
    answer = await Caller(room.a.url).call("GET", "/v1/ws", headers={"Origin": origin})

    assert answer.said == (403, "forbidden")


async def test_a_public_name_may_connect_once_it_is_named(room: Room) -> None:
    at = room.relay.instance(allowed_origins="https://relay.example.com")

    alice = await room.socket("alice", at, headers={"Origin": "https://relay.example.com", "Host": "relay.example.com"})

    assert await alice.expect("hello")


async def test_a_page_that_was_led_here_does_not_read_the_metrics(room: Room) -> None:
    answer = await Caller(room.a.url).call("GET", "/metrics", headers={"Host": "rebound.example"})

    assert answer.said == (401, "unauthorized")


# -- keys of strangers


async def with_key(room: Room, address: str, key: Key, **options: Any) -> Agent:
    """A session that has shown a key, and may have been refused."""
    agent = await room.socket(address, **options)
    await agent.say("auth", **key.auth(await agent.expect("hello"), agent.address))
    return agent


def in_open_tenant() -> str:
    return f"open/agent-{secrets.token_hex(4)}"


async def test_in_a_closed_tenant_a_key_of_ones_own_opens_nothing(room: Room) -> None:
    eve = await with_key(room, "payroll", Key())

    assert (await eve.error())["code"] == "unauthorized"
    assert await eve.closed() == 4501
    (listed,) = (await admin(room).get("/v1/agents"))["agents"]
    described = (await admin(room).get("/v1/agents/root")).body
    assert listed == {name: value for name, value in described.items() if name in listed}
    assert described.keys() - listed.keys() <= {"sessions"}  # which only a look at one agent tells


async def test_in_a_closed_tenant_a_key_that_an_admin_registered_connects(room: Room) -> None:
    key = Key()
    await admin(room).put("/v1/agents/bob", {"key": key.public})

    bob = await with_key(room, "bob", key)

    assert (await bob.expect("welcome"))["agent"] == room.address("bob")


async def test_in_a_closed_tenant_an_agent_comes_to_be_by_its_token(room: Room) -> None:
    alice = await room.agent("alice")
    for name in ("bob", "carol"):
        await alice.send(message("m-1", to=name))
        assert (await alice.refusal())["code"] == "unknown_agent"

    await room.agent("bob")
    await caller(room, "carol", "send").get("/v1/agents")
    await caller(room, "dora", "metrics").get("/v1/stats")

    await alice.sent(message("m-2", to="bob"), message("m-2", to="carol"))
    await alice.send(message("m-2", to="dora"))
    assert (await alice.refusal())["code"] == "unknown_agent"


async def test_mail_that_was_stored_for_an_agent_is_not_read_by_whoever_comes_first(room: Room) -> None:
    address = in_open_tenant()
    await caller(room, "open/alice").send(address.partition("/")[2], "m-1")

    eve = await with_key(room, address, Key())

    assert await eve.closed() == 4501
    assert eve.got("deliver") == []


@pytest.mark.parametrize("way", ["session", "lease", "registration"])
async def test_an_address_with_an_owner_is_not_taken_by_a_key(room: Room, way: str) -> None:
    address = in_open_tenant()
    owner, name = caller(room, address), address.partition("/")[2]
    match way:
        case "session":
            await (await room.agent(address)).close()
        case "lease":
            await owner.post(f"/v1/agents/{name}/lease")
        case "registration":
            await owner.put(f"/v1/agents/{name}", {"mode": "shared"})

    eve = await with_key(room, address, Key())

    assert await eve.closed() == 4501


async def test_a_deleted_name_is_not_taken_while_something_waits_there(room: Room) -> None:
    address, first = in_open_tenant(), Key()
    root, name = admin(room, "open/root"), address.partition("/")[2]
    await (await with_key(room, address, first)).expect("welcome")
    await root.delete(f"/v1/agents/{name}")
    await caller(room, "open/alice").send(name, "late")

    eve = await with_key(room, address, Key())

    assert await eve.closed() == 4501


@pytest.mark.parametrize("change", ["another key", "no key", "deleted"])
async def test_a_key_that_was_taken_away_ends_its_sessions_on_every_instance(room: Room, change: str) -> None:
    key, root = Key(), admin(room)
    await root.put("/v1/agents/bob", {"key": key.public, "mode": "shared"})
    sessions = [await with_key(room, "bob", key, at=at) for at in (room.a, room.b)]
    for bob in sessions:
        await bob.drained()
    by_token = await room.agent("bob", at=room.b, mode="shared")

    if change == "deleted":
        await root.delete("/v1/agents/bob")
    else:
        await root.put("/v1/agents/bob", {"key": Key().public if change == "another key" else None})

    assert [await bob.closed() for bob in sessions] == [4501, 4501]
    for bob in sessions:
        (closing,) = bob.got("closing")
        assert (closing["code"], "key" in closing["message"]) == ("unauthorized", True)
    if change == "deleted":
        assert await by_token.closed() == 4509
    else:
        assert by_token.is_open


async def test_a_key_change_that_no_wake_told_of_is_found_by_the_next_look(room: Room) -> None:
    at, key = room.relay.instance(recheck_s=0.1), Key()
    await admin(room).put("/v1/agents/bob", {"key": key.public})
    bob = await with_key(room, "bob", key, at=at)
    await bob.drained()

    address = room.address("bob")
    room.redis.hset(room.keys.agents(room.keys.shard(address)), address, '{"registered_at_ms":1}')

    assert await bob.closed() == 4501


async def test_a_key_that_anybody_can_sign_for_is_registered_nowhere(room: Room) -> None:
    answers = [
        await admin(room).put("/v1/agents/bob", {"key": key})
        for key in ("AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "A" * 43 + "=", "7" + "/" * 41 + "38=")
    ]

    assert [one.said for one in answers] == [(400, "malformed")] * 3
