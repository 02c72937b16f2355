"""One client with an ordinary token goes to every limit and beyond: the store stays within what docs/limits.md says.

Tried over WebSocket and HTTP: a mailbox that is full, failures without end, dead letters, requests that are refused,
requests and parts without end, answers for a mailbox that stays full, receipts that nobody reads, new recipients, new
threads, new agents by fresh keys, topics, blocks. Then the client leaves, time passes, and what is left in the store is
what was there before.
"""

import time
from typing import Any

from relay.settings import Settings
from relay.store.store import Store, open_store
from tests.agents import Agent, Frame, Key, message, until
from tests.builders import HandClock
from tests.callers import caller
from tests.system.conftest import Room
from workers import idle, overdue, receipts, sweeper

SETTINGS = {
    "shards": 4,
    "mailbox_max_messages": 10,
    "mailbox_max_bytes": 100_000,
    "max_payload_bytes": 10_000,
    "reply_max_bytes": 20_000,
    "max_tasks": 10,
    "max_threads": 20,
    "sender_max_mailboxes": 20,
    "tenant_max_mailboxes": 100,
    "registrations_per_s": 0.5,
    "dead_max_messages": 5,
}
# These have as many fields for any client.
IN_COMMON = (":events", ":rates", ":instances", ":calls", ":totals", ":sums", ":workers", ":outbox")
MAILBOXES = 4 * 10  # twice an even share for each of four shards
MAILBOX_BYTES = 2_000  # with one small message
MESSAGE_BYTES = 1_500  # beside its payload; of streams the server tells too much rather than too little
FAILURES_BYTES = 24 * 1_024  # the record, and what its holder has come to know of it
THREAD_BYTES = 700


def keys(room: Room, kind: str) -> list[str]:
    """The keys of this kind that the room's tenant has."""
    return sorted(room.redis.keys(f"relay:{{*}}:{kind}:{room.tenant}/*"))


def stored(room: Room, *, lasting: bool = False) -> dict[str, int]:
    """Every key with its bytes, but for the logs; or only those that do not expire by themselves."""
    names = [key for key in room.redis.keys("relay:*") if not key.endswith(IN_COMMON)]
    names = [key for key in names if not lasting or room.redis.pttl(key) == -1]
    return {key: int(room.redis.memory_usage(key, samples=0) or 0) for key in sorted(names)}


def grown(room: Room, before: dict[str, int]) -> int:
    """By how many bytes the store has grown."""
    return sum(stored(room).values()) - sum(before.values())


async def answers(agent: Agent, *batch: Frame) -> list[Frame]:
    """Sends messages one frame after the other, and waits for every answer; what was refused."""
    for one in batch:
        await agent.send(one)
    missing, refusals = {one["id"] for one in batch}, []
    while missing:
        await until(lambda: [one for one in agent.inbox if one["op"] in ("accepted", "refused")])
        for frame in agent.inbox:
            refused = frame.get("refusals", []) if frame["op"] == "refused" else []
            refusals += refused
            missing -= {one["id"] for one in refused} | set(frame.get("ids", []))
        agent.inbox = [one for one in agent.inbox if one["op"] not in ("accepted", "refused")]
    return refusals


# -- a mailbox


async def test_a_mailbox_is_full_and_so_is_what_is_kept_for_it(room: Room) -> None:
    alice = await room.agent("alice")
    before = stored(room)

    refused = await answers(alice, *(message(f"m-{n}", payload="x" * 9_000) for n in range(30)))

    assert {one["code"] for one in refused} == {"queue_full"}
    assert room.depth("bob") == 10
    assert grown(room, before) < 10 * (MESSAGE_BYTES + 2 * 9_000)


async def test_of_failures_without_end_the_latest_are_kept(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    before = stored(room)

    for n in range(60):
        await bob.settle("nack", await bob.delivery(), delay_s=0, reason=f"{n} " + "x" * 1_000)

    assert grown(room, before) < FAILURES_BYTES


async def test_a_full_dead_letter_box_leaves_the_rest_where_it_is(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    before = stored(room)

    await alice.sent(*(message(f"m-{n}", payload="x" * 1_000) for n in range(10)))
    await bob.settle("nack", *await bob.deliveries(10), retry=False)
    await until(lambda: len(room.dead("bob")) == 5)
    refused = await answers(alice, *(message(f"n-{n}", payload="x" * 1_000) for n in range(10)))

    assert room.depth("bob") == 10
    assert {one["code"] for one in refused} == {"queue_full"}
    assert grown(room, before) < 15 * (MESSAGE_BYTES + 2 * 1_000) + 2 * MAILBOX_BYTES


# -- requests and replies


async def test_a_refused_request_leaves_no_task(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*(message(f"m-{n}") for n in range(10)))

    refused = await answers(alice, *(message(f"q-{n}", request=True) for n in range(5)))

    assert [one["code"] for one in refused] == ["queue_full"] * 5
    assert keys(room, "task") == keys(room, "tasks") == []


async def test_one_requester_has_so_many_tasks(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    for n in range(30):
        await alice.sent(message(f"q-{n}", request=True))
        (asked,) = await bob.deliveries(1)
        await bob.say("reply", entry=asked["entry"], payload=n, confirm=True)
        await bob.expect("settled")
        await alice.ack(await alice.delivery())

    await until(lambda: len(keys(room, "task")) == 10)
    assert room.redis.zcard(keys(room, "tasks")[0]) == 10


async def test_one_requester_over_http_has_so_many_tasks(room: Room) -> None:
    alice = caller(room, "alice")

    for n in range(20):
        await alice.send(f"bob-{n % 3}", f"q-{n}", request=True)

    await until(lambda: len(keys(room, "task")) == 10)
    assert (await alice.get("/v1/tasks/q-0")).status == 404
    assert (await alice.get("/v1/tasks/q-19"))["state"] == "queued"


async def test_a_reply_has_so_many_bytes_and_its_holder_is_told(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("q-1", request=True))
    asked = await bob.delivery()

    for _ in range(20):
        await bob.say("reply", entry=asked["entry"], payload="x" * 4_000, more=True)
    refused, *_ = (await bob.expect("refused"))["refusals"]
    await bob.say("reply", entry=asked["entry"], payload="the end", confirm=True)
    await bob.expect("settled")

    assert (refused["code"], refused["max"], refused["entry"]) == ("too_large", 20_000, asked["entry"])
    (task,) = keys(room, "task")
    assert room.redis.memory_usage(task) < 30_000
    assert keys(room, "parts") == []


async def test_a_reply_over_http_has_so_many_bytes_and_a_look_at_it_is_bounded(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    await alice.ask("bob", "q-1")
    held = await bob.lease_one()

    said = [await bob.settle("reply", held, payload="x" * 4_000, more=True) for _ in range(8)]
    found = await alice.get("/v1/tasks/q-1")

    assert [one.status for one in said] == [200] * 4 + [413] * 4
    assert said[-1].code == "too_large"
    assert len(found["parts"]) == 4
    assert len(found.text) < 21_000


async def test_answers_for_a_mailbox_that_stays_full_do_not_stay_in_the_outbox(room: Room) -> None:
    alice, bob = await room.agent("alice", window=1), await room.agent("bob", window=10)
    await alice.sent(*(message(f"q-{n}", request=True) for n in range(10)))
    asked = await bob.deliveries(10)
    await bob.sent(*(message(f"m-{n}", to="alice") for n in range(10)))

    for one in asked:
        for _ in range(4):
            await bob.say("reply", entry=one["entry"], payload="x" * 1_000, more=True, confirm=True)
            await bob.expect("settled", or_fail="refused")
    await bob.settled_down()

    (owed,) = keys(room, "owed")
    await until(lambda: room.redis.llen(owed) == 40, "every part is on its way from the outbox")
    assert room.redis.memory_usage(owed, samples=0) < 40 * 150
    await until(
        lambda: sum(room.redis.xlen(room.keys.outbox(shard)) for shard in range(4)) == 0,
        "the outbox has forgotten them",
    )


# -- receipts


async def test_receipts_that_nobody_reads_are_known_to_the_reaper(room: Room) -> None:
    alice, bob = caller(room, "alice"), await room.agent("bob")

    for n in range(5):
        await alice.send("bob", f"m-{n}", receipt=True)
    await bob.ack(*await bob.deliveries(5))
    await bob.settled_down()

    assert [key.rpartition(":")[2] for key in keys(room, "receipts")] == [room.address("alice")]
    address = room.address("alice")
    assert room.redis.hexists(room.keys.seen(room.keys.shard(address)), address)


async def test_a_sender_is_told_how_many_of_its_receipts_were_too_many(room: Room) -> None:
    stream = room.keys.receipts(room.address("alice"))
    room.redis.xadd(stream, {"count": 0, "receipts": "", "dropped": 7})
    room.redis.xadd(stream, {"count": 1, "receipts": "7\nm-9\tbob\t5"})

    alice = await room.agent("alice")
    frame = await alice.expect("receipts")

    assert ([one["id"] for one in frame["receipts"]], frame["dropped"]) == (["m-9"], 7)


# -- what a sender can begin


async def test_one_sender_makes_so_many_mailboxes(room: Room) -> None:
    alice = await room.agent("alice")
    before = stored(room)

    refused = await answers(alice, *(message(to=f"nobody-{n}") for n in range(200)))

    assert {one["code"] for one in refused} == {"rate_limited"}
    assert all(0 < one["retry_after_ms"] <= 7 * 86_400_000 for one in refused)
    assert 20 <= len(keys(room, "box")) <= MAILBOXES
    assert grown(room, before) < MAILBOXES * MAILBOX_BYTES


async def test_one_sender_over_http_makes_so_many_mailboxes(room: Room) -> None:
    alice = caller(room, "alice")
    before = stored(room)

    said = [await alice.post(f"/v1/agents/nobody-{n}/messages", {"payload": n}) for n in range(60)]

    assert {one.said for one in said if one.status != 202} == {(429, "rate_limited")}
    assert len(keys(room, "box")) <= MAILBOXES
    assert grown(room, before) < MAILBOXES * MAILBOX_BYTES


async def test_a_mailbox_that_nobody_uses_goes_with_its_last_message(room: Room) -> None:
    alice = caller(room, "alice")
    await alice.send("warm-up", "m-1")
    await alice.delete("/v1/agents/warm-up/messages/m-1")
    before = stored(room, lasting=True)

    for n in range(5):
        await alice.send(f"nobody-{n}", "m-1", priority=n)
        assert (await alice.delete(f"/v1/agents/nobody-{n}/messages/m-1")).status == 200

    assert stored(room, lasting=True).keys() == before.keys()


async def test_one_sender_begins_so_many_threads(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    before = stored(room)

    refused = []
    for n in range(100):
        refused += await answers(alice, message(f"m-{n}", thread=f"{'t' * 100}-{n}"))
        if not refused:
            await bob.ack(await bob.delivery())
    unthreaded = await answers(alice, message("plain"))

    assert (len(refused), {one["code"] for one in refused}) == (80, {"rate_limited"})
    assert unthreaded == []
    assert grown(room, before) < 100 * THREAD_BYTES


async def test_one_remote_address_registers_so_many_agents_by_fresh_keys(room: Room) -> None:
    async def register(n: int) -> str:
        address = room.address(f"fresh-{n}")
        agent = await room.socket(address)
        hello = await agent.expect("hello")
        await agent.say("auth", **Key().auth(hello, address))
        first = (await until(lambda: agent.inbox))[0]
        return str(first.get("code", first["op"]))

    said = [await register(n) for n in range(12)]

    assert said[0] == "welcome"
    assert set(said[-3:]) == {"rate_limited"}


# -- topics and blocks


async def test_a_session_follows_so_many_topics(room: Room) -> None:
    alice = await room.agent("alice")
    for n in range(10):
        await alice.say("subscribe", topics=[f"{n}-{m}" for m in range(100)])
        await alice.expect("subscribed")

    await alice.say("subscribe", topics=["one too many"])
    error = await alice.error()
    await alice.say("unsubscribe", topics=["0-0"])
    left = await alice.expect("subscribed")

    assert (error["code"], error["max"]) == ("malformed", 1_000)
    assert len(left["topics"]) == 999


async def test_an_answer_about_topics_is_bounded(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.say("subscribe", topics=[f"{n:0128d}" for n in range(300)])

    assert (await alice.error())["code"] == "malformed"


async def test_an_agent_blocks_so_many_senders(room: Room) -> None:
    alice = await room.agent("alice")
    before = stored(room)

    for n in range(3):
        await alice.say("block", agents=[f"{'b' * 50}-{n}-{m}" for m in range(500)])
    await alice.error()

    assert grown(room, before) < 1_000 * 130


# -- afterwards


async def use_everything(room: Room) -> None:
    """Goes to every limit that leaves something in the store, over both doors."""
    alice, bob = await room.agents("alice", "bob")
    await answers(alice, *(message(to=f"nobody-{n}", priority=n % 3) for n in range(50)))
    for n in range(5):
        await alice.sent(message(f"q-{n}", thread=f"t-{n}", request=True, max_attempts=5))
        asked = await bob.delivery()
        await bob.say("reply", entry=asked["entry"], payload="x" * 500, more=True, confirm=True)
        await bob.expect("settled")
        await bob.settle("nack", asked, delay_s=0)
        asked = await bob.delivery()
        await bob.say("reply", entry=asked["entry"], payload=n, confirm=True)
        await bob.expect("settled")
    await alice.say("block", agents=[f"bad-{n}" for n in range(100)])
    await alice.expect("blocks")
    poller = caller(room, "poller")
    await poller.put("/v1/agents/poller", {"card": {"about": "x" * 1_000}})
    await poller.ask("bob", "http-1")
    await poller.lease(wait_s=0.1)
    await alice.close()
    await bob.close()


async def let_time_pass(store: Store, *steps: Any) -> None:
    """What workers do, at the time that the store's clock shows."""
    for shard in range(store.keys.shards):
        for step in steps:
            await step(store, shard, store.clock.now_ms())
    await store.pipeline.finish()


async def test_when_a_client_has_left_and_time_has_passed_the_store_is_as_before(room: Room) -> None:
    settings = Settings(**(SETTINGS | {"open_tenants": ("*",)}))
    away_s = settings.agent_idle_s + 2 * settings.message_ttl_s
    clock = HandClock(round(time.time() * 1_000) + away_s * 1_000)
    reap_shard = idle.IdleReaper().reap_shard
    steps = (sweeper.sweep_shard, overdue.check_shard, receipts.forward_shard, reap_shard)
    async with open_store(settings, room.relay.server.url, clock=clock) as store:
        await let_time_pass(store, *steps)
        before = stored(room, lasting=True)

        await use_everything(room)
        used = stored(room, lasting=True)
        await let_time_pass(store, *steps)
        await let_time_pass(store, reap_shard)  # receipts of what expired, and who was only kept for them

        after = stored(room, lasting=True)
    assert sum(used.values()) > sum(before.values()) + 50_000
    assert after.keys() <= before.keys()
    assert sum(after.values()) < sum(before.values()) + 2_000
