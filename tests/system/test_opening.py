"""The first frames of a connection: who gets in, who does not, and what each is told."""

import base64
import time

import aiohttp
import jwt
import pytest

from tests.agents import Agent, Key, make_token, message, messages
from tests.system.conftest import SECRET, Room

pytestmark = pytest.mark.xdist_group("common")


async def refused(agent: Agent) -> str:
    """The reason, once everything that belongs to a refusal has been checked."""
    error = await agent.error()
    assert (error["code"], error["retryable"]) == ("unauthorized", False)
    assert await agent.closed() == 4501
    assert agent.got("welcome") == []
    return str(error["message"])


async def test_the_opening_frames_come_in_order_with_exactly_their_fields(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(message("m-1", payload="12345678"))
    before_ms = time.time_ns() // 1_000_000

    bob = await room.agent("bob", at=room.b)
    await bob.drained()
    hello, welcome, status, deliver, drained = bob.heard

    assert list(hello) == ["op", "protocol", "instance", "nonce", "server_time_ms"]
    assert hello["protocol"] == 1
    assert len(base64.b64decode(hello["nonce"], validate=True)) == 32
    assert abs(hello["server_time_ms"] - before_ms) < 5_000
    assert welcome == {
        "op": "welcome",
        "agent": bob.address,
        "session": welcome["session"],
        "epoch": alice.welcome["epoch"],
        "window": 50,
        "protocol": 1,
    }
    oldest_ms = deliver["messages"][0]["sent_at_ms"]
    assert status == {"op": "queue_status", "pending": 1, "bytes": 10, "oldest_ms": oldest_ms}
    assert deliver["op"] == "deliver"
    assert drained == {"op": "drained", "delivered": 1}


async def test_an_empty_mailbox_says_so(room: Room) -> None:
    bob = await room.agent("bob")
    await bob.drained()

    assert bob.heard[2:] == [
        {"op": "queue_status", "pending": 0, "bytes": 0, "oldest_ms": None},
        {"op": "drained", "delivered": 0},
    ]


async def test_nonces_differ_and_sessions_too(room: Room) -> None:
    one, other = await room.agents("alice", "bob")

    assert one.hello["nonce"] != other.hello["nonce"]
    assert one.welcome["session"] != other.welcome["session"]
    assert one.hello["instance"] == other.hello["instance"]


async def test_a_bearer_header_will_do_instead_of_a_token_in_the_frame(room: Room) -> None:
    alice = await room.socket("alice", headers={"Authorization": f"Bearer {room.token('alice')}"})

    await alice.authenticate()

    assert alice.welcome["agent"] == alice.address


async def test_the_chosen_window_is_confirmed(room: Room) -> None:
    assert (await room.agent("alice", window=7)).welcome["window"] == 7


@pytest.mark.parametrize(
    "wrong", [{"window": 0}, {"window": 1_001}, {"mode": "both"}, {"ack_timeout_s": -1}, {"window": "5"}]
)
async def test_a_malformed_auth_is_an_error_after_which_a_good_one_still_serves(room: Room, wrong: dict) -> None:
    alice = await room.socket("alice")
    await alice.expect("hello")

    await alice.say("auth", token=room.token("alice"), **wrong)
    error = await alice.error()
    await alice.say("auth", token=room.token("alice"))

    assert error["code"] == "malformed"
    assert (await alice.expect("welcome"))["agent"] == alice.address


async def test_frames_before_auth_are_not_obeyed(room: Room) -> None:
    eve = await room.socket("eve")
    await eve.expect("hello")

    await eve.say("send", messages=[message("m-1")])

    await refused(eve)
    assert room.depth("bob") == 0


# -- tokens


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": None}, "exp"),
        ({"exp": 1}, "expired"),
        ({"exp": "soon"}, "valid"),
        ({"exp": int(time.time()) + 90_000}, "86400"),
        ({"sub": None}, "sub"),
        ({"tenant": None}, "tenant"),
        ({"sub": "other/bob"}, "sub and tenant"),
        ({"sub": "b b"}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, ""),
        ({"tenant": ""}, "sub and tenant"),
        ({"scope": ""}, "scope"),
        ({"scope": "inspect metrics"}, "scope"),
        ({"scope": ["send"]}, "scope"),
        ({"nbf": int(time.time()) + 1_000}, "valid"),
    ],
)
async def test_a_bad_token_is_refused_with_the_reason(room: Room, claims: dict, words: str) -> None:
    alice = await room.socket("alice")
    await alice.expect("hello")

    await alice.say("auth", token=room.token("alice", **claims))

    assert words in await refused(alice)


async def test_tokens_that_nobody_made_with_the_secret_are_refused(room: Room) -> None:
    claims = {"sub": "alice", "tenant": room.tenant, "scope": "send receive", "exp": int(time.time()) + 60}
    of_another = make_token("some other secret that is long enough", room.address("alice"))
    unsigned = jwt.encode(claims, None, algorithm="none")
    other_algorithm = jwt.encode(claims, SECRET * 2, algorithm="HS512")
    whole = room.token("alice")

    for token in (of_another, unsigned, other_algorithm, whole[:-4], whole + "AAAA", "", "a.b.c", "…", None):
        alice = await room.socket("alice")
        await alice.expect("hello")
        await alice.say("auth", token=token)
        reason = await refused(alice)
        assert whole not in reason


async def test_a_token_may_carry_the_whole_address_as_its_subject(room: Room) -> None:
    alice = await room.socket("alice")

    await alice.authenticate(token=room.token("alice", sub=room.address("alice")))

    assert alice.welcome["agent"] == room.address("alice")


async def test_scopes_are_kept_apart(room: Room) -> None:
    listener = await room.agent("bob", scope="receive")
    sender = await room.agent("alice", scope="send")

    await listener.send(message("m-1", to="alice"))
    refusal = await listener.refusal()
    await listener.say("publish", topic="news", payload=1)
    error = await listener.error()
    await sender.sent(message("m-2"))

    assert (refusal["id"], refusal["code"], refusal["retryable"]) == ("m-1", "forbidden", False)
    assert error["code"] == "forbidden"
    assert (await listener.delivery())["id"] == "m-2"
    assert room.depth("alice") == 0


async def test_another_tenant_is_out_of_reach(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.send(message("m-1", to="other/bob"), message("m-2", to="bob"))
    refusal = await alice.refusal()
    await alice.accepted("m-2")
    for op in ("presence", "block", "unblock"):
        await alice.say(op, agents=["other/bob"])
        assert (await alice.error())["code"] == "forbidden"
    await alice.say("sync", peer="other/bob", thread="t")

    assert (await alice.error())["code"] == "forbidden"
    assert (refusal["id"], refusal["to"], refusal["code"]) == ("m-1", "other/bob", "forbidden")


# -- keys


async def test_the_first_key_to_come_is_the_agents_and_a_second_one_is_refused(room: Room) -> None:
    key, other = Key(), Key()
    alice = await room.socket("alice")
    hello = await alice.expect("hello")
    await alice.say("auth", **key.auth(hello, alice.address))
    assert (await alice.expect("welcome"))["agent"] == alice.address

    eve = await room.socket("alice", at=room.b)
    await eve.say("auth", **other.auth(await eve.expect("hello"), eve.address))
    assert "key" in await refused(eve)

    again = await room.socket("alice", at=room.b)
    await again.say("auth", **key.auth(await again.expect("hello"), again.address))
    assert (await again.expect("welcome"))["agent"] == alice.address
    assert await alice.closed() == 4509


async def test_who_authenticates_with_a_key_may_send_and_receive(room: Room) -> None:
    alice = await room.socket("alice")
    hello = await alice.expect("hello")
    await alice.say("auth", **Key().auth(hello, alice.address))
    await alice.expect("queue_status")

    await alice.sent(message("m-1", to="alice"))

    assert (await alice.delivery())["from"] == alice.address


async def test_signatures_that_do_not_fit_are_refused(room: Room) -> None:
    key = Key()
    address = room.address("alice")
    first = await room.socket("alice")
    hello = await first.expect("hello")
    used = key.auth(hello, address)
    await first.say("auth", **used)
    await first.expect("welcome")

    async def attempt(**changes: object) -> str:
        alice = await room.socket("alice")
        fields = {**key.auth(await alice.expect("hello"), address), **changes}
        await alice.say("auth", **{name: value for name, value in fields.items() if value is not None})
        return await refused(alice)

    await attempt(signature=used["signature"])  # another connection's nonce
    await attempt(signature=Key().sign(hello, address))
    await attempt(signature="")
    await attempt(signature="not base64!")
    await attempt(signature=base64.b64encode(b"short").decode())
    await attempt(key="AAAA")
    await attempt(key="ä")
    await attempt(key=None)
    await attempt(agent=None)
    await attempt(agent=room.address("bob"))
    await attempt(agent="a b")
    await first.settled_down()
    assert first.is_open


async def test_a_key_needs_the_whole_address(room: Room) -> None:
    alice = await room.socket()
    hello = await alice.expect("hello")

    await alice.say("auth", **Key().auth(hello, "alice"))

    await refused(alice)
    assert not any("/alice" in room.redis.hkeys(room.keys.agents(shard)) for shard in range(room.keys.shards))


async def test_a_nonce_of_another_instance_does_not_serve(room: Room) -> None:
    key = Key()
    here, there = await room.socket("alice", at=room.a), await room.socket("alice", at=room.b)
    stolen = key.auth(await here.expect("hello"), here.address)
    await there.expect("hello")

    await there.say("auth", **stolen)

    await refused(there)


# -- a new auth frame in a session


async def test_a_fresh_token_renews_the_session(room: Room) -> None:
    alice = await room.agent("alice", ttl_s=60)

    await alice.say("auth", token=room.token("alice"))

    assert await alice.expect("welcome") == alice.welcome
    await alice.sent(message("m-1"))


async def test_a_bad_renewal_leaves_the_session_as_it_is(room: Room) -> None:
    alice = await room.agent("alice")

    for token in ("rubbish", room.token("bob"), None):
        await alice.say("auth", token=token)
        assert (await alice.error())["code"] == "unauthorized"

    await alice.sent(message("m-1"))


# -- card, origin, and what else belongs to the door


async def test_a_card_is_kept_with_the_agent(room: Room) -> None:
    await room.agent("alice", card={"name": "Älice", "skills": [1.5, None]})

    address = room.address("alice")
    kept = room.redis.hget(room.keys.agents(room.keys.shard(address)), address)
    assert kept is not None
    assert "lice" in kept
    assert "skills" in kept


@pytest.mark.parametrize(("origin", "status"), [("https://evil.example", 403), ("null", 403)])
async def test_a_browser_of_an_unknown_origin_gets_403(room: Room, origin: str, status: int) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await room.socket("alice", headers={"Origin": origin})
    assert error.value.status == status


async def test_the_relays_own_page_may_connect(room: Room) -> None:
    alice = await room.socket("alice", headers={"Origin": room.a.url})

    await alice.authenticate(token=room.token("alice"))


async def test_a_plain_get_is_not_a_websocket(room: Room) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{room.a.url}/v1/ws") as answer:
        assert answer.status == 400
        assert "Upgrade: websocket" in (await answer.json())["error"]["message"]


async def test_backlog_comes_whole_however_large_it_is(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(450))

    bob = await room.agent("bob", window=1_000)

    assert await bob.drained() == 450
    assert [one["payload"] for one in await bob.deliveries(450)] == list(range(1, 451))


async def test_clients_that_leave_before_their_welcome_are_no_errors(room: Room) -> None:
    for _ in range(40):
        leaving = await room.socket("bob")
        await leaving.expect("hello")
        await leaving.say("auth", token=room.token("bob"))
        leaving.vanish()
    await room.agent("bob")

    assert room.a.complaints() == []
