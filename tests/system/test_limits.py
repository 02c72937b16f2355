"""Caps, rates and connections at their limits, with settings small enough to reach them."""

import asyncio

import pytest

from tests.agents import Frame, Key, message, messages, until
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("limits")

SETTINGS = {
    "mailbox_max_messages": 3,
    "mailbox_max_bytes": 2_048,
    "max_payload_bytes": 1_500,
    "rate_per_s": 20,
    "rate_burst": 20,
    "max_connections": 12,
    "open_tenants": "open",
    "recheck_s": 30,
    "allowed_origins": "https://good.example,https://other.example",
    "log_addresses": "hashed",
}


@pytest.fixture
def room(room: Room) -> Room:
    """Most of these tests need an open tenant; names are still the test's own."""
    room.tenant, room.suffix = "open", room.tenant  # type: ignore[attr-defined]
    plain = room.address
    room.address = lambda name: name if "/" in name else plain(f"{name}-{room.suffix}")  # type: ignore[attr-defined,method-assign]
    return room


async def test_a_full_mailbox_refuses_by_name_and_takes_again_after_one_ack(room: Room) -> None:
    alice = await room.agent("alice")
    bob_address = room.address("bob")
    await alice.sent(*messages(3, to=bob_address))

    await alice.send(message("m-4", to=bob_address))
    refusal = await alice.refusal()

    assert (refusal["id"], refusal["to"], refusal["code"]) == ("m-4", bob_address, "queue_full")
    assert (refusal["retryable"], refusal["depth"], refusal["limit"]) == (True, 3, 3)
    assert (refusal["bytes"], refusal["bytes_limit"]) == (3, 2_048)
    assert refusal["retry_after_ms"] > 0
    assert room.depth("bob") == 3
    bob = await room.agent("bob")
    await bob.ack((await bob.deliveries(3))[0])
    await alice.sent(message("m-4", to=bob_address))
    assert (await bob.delivery())["id"] == "m-4"


async def test_a_publication_over_the_size_limit_is_refused(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.say("publish", topic="news", payload="x" * 1_499)
    error = await alice.error()

    assert (error["code"], error["max"]) == ("too_large", 1_500)


async def test_one_frame_fills_the_mailbox_and_the_rest_is_refused(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.send(*messages(5, to=room.address("bob")))
    accepted, refused = await alice.expect("accepted"), await alice.expect("refused")

    assert accepted["ids"] == ["m-1", "m-2", "m-3"]
    assert [(one["id"], one["code"]) for one in refused["refusals"]] == [("m-4", "queue_full"), ("m-5", "queue_full")]
    assert room.depth("bob") == 3


async def test_a_mailbox_is_also_full_by_bytes(room: Room) -> None:
    alice = await room.agent("alice")
    to = room.address("bob")
    await alice.sent(message("m-1", to, "x" * 1_400))

    await alice.send(message("m-2", to, "x" * 1_000))
    refusal = await alice.refusal()
    await alice.sent(message("m-3", to, "x" * 600))

    assert (refusal["code"], refusal["depth"], refusal["bytes"]) == ("queue_full", 1, 1_402)


async def test_priorities_share_one_cap(room: Room) -> None:
    alice = await room.agent("alice")
    to = room.address("bob")
    await alice.sent(message("m-1", to), message("m-2", to, priority=9), message("m-3", to, priority=4))

    for priority in (0, 9):
        await alice.send(message("more", to, priority=priority))
        assert (await alice.refusal())["depth"] == 3


async def test_a_duplicate_of_what_is_in_a_full_mailbox_is_a_duplicate(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(3, to=room.address("bob")))

    assert await alice.sent(message("m-2", to=room.address("bob"))) == ["m-2"]


async def test_an_empty_token_bucket_refuses_with_a_time_and_other_senders_go_on(room: Room) -> None:
    alice, carol = await room.agents("alice", "carol")

    await alice.send(*(message(f"m-{n}", room.address(f"to-{n}")) for n in range(60)))
    refused = []
    while len(refused) < 35:
        refused += (await alice.expect("refused"))["refusals"]
    await carol.sent(message("mine", room.address("bob")))

    assert {one["code"] for one in refused} == {"rate_limited"}
    assert all(one["retryable"] and one["retry_after_ms"] >= 1 for one in refused)
    accepted = sum(len(frame["ids"]) for frame in alice.got("accepted"))
    assert 20 <= accepted <= 25
    assert accepted + len(refused) == 60


async def test_reconnecting_to_another_instance_does_not_refill_the_bucket(room: Room) -> None:
    taken, clients = 0, []
    for n in range(4):
        alice = await room.agent("alice", at=(room.a, room.b)[n % 2], scope="send")
        clients.append(alice)
        await alice.send(*(message(f"m-{n}-{m}", room.address(f"to-{n}-{m}")) for m in range(20)))
    for alice in clients:
        await until(
            lambda alice=alice: (
                sum(len(frame["ids"]) for frame in alice.got("accepted"))
                + sum(len(frame["refusals"]) for frame in alice.got("refused"))
                == 20
            )
        )
        taken += sum(len(frame["ids"]) for frame in alice.got("accepted"))

    assert 20 <= taken <= 40


async def test_what_waits_for_tokens_can_be_sent_later_under_the_same_id(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.send(*(message(f"m-{n}", room.address(f"to-{n}")) for n in range(40)))
    refused = (await alice.expect("refused"))["refusals"]

    id, to, wait_ms = refused[-1]["id"], refused[-1]["to"], refused[-1]["retry_after_ms"]
    heard = len(alice.heard)

    def answers() -> list[Frame]:
        return [frame for frame in alice.heard[heard:] if id in str(frame)]

    for attempt in range(1, 100):
        await asyncio.sleep(wait_ms / 1_000)
        await alice.send(message(id, to))
        answer = (await until(lambda attempt=attempt: answers()[attempt - 1 : attempt]))[0]
        if answer["op"] == "accepted":
            break
        wait_ms = answer["refusals"][0]["retry_after_ms"]

    assert (answer["ids"], answer["duplicate_ids"]) == ([id], [])


async def test_one_connection_too_many_is_told_to_come_back(room: Room) -> None:
    opened = [await room.socket(at=room.b) for _ in range(14)]
    for n in (0, 11):
        await opened[n].expect("hello")

    closing = await opened[12].expect("closing")
    code = await opened[12].closed()

    assert (closing["code"], code) == ("too_many_connections", 4029)
    assert closing["retry_after_ms"] > 0
    assert opened[12].got("hello") == []
    await opened[0].close()
    await opened[1].close()
    await opened[13].closed()


async def test_a_closed_tenant_has_only_registered_agents(room: Room) -> None:
    room.tenant = "closed"
    alice = await room.agent("alice")  # a token is proof enough, and registers

    await alice.send(message("m-1", room.address("stranger")), message("m-2", room.address("alice")))
    refusal = await alice.refusal()

    assert (refusal["id"], refusal["code"], refusal["retryable"]) == ("m-1", "unknown_agent", False)
    assert (await alice.delivery())["id"] == "m-2"
    assert room.depth("stranger") == 0


async def test_a_closed_tenant_takes_no_key_on_first_use(room: Room) -> None:
    room.tenant = "closed"
    eve = await room.socket("eve")

    await eve.say("auth", **Key().auth(await eve.expect("hello"), eve.address))

    assert (await eve.error())["code"] == "unauthorized"
    assert await eve.closed() == 4501


async def test_a_browser_of_an_allowed_origin_may_connect(room: Room) -> None:
    alice = await room.socket("alice", headers={"Origin": "https://other.example"})

    await alice.expect("hello")


async def test_hashed_addresses_are_in_no_log(room: Room) -> None:
    await room.agent("alice")
    await until(lambda: room.a.events("session_began"))

    assert not any("alice" in str(line) for line in room.a.lines())


async def test_replies_are_held_to_the_senders_rate(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob")
    await alice.sent(message("q-1", to=bob.address, request=True))
    question = await bob.delivery()

    for n in range(40):
        await bob.say("reply", entry=question["entry"], payload=n, more=True)
    refusal, *_ = (await bob.expect("refused"))["refusals"]

    assert (refusal["entry"], refusal["code"], refusal["retryable"]) == (question["entry"], "rate_limited", True)
    assert refusal["retry_after_ms"] > 0
