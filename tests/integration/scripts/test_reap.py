"""reap: what is kept for agents that have been away for long is given back."""

import pytest

from tests.builders import ALICE, BOB, NOON_MS, Desk, a_message
from workers import idle
from workers.idle import IDLE_MS, IdleReaper

LONG_AGO_MS = 0


async def reap(desk: Desk, known_before_ms: int = LONG_AGO_MS) -> str:
    (word,) = await desk.store.reaping.reap(0, [BOB], 0, known_before_ms)
    return word


async def test_an_empty_mailbox_that_nobody_serves_is_reaped(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2", priority=5))
    bob = await desk.join()
    taken = await desk.take(bob)
    await desk.ack(bob, *(row.entry for row in taken))
    await desk.leave(bob)
    before = desk.redis.exists(desk.keys.box(BOB), desk.keys.box(BOB, 5))

    word = await reap(desk)

    assert before == 2
    assert word == "reaped"
    assert desk.redis.exists(desk.keys.box(BOB), desk.keys.box(BOB, 5)) == 0
    assert desk.redis.hgetall(desk.shard_key("lanes")) == {}


async def test_a_mailbox_with_mail_in_any_lane_is_in_use(desk: Desk) -> None:
    await desk.send_one(a_message("1", priority=5))

    assert await reap(desk) == "in_use"
    assert desk.depth(priority=5) == 1


async def test_a_served_mailbox_is_in_use(desk: Desk) -> None:
    await desk.join()

    assert await reap(desk) == "in_use"


async def test_a_reaped_mailbox_works_as_a_new_one(desk: Desk) -> None:
    await desk.send_one(a_message("1", priority=5))
    await desk.cancel("1")
    await reap(desk)

    sent = await desk.send(a_message("2"), a_message("3", priority=5))
    bob = await desk.join()
    taken = await desk.take(bob)

    assert [row.entry for row in taken] == [sent[1].entry, sent[0].entry]


async def test_a_mailbox_that_nobody_ever_used_goes_with_its_last_message(desk: Desk) -> None:
    before = set(desk.redis.keys(f"{desk.keys.tag(0)}*"))
    await desk.send(a_message("1"), a_message("2", priority=5))

    for id in ("1", "2"):
        await desk.cancel(id)

    left = {key.rpartition("}:")[2].partition(":")[0] for key in set(desk.redis.keys(f"{desk.keys.tag(0)}*")) - before}
    assert left == {"ended", "events", "seqs", "totals"}


async def test_an_agent_that_has_been_away_for_long_is_forgotten(desk: Desk) -> None:
    await desk.leave(await desk.join())
    await desk.store.agents.change_blocks(BOB, [ALICE], [])

    words = [await reap(desk, known_before_ms=NOON_MS), await reap(desk, known_before_ms=NOON_MS + 1)]

    assert words == ["reaped", "forgotten"]
    for name in ("agents", "seen", "blocks", "roster"):
        assert desk.redis.exists(desk.shard_key(name)) == 0


async def test_one_that_an_admin_registered_stays(desk: Desk) -> None:
    await desk.store.agents.register(BOB, by_admin=True)

    assert await reap(desk, known_before_ms=NOON_MS + 1) == "reaped"
    assert await desk.store.agents.registration(BOB) is not None


@pytest.mark.parametrize(("in_s", "word"), [(100, "reaped"), (3_650 * 86_400, "forgotten")])
async def test_one_that_is_expected_soon_stays(desk: Desk, in_s: int, word: str) -> None:
    await desk.leave(await desk.join())
    desk.clock.advance(1_000)
    await desk.store.presence.expect(BOB, desk.clock.now_ms() + in_s * 1_000)

    assert await reap(desk, known_before_ms=NOON_MS + 1) == word


async def test_dead_letters_and_receipts_keep_an_agent_known(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("1"))
    taken = await desk.take_one(bob)
    await desk.nack(bob, taken.entry, retry=False)
    await desk.leave(bob)

    assert await reap(desk, known_before_ms=NOON_MS + 1) == "reaped"
    assert len(desk.dead_letters()) == 1


async def test_receipts_of_a_sender_that_never_had_a_session_go_in_time(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("1"))
    await desk.ack(bob, (await desk.take_one(bob)).entry)
    await desk.receipts(ALICE)

    await IdleReaper().reap_shard(desk.store, 0, int(desk.redis.time()[0]) * 1_000)  # stream ids have the server's time
    kept = desk.redis.exists(desk.keys.receipts(ALICE))
    desk.clock.advance(desk.store.settings.agent_idle_s + desk.store.settings.message_ttl_s)
    await IdleReaper().reap_shard(desk.store, 0, desk.clock.now_ms())

    assert kept == 1
    assert desk.redis.exists(desk.keys.receipts(ALICE)) == 0
    assert desk.redis.hkeys(desk.keys.seen(0)) == [BOB]


async def test_who_was_here_lately_is_left_alone(desk: Desk) -> None:
    await desk.leave(await desk.join())

    assert await IdleReaper().reap_shard(desk.store, 0, desk.clock.now_ms()) == 0
    assert await IdleReaper().reap_shard(desk.store, 0, desk.clock.now_ms() + IDLE_MS + 1) == 1


async def test_an_agent_that_was_registered_and_never_came_is_forgotten_too(desk: Desk) -> None:
    await desk.store.agents.register(BOB, mode="shared")

    desk.clock.advance(desk.store.settings.agent_idle_s + 1)
    await IdleReaper().reap_shard(desk.store, 0, desk.clock.now_ms())

    assert await desk.store.agents.registration(BOB) is None


async def test_a_round_looks_at_some_agents_and_the_next_at_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.send(*(a_message("1", to=f"acme/away-{number}") for number in range(300)))
    monkeypatch.setattr(idle, "PAGE", 50)
    monkeypatch.setattr(idle, "AGENTS_PER_ROUND", 100 * desk.keys.shards)
    looked_at: list[str] = []
    reap = desk.store.reaping.reap

    async def looking(shard: int, addresses: list[str], *times_ms: int) -> list[str]:
        looked_at.extend(addresses)
        return await reap(shard, addresses, *times_ms)

    monkeypatch.setattr(desk.store.reaping, "reap", looking)
    reaper, after_each = IdleReaper(), []
    for _ in range(10):
        await reaper.reap_shard(desk.store, 0, desk.clock.now_ms())
        after_each.append(len(looked_at))

    assert 0 < after_each[0] < 150
    assert set(looked_at) == {f"acme/away-{number}" for number in range(300)}
