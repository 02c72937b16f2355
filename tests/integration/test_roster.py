"""The roster: who is registered or has mail, and what each tenant has of everything."""

import pytest

from relay.store.agents import roster
from relay.store.agents.roster import Sums
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk

NOTHING = Sums(0, 0, 0, 0, 0)


async def test_who_registers_stands_on_the_roster(desk: Desk) -> None:
    await desk.store.agents.register(BOB, mode="shared")
    await desk.store.agents.is_key_of("a key", ALICE)
    await desk.join(CAROL)

    assert desk.roster() == [ALICE, BOB, CAROL]


async def test_who_is_forgotten_stands_on_it_no_more(desk: Desk) -> None:
    await desk.join()
    await desk.send_one(a_message())

    assert await desk.store.agents.remove(BOB, force=True) == "removed"

    assert desk.roster() == []
    assert desk.sums() == {}


async def test_a_stranger_stands_on_it_while_it_has_mail(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2", priority=4))

    assert desk.roster() == [BOB]
    await desk.cancel("1")
    assert desk.roster() == [BOB]
    await desk.cancel("2")
    assert desk.roster() == []


async def test_a_stranger_whose_last_message_expires_is_struck(desk: Desk) -> None:
    await desk.send(a_message("short", ttl_s=5), a_message("long", to=CAROL))

    desk.clock.advance(6)
    await desk.overdue()
    assert desk.roster() == [CAROL]
    desk.clock.advance(desk.store.settings.message_ttl_s)
    await desk.expire(CAROL)
    assert desk.roster() == []


async def test_a_registered_agent_stays_when_its_mailbox_empties(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message())
    taken = await desk.take_one(bob)

    await desk.ack(bob, taken.entry)
    await desk.leave(bob)

    assert desk.roster() == [BOB]


async def test_a_stranger_that_waits_over_http_stands_on_it_while_it_has_mail(desk: Desk) -> None:
    await desk.store.leases.watch(BOB, f"{desk.store.instance}.http.1", 1_000)
    await desk.send_one(a_message())

    assert desk.roster() == [BOB]


async def test_what_is_revived_brings_a_stranger_back(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message())
    await desk.take_one(bob)
    await desk.nack(bob, sent.entry, retry=False)
    desk.redis.delete(desk.keys.roster(0), desk.keys.agents(0))
    (letter,) = [entry for entry, _ in desk.raw_range(desk.keys.dead(BOB))]

    await desk.store.dead_letters.revive(BOB, [letter])

    assert desk.roster() == [BOB]
    assert desk.sums() == {"messages": 1, "bytes": 7, "online": 1}


async def test_a_page_has_only_agents_of_its_tenant(desk: Desk) -> None:
    for address in ("acme-2/x", "acme.b/x", "acme/a", "acme/b", "acme/c", "acme0/x", "acm/x"):
        await desk.store.agents.register(address)
    roster = desk.store.roster

    assert await roster.page(0, "acme", "", 2) == ["acme/a", "acme/b"]
    assert await roster.page(0, "acme", "acme/b", 2) == ["acme/c"]
    assert await roster.sums("acme") == Sums(3, 0, 0, 0, 0)


async def test_sums_follow_whatever_happens(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send(
        *(a_message(f"m-{n}", payload="four") for n in range(4)), a_message("late", ttl_s=5, payload="four")
    )
    assert await desk.store.roster.sums("acme") == Sums(agents=1, messages=5, bytes=30, dead=0, online=1)

    first, second, *_ = await desk.take(bob, room=4)
    await desk.ack(bob, first.entry)
    await desk.nack(bob, second.entry, retry=False)
    await desk.cancel("m-3")
    desk.clock.advance(6)
    await desk.overdue()
    assert await desk.store.roster.sums("acme") == Sums(agents=1, messages=2, bytes=12, dead=1, online=1)

    (letter,) = [entry for entry, _ in desk.raw_range(desk.keys.dead(BOB))]
    assert await desk.store.dead_letters.drop(BOB, [letter]) == [True]
    assert await desk.store.dead_letters.drop(BOB, [letter]) == [False]
    await desk.leave(bob)
    assert await desk.store.roster.sums("acme") == Sums(agents=1, messages=2, bytes=12, dead=0, online=0)
    assert await desk.store.roster.sums("other") == NOTHING


async def test_a_second_session_is_not_a_second_agent_online(desk: Desk) -> None:
    first = await desk.join(mode="shared")
    second = await desk.join(mode="shared")
    await desk.leave(first)
    assert desk.sums() == {"online": 1}

    await desk.leave(second)

    assert desk.sums() == {}


async def test_the_oldest_of_a_tenant_is_found_behind_older_mail_of_others(desk: Desk) -> None:
    for n in range(150):
        await desk.send_one(a_message(to=f"other/{n:03d}"), sender="other/x")
    desk.clock.advance(1)
    await desk.send_one(a_message())

    assert await desk.store.roster.oldest_ms("acme") == desk.clock.now_ms()
    assert await desk.store.roster.oldest_ms("nobody") is None


async def test_the_oldest_mail_is_not_looked_for_behind_that_of_many_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "OLDEST_AT_ONCE", 2)
    monkeypatch.setattr(roster, "MOST_OLDER", 4)
    for n in range(4):
        await desk.send_one(a_message(to=f"other/{n}"), sender="other/x")
        desk.clock.advance(1)
    await desk.send_one(a_message())

    assert await desk.store.roster.oldest_ms("acme") is None
    assert await desk.store.roster.oldest_ms("other") == NOON_MS


async def test_names_are_spread_over_shards(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=4)
    names = [f"acme/{n}" for n in range(20)]
    for name in names:
        await desk.store.agents.register(name)

    pages = [await desk.store.roster.page(shard, "acme", "", 100) for shard in range(4)]

    assert sorted(name for page in pages for name in page) == sorted(names)
    assert (await desk.store.roster.sums("acme")).agents == 20
