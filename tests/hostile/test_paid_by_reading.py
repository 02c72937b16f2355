"""Questions that read whole mailboxes: whoever asks pays for what the store reads, and no more is read than is paid."""

import asyncio
from typing import Any

from tests.agents import Agent, Frame, message, until
from tests.callers import Answer, Caller, caller
from tests.system.conftest import Room

PER_S, BURST = 1, 100
SETTINGS = {"rate_per_s": PER_S, "rate_burst": BURST, "open_tenants": "*"}
LARGE = "x" * 60_000
A_LOOK = 9  # messages of that size that one look of a lease reads, at most
A_PAGE = 20  # and one page of a sync


async def fill(room: Room, count: int, **fields: Any) -> None:
    alice = await room.agent("alice")
    for n in range(0, count, 20):
        await alice.sent(*(message(f"m-{n + k}", to="bob", payload=LARGE, **fields) for k in range(20)))
    await alice.close()


async def lease(bob: Caller, **body: Any) -> Answer:
    return await bob.post("/v1/agents/bob/lease", body)


async def test_a_lease_pays_for_what_it_reads_of_other_types(room: Room) -> None:
    await fill(room, 80, type="common")
    bob = caller(room, "bob")

    answers = await asyncio.gather(*(lease(bob, types=["none"]) for _ in range(30)))

    found = [one for one in answers if one.status == 200]
    refused = [one for one in answers if one.status == 429]
    assert len(found) * (80 / A_LOOK) < BURST + 10 * PER_S
    assert len(found) + len(refused) == 30
    assert all(one.body["error"]["retry_after_ms"] > 0 for one in refused)
    assert {one.code for one in refused} == {"rate_limited"}


async def test_a_search_that_is_refused_has_leased_nothing(room: Room) -> None:
    await fill(room, 40, type="common")
    bob = caller(room, "bob")
    while (await lease(bob, types=["none"])).status == 200:
        pass

    assert {holder for holder, _ in room.holders("bob").values()} == {"~ready"}


async def test_a_lease_that_reads_little_of_others_costs_little(room: Room) -> None:
    alice, bob = caller(room, "alice"), caller(room, "bob")
    for n in range(5):
        await alice.send("bob", f"other-{n}", type="common")

    answers = [await lease(bob, types=["none"]) for _ in range(BURST * 2)]

    assert {one.status for one in answers} == {200}


async def test_a_search_finds_what_is_behind_all_the_others(room: Room) -> None:
    await fill(room, 80, type="common")
    await caller(room, "carol").send("bob", "wanted", type="rare")

    (leased,) = await caller(room, "bob").lease(types=["rare"])

    assert leased["id"] == "wanted"


async def test_a_search_that_waits_reads_nothing_twice_when_it_is_woken(room: Room) -> None:
    """Else each message of another type would cost it as much as the first look."""
    await fill(room, 80, type="common")
    carol = caller(room, "carol")
    waiting = asyncio.create_task(lease(caller(room, "bob"), types=["rare"], wait_s=20))
    await until(lambda: any(line.endswith("\tpuller") for line in _presence(room, "bob")))

    for n in range(20):
        await carol.send("bob", f"other-{n}", type="common")
    await carol.send("bob", "wanted", type="rare")
    answer = await waiting

    assert [one["id"] for one in answer["messages"]] == ["wanted"]


def _presence(room: Room, agent: str) -> list[str]:
    address = room.address(agent)
    lines = room.redis.hget(room.keys.presence(room.keys.shard(address)), address) or ""
    return ["\t".join(line.split("\t")[:2]) for line in lines.split("\n")]


async def _sync_answers(agent: Agent, count: int) -> list[Frame]:
    for _ in range(count):
        await agent.say("sync", peer="bob", thread="")
    await until(lambda: len(agent.got("sync_state")) + len(agent.got("error")) >= count)
    return agent.got("sync_state")


async def test_a_sync_pays_for_each_page_of_a_mailbox(room: Room) -> None:
    await fill(room, 80)
    eve = await room.agent("eve")
    eve.inbox.clear()

    answered = await _sync_answers(eve, 30)

    assert len(answered) * (80 / A_PAGE) < BURST + 10 * PER_S
    assert answered[0]["sent"] == {"last_seq": 0, "settled_seq": 0}
    assert {one["code"] for one in eve.got("error")} == {"rate_limited"}
    assert all(one["retry_after_ms"] > 0 for one in eve.got("error"))
