"""Questions that are small to ask: none may read a mailbox, a box of dead letters, a log or a list of agents whole.

What Redis is made to do is seen with MONITOR, which also shows the commands of scripts, so that no test depends on how
fast the machine is.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.agents import Agent, message, until
from tests.callers import caller
from tests.system.conftest import Room

SETTINGS = {"shards": 4, "rate_per_s": 0, "mailbox_max_messages": 1_000}
LARGE = "x" * 50_000
MOST_MESSAGES_AT_ONCE = 20  # that one command may read from a mailbox
MOST_BYTES = 2_000_000  # of one answer


@dataclass
class Seen:
    """The commands that Redis has carried out, each as its words."""

    commands: list[list[str]]

    def reads(self, kind: str) -> list[list[str]]:
        """Reads of streams of this kind: box, dead or events."""
        return [one for one in self.commands if one[0] in ("XRANGE", "XREVRANGE") and f":{kind}" in one[1]]

    def reads_a_call(self, kind: str) -> list[int]:
        """How many reads of streams of this kind each call of a script has made."""
        counts = [0]
        for command, *words in self.commands:
            if command == "EVALSHA":
                counts.append(0)
            elif command in ("XRANGE", "XREADGROUP") and any(f":{kind}:" in word for word in words):
                counts[-1] += 1
        return counts

    def whole_reads(self) -> list[list[str]]:
        """What grows with the number of everybody's agents."""
        shared = (":agents", ":seen", ":caps", ":waiting")
        return [one for one in self.commands if one[0] in ("HKEYS", "HGETALL", "ZRANGE") and _is_whole(one, shared)]


def _is_whole(words: list[str], shared: tuple[str, ...]) -> bool:
    return words[1].endswith(shared) and (words[0] != "ZRANGE" or words[2:4] == ["0", "-1"])


def counts(reads: list[list[str]]) -> list[int]:
    """How many entries each read asked for at most; a read of one named entry is one."""
    return [_count(words) for words in reads]


def _count(words: list[str]) -> int:
    if words[2] == words[3]:
        return 1
    upper = [word.upper() for word in words]
    return int(words[upper.index("COUNT") + 1]) if "COUNT" in upper else 1_000_000


@contextmanager
def watching(room: Room) -> Iterator[Seen]:
    """Sees every command from here to the end of the block."""
    seen = Seen([])
    mark = f"mark {time.monotonic_ns()}"
    with room.redis.monitor() as monitor:
        yield seen
        room.redis.echo(mark)
        for one in monitor.listen():
            if mark in one["command"]:
                return
            command, *words = one["command"].split(" ")
            seen.commands.append([command.upper(), *words])


@pytest.fixture
async def eve(room: Room) -> Agent:
    return await room.agent("eve")


async def fill(room: Room, count: int, to: str = "bob", **fields: object) -> Agent:
    """A mailbox with so many large messages, and who sent them."""
    alice = await room.agent("alice")
    for n in range(0, count, 20):
        await alice.sent(*(message(f"m-{n + k}", to=to, payload=LARGE, **fields) for k in range(20)))
    return alice


async def bury(room: Room, count: int) -> None:
    await fill(room, count)
    bob = await room.agent("bob", window=count)
    await bob.settle("nack", *await bob.deliveries(count), retry=False)
    await until(lambda: len(room.dead("bob")) == count)
    await bob.close()


async def test_a_sync_of_a_thread_reads_no_message(room: Room) -> None:
    alice = await fill(room, 60, thread="t")

    with watching(room) as seen:
        for _ in range(10):
            await alice.say("sync", peer="bob", thread="t")
        states = [await alice.expect("sync_state") for _ in range(10)]

    assert seen.reads("box") == []
    assert states[0]["sent"] == {"last_seq": 60, "settled_seq": 0}
    assert states[0]["pending"] == 60


async def test_a_sync_without_a_thread_reads_few_messages_at_a_time(room: Room) -> None:
    alice = await fill(room, 60)

    with watching(room) as seen:
        await alice.say("sync", peer="bob", thread="")
        state = await alice.expect("sync_state")

    assert max(counts(seen.reads("box"))) <= MOST_MESSAGES_AT_ONCE
    assert state["pending"] == 60


async def test_one_session_has_so_many_questions_under_way(room: Room, eve: Agent) -> None:
    await fill(room, 60)
    eve.inbox.clear()

    await asyncio.gather(*(eve.say("sync", peer="bob") for _ in range(300)))
    await until(lambda: len(eve.got("sync_state")) + len(eve.got("error")) == 300)

    assert {one["code"] for one in eve.got("error")} == {"rate_limited"}
    assert len(eve.got("sync_state")) >= 50


async def test_a_join_reads_few_messages(room: Room) -> None:
    alice = await fill(room, 60)
    await alice.close()

    with watching(room) as seen:
        bob = await room.agent("bob", window=1)

    assert max(counts(seen.reads("box"))) <= MOST_MESSAGES_AT_ONCE
    assert sum(counts(seen.reads("box"))) <= 2 * MOST_MESSAGES_AT_ONCE
    assert bob.queue_status["pending"] == 60


@pytest.mark.parametrize("leases", [1, 20])
async def test_a_lease_of_other_types_reads_few_messages_at_a_time(room: Room, leases: int) -> None:
    alice = await fill(room, 60, type="common")
    await alice.sent(message("behind them", type="rare"))
    bob = caller(room, "bob")

    with watching(room) as seen:
        found = await asyncio.gather(*(bob.lease(types=["none"]) for _ in range(leases)))
        (rare,) = await bob.lease(types=["rare"])

    assert found == [[]] * leases
    assert rare["id"] == "behind them"
    assert max(seen.reads_a_call("box")) <= 2 * MOST_MESSAGES_AT_ONCE


async def test_presence_of_a_thousand_agents_is_a_few_commands(room: Room, eve: Agent) -> None:
    names = [f"agent-{n}" for n in range(1_000)]

    with watching(room) as seen:
        await eve.say("presence", agents=[*names[1:], "eve"])
        answer = await eve.expect("presence")

    assert len(answer["agents"]) == 1_000
    assert answer["agents"][room.address("eve")]["online"]
    assert len([one for one in seen.commands if one[0] in ("HGET", "HMGET", "HGETALL")]) < 50


@pytest.mark.parametrize("scope", ["receive", "receive inspect"])
async def test_pages_of_dead_letters_are_bounded_in_bytes(room: Room, scope: str) -> None:
    await bury(room, 60)
    bob = caller(room, "bob", scope)
    ids: list[str] = []
    query: dict[str, str] = {}

    with watching(room) as seen:
        while True:
            page = await bob.get("/v1/agents/bob/dead", limit=1_000, **query)
            assert len(page.text) < MOST_BYTES
            ids += [one["id"] for one in page["messages"]]
            if "cursor" not in page.body:
                break
            query = {"cursor": page["cursor"]}

    assert ids == [f"m-{n}" for n in range(60)]
    assert query != {}
    assert max(counts(seen.reads("dead"))) <= MOST_MESSAGES_AT_ONCE


async def test_pages_of_a_mailbox_are_bounded_in_bytes(room: Room) -> None:
    await fill(room, 60)
    eve = caller(room, "eve", "inspect")

    with watching(room) as seen:
        page = await eve.get("/v1/agents/bob/messages", limit=1_000)

    assert len(page.text) < MOST_BYTES
    assert 10 < len(page["messages"]) < 60
    assert "cursor" in page.body
    assert max(counts(seen.reads("box"))) <= MOST_MESSAGES_AT_ONCE


@pytest.mark.parametrize("path", ["/v1/agents?limit=1000", "/v1/stats", "/v1/anomalies"])
async def test_a_look_at_ones_own_tenant_does_not_read_everybodys(room: Room, path: str) -> None:
    for n in range(10):
        await caller(room, f"{room.tenant}-b/x{n}", "receive").put(f"/v1/agents/x{n}", {})
    await caller(room, "bob", "receive").put("/v1/agents/bob", {})
    eve = caller(room, "eve", "inspect send")

    with watching(room) as seen:
        answer = await eve.get(path)

    assert answer.status == 200
    assert seen.whole_reads() == []
    assert [one for one in seen.commands if any(f"{room.tenant}-b/" in word for word in one[1:])] == []


async def test_cards_do_not_make_a_page_of_agents_large(room: Room) -> None:
    card = {"about": "c" * 15_000}
    names = [f"agent-{n:03d}" for n in range(150)]
    await asyncio.gather(*(caller(room, name, "receive").put(f"/v1/agents/{name}", {"card": card}) for name in names))
    eve = caller(room, "eve", "send")

    first = await eve.get("/v1/agents", limit=1_000)
    rest = await eve.get("/v1/agents", limit=1_000, cursor=first["cursor"])

    assert len(first.text) < MOST_BYTES
    assert {one["agent"] for one in first["agents"] + rest["agents"]} >= {room.address(name) for name in names}


async def test_a_cursor_does_not_lead_into_another_tenant(room: Room) -> None:
    await caller(room, f"{room.tenant}-b/x", "receive").put("/v1/agents/x", {})
    eve = caller(room, "eve", "send inspect")
    shard = room.keys.shard(f"{room.tenant}-b/x")

    for path in ("/v1/agents", "/v1/anomalies"):
        for cursor in (f"{shard}:{room.tenant}-b/", f"{shard}:", f"{shard}:a", f"{shard}:{room.tenant}-b/w"):
            assert (await eve.get(path, cursor=cursor)).said == (400, "malformed")


async def test_activity_is_found_behind_the_events_of_others_a_few_entries_at_a_time(room: Room) -> None:
    other = await room.agent(f"{room.tenant}-b/loud")
    for n in range(0, 1_000, 100):
        await other.sent(*(message(f"m-{n + k}", to="loud") for k in range(100)))
    await caller(room, "alice").send("bob", "mine")
    eve = caller(room, "eve", "inspect")

    with watching(room) as seen:
        found = await eve.get("/v1/activity", message="mine")

    assert [one["kind"] for one in found["events"]] == ["accepted"]
    assert found["complete"]
    assert max(counts(seen.reads("events"))) <= MOST_MESSAGES_AT_ONCE


async def test_a_record_that_cannot_be_read_hides_no_other(room: Room) -> None:
    for name in ("bob", "carol"):
        await caller(room, name, "receive").put(f"/v1/agents/{name}", {})
    bob = room.address("bob")
    room.redis.hset(room.keys.seen(room.keys.shard(bob)), bob, "1.8e+12\t4.5035996273705e+15")
    eve = await room.agent("eve")

    listed = await caller(room, "eve", "send").get("/v1/agents")
    await eve.say("presence", agents=["bob", "carol"])
    seen = (await eve.expect("presence"))["agents"]

    assert {one["agent"] for one in listed["agents"]} >= {bob, room.address("carol")}
    assert seen[bob] == {"online": False, "last_seen_ms": None}
