"""A record that cannot be read stops nothing: it is set aside, and all else goes on."""

import logging
from contextlib import suppress

import msgspec
import pytest
import redis

from tests.builders import ALICE, BOB, Desk, Puller, a_message, delivered, free_search
from tests.conftest import MakeDesk
from tests.records import a_record, letters, unreadable, without_content, without_form
from workers.overdue import check_shard
from workers.sweeper import sweep_shard

LANES = (0, 5, 9)
KINDS = sorted(unreadable(BOB))


def put(desk: Desk, record: list[bytes], priority: int = 0, box: str = "") -> str:
    """Into a mailbox as a hand would."""
    return str(desk.redis.execute_command("XADD", box or desk.keys.box(BOB, priority), "*", *record))


def hold_all(desk: Desk, bob: Puller, priority: int = 0) -> None:
    """Gives a session all there is, read or unread, as a release did that could not tell."""
    box = desk.keys.box(BOB, priority)
    with suppress(redis.ResponseError):  # it is there already
        desk.redis.xgroup_create(box, "agent", "0")
    desk.redis.eval("redis.call('XREADGROUP', 'GROUP', 'agent', ARGV[1], 'STREAMS', KEYS[1], '>')", 1, box, bob.name)


async def taken_in_order(desk: Desk, bob: Puller) -> list[str]:
    """The ids of all there is to take, in the order in which a session gets them."""
    found: list[str] = []
    while rows := await desk.take(bob, room=7):
        found += [delivered(row)["id"] for row in rows]
        await desk.ack(bob, *(row.entry for row in rows))
        await desk.store.pipeline.finish()
    if bob.was_cut:
        found += await taken_in_order(desk, bob)
    return found


async def buried(desk: Desk) -> list[str]:
    """The reasons of all dead letters, once the worker has been there."""
    await check_shard(desk.store, 0, desk.clock.now_ms())
    _, page = await desk.store.dead_letters.page(BOB, "", 1_000)
    return [letter.reason for letter in page]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_behind_it_is_given_and_it_is_buried(desk: Desk, kind: str) -> None:
    await desk.send_one(a_message("before"))
    put(desk, unreadable(BOB)[kind])
    await desk.send_one(a_message("behind"))
    bob = await desk.join()

    given = await taken_in_order(desk, bob)

    assert given == ["before", "behind"]
    assert await buried(desk) == ["unreadable"]
    assert (desk.depth(), desk.holders()) == (0, {})
    assert desk.redis.hget(desk.keys.totals(0), "unreadable") == "1"


async def fill(desk: Desk) -> int:
    """Every kind in every lane, with mail before and behind. Returns how many there are."""
    count = 0
    for lane in LANES:
        await desk.send_one(a_message(f"before-{lane}", priority=lane))
        for record in unreadable(BOB, lane).values():
            put(desk, record, lane)
            count += 1
        await desk.send_one(a_message(f"behind-{lane}", priority=lane))
    return count


IN_ORDER = [f"{where}-{lane}" for lane in sorted(LANES, reverse=True) for where in ("before", "behind")]


@pytest.mark.parametrize("ack_timeout_s", [0, 30])
async def test_a_session_gets_all_the_rest_in_order(desk: Desk, ack_timeout_s: float) -> None:
    count = await fill(desk)
    bob = await desk.join(ack_timeout_s=ack_timeout_s)

    given = await taken_in_order(desk, bob)

    assert given == IN_ORDER
    assert await buried(desk) == ["unreadable"] * count
    assert [desk.depth(priority=lane) for lane in LANES] == [0, 0, 0]


async def test_a_session_gets_its_backlog_and_hears_that_it_is_through(desk: Desk) -> None:
    await fill(desk)
    bob, joined = await desk.join_at_backlog()

    given = await taken_in_order(desk, bob)

    assert joined.pending == len(IN_ORDER) + len(LANES) * len(KINDS)
    assert given == IN_ORDER


@pytest.mark.parametrize("types", [None, ["none", ""]])
async def test_leases_give_all_the_rest_in_order(desk: Desk, types: list[str] | None) -> None:
    count = await fill(desk)
    given: list[str] = []

    while leased := await desk.store.leases.take(
        BOB, 3, 2**20, free_search(*types) if types else None, 30_000, "w1", desk.clock.now_ms()
    ):
        given += [delivered(row)["id"] for row, _ in leased]

    assert given == IN_ORDER
    assert await buried(desk) == ["unreadable"] * count


async def test_an_empty_look_still_says_that_there_is_nothing(desk: Desk) -> None:
    put(desk, a_record(BOB, body=b"no"))

    leased = await desk.store.leases.take(BOB, 1, 2**20, None, 30_000, "w1", desk.clock.now_ms())

    assert leased == []


async def test_what_an_earlier_release_has_given_out_is_released_and_buried(desk: Desk) -> None:
    """It held what it could not deliver, and lost its session over that."""
    bob = await desk.join()
    count = await fill(desk)
    for lane in LANES:
        hold_all(desk, bob, lane)
    await desk.leave(bob)
    again = await desk.join()

    given = await taken_in_order(desk, again)

    assert sorted(given) == sorted(IN_ORDER)
    assert await buried(desk) == ["unreadable"] * count


@pytest.mark.parametrize("how", ["ack", "nack", "release", "touch"])
async def test_a_holder_can_settle_it_all_the_same(desk: Desk, how: str) -> None:
    await desk.send_one(a_message("first"))
    bob = await desk.join()
    await desk.take(bob)
    entries = [put(desk, record) for record in without_form(BOB).values()]
    hold_all(desk, bob)

    refused = await getattr(desk, how)(bob, *entries)

    assert refused == {}


async def test_every_look_at_a_mailbox_bears_it(desk: Desk) -> None:
    count = await fill(desk)
    bob = await desk.join()

    _, seen = await desk.store.lookup.peek(BOB, (1, ""), 1_000, "", None)
    (described,) = await desk.store.agents.describe([BOB])
    thread = await desk.store.agents.thread_state(ALICE, BOB, "")
    faults = await desk.store.checkup.mailbox(BOB)

    assert len(seen) == described.depth == count + len(IN_ORDER)
    assert len([one for one in seen if not one.head.is_known]) == len(LANES) * len(without_form(BOB))
    assert {one.state for one in seen if not one.head.is_known} == {"delayed"}
    assert {one.waiting.why for one in seen if not one.head.is_known} == {"its record cannot be read"}
    assert thread.pending == len(IN_ORDER) + len(LANES) * len(without_content(BOB))
    assert len(faults.unreadable) == len(LANES) * len(without_form(BOB))
    assert await desk.leave(bob)


async def test_where_it_is_can_be_asked(desk: Desk) -> None:
    entry = put(desk, without_form(BOB)["opts in words"])
    desk.redis.hset(desk.keys.ids(0), "acme\tbob\talice\tbad", entry)

    found = await desk.store.lookup.where(ALICE, BOB, "bad")

    assert found is not None
    assert (found.state, found.entry, found.at_ms) == ("delayed", entry, int(entry.partition("-")[0]))


@pytest.mark.parametrize("kind", sorted(without_form(BOB)))
async def test_its_sender_can_take_it_back(desk: Desk, kind: str) -> None:
    entry = put(desk, without_form(BOB)[kind])
    desk.redis.hset(desk.keys.ids(0), "acme\tbob\talice\tbad", entry)

    assert await desk.cancel("bad") == "cancelled"
    assert (desk.depth(), desk.redis.hlen(desk.keys.ids(0))) == (0, 0)


async def test_an_agent_can_be_deleted_with_it(desk: Desk) -> None:
    await fill(desk)
    for letter in letters(BOB):
        put(desk, letter, box=desk.keys.dead(BOB))

    assert await desk.store.agents.remove(BOB, force=True) == "removed"
    assert [desk.depth(priority=lane) for lane in LANES] == [0, 0, 0]


# -- workers


async def test_the_sweeper_expires_what_is_behind_it(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=3_600)
    count = await fill(desk)
    desk.clock.advance(4_000)

    await sweep_shard(desk.store, 0, desk.clock.now_ms())
    reasons = await buried(desk)

    expired = int(desk.redis.hget(desk.keys.totals(0), "expired"))
    assert reasons == ["unreadable"] * (count - len(LANES) * len(without_content(BOB)))
    assert expired == len(IN_ORDER) + len(LANES) * len(without_content(BOB))
    assert [desk.depth(priority=lane) for lane in LANES] == [0, 0, 0]


@pytest.mark.parametrize("kind", ["hold", "ttl", "park", "bury"])
async def test_the_overdue_worker_buries_it_whatever_was_due(desk: Desk, kind: str) -> None:
    entries = [put(desk, record) for record in without_form(BOB).values()]
    for entry in entries:
        desk.redis.zadd(desk.keys.due(0), {f"{kind}\t{BOB}\t{entry}": desk.clock.now_ms()})

    assert await buried(desk) == ["unreadable"] * len(entries)
    assert desk.redis.zcard(desk.keys.due(0)) == 0


async def test_where_the_dead_letter_box_is_full_it_waits_and_the_mailbox_flows_on(make_desk: MakeDesk) -> None:
    desk = await make_desk(dead_max_messages=1)
    await fill(desk)
    bob = await desk.join()

    given = await taken_in_order(desk, bob)
    reasons = await buried(desk)
    await sweep_shard(desk.store, 0, desk.clock.now_ms() + 10**9)

    assert given == IN_ORDER
    assert reasons == ["unreadable"]
    assert {owner for owner, _ in desk.holders().values()} == {"~parked"}


async def test_it_is_reported_without_its_payload(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    entries = [put(desk, without_form(BOB)["only tabs"]), put(desk, a_record(BOB, body=b"secret", priority=0, size=6))]
    bob = await desk.join()

    with caplog.at_level(logging.WARNING):
        await desk.take(bob)
        await buried(desk)

    lines = [one.__dict__ for one in caplog.records if one.message == "record_unreadable"]
    assert {(one["shard"], one["mailbox"], one["entry"]) for one in lines} == {(0, BOB, entry) for entry in entries}
    assert "secret" not in caplog.text
    assert (await desk.store.depths.of(0)).unreadable == 2


# -- the books


async def test_of_what_was_never_counted_nothing_is_taken_off(desk: Desk) -> None:
    await desk.send_one(a_message("counted", payload="x" * 100))
    for record in without_form(BOB).values():
        put(desk, record)
    bob = await desk.join()
    before = desk.redis.hgetall(desk.keys.sums(0))

    (row,) = await desk.take(bob, room=1)
    await desk.take(bob)
    await buried(desk)

    sums = desk.redis.hgetall(desk.keys.sums(0))
    assert delivered(row)["id"] == "counted"
    assert sums == before | {"acme\tdead": str(len(without_form(BOB)))}
    assert {event.kind for event in desk.events() if event.reason == "unreadable"} == {"set_aside"}
    assert {(event.tenant, event.to, event.id) for event in desk.events("set_aside")} == {("acme", "bob", "")}


async def test_what_was_accepted_ends_as_dead_and_its_sender_hears_of_it(desk: Desk) -> None:
    sent = await desk.send_one(a_message("bad", thread="t"))
    _replace(desk, sent.entry, "an empty opts")
    bob = await desk.join()

    await desk.take(bob)
    await buried(desk)

    (end,) = desk.events("dead")
    assert (end.id, end.entry, end.reason) == ("bad", sent.entry, "unreadable")
    assert desk.redis.hlen(desk.keys.ids(0)) == 0
    assert (await desk.store.lookup.where(ALICE, BOB, "bad")).state == "dead"
    assert desk.redis.hgetall(desk.keys.sums(0)) == {"acme\tdead": "1", "acme\tonline": "1"}
    (receipt,) = await desk.receipts()
    assert (receipt["id"], receipt["state"], receipt["reason"]) == ("bad", "dead", "unreadable")


async def test_of_an_id_with_a_tab_the_index_is_cleared(desk: Desk) -> None:
    """Replays of an earlier release have stored such."""
    entry = put(desk, without_form(BOB)["a tab too many in the id"])
    desk.redis.hset(desk.keys.ids(0), "acme\tbob\talice\tb\tad", entry)
    desk.redis.hset(desk.keys.sums(0), mapping={"acme\tmessages": 1, "acme\tbytes": 7})
    bob = await desk.join()

    await desk.take(bob)
    await buried(desk)

    assert desk.redis.hlen(desk.keys.ids(0)) == 0
    assert desk.redis.hgetall(desk.keys.sums(0)) == {"acme\tdead": "1", "acme\tonline": "1"}
    assert [event.entry for event in desk.events("set_aside")] == [entry]


def _replace(desk: Desk, entry: str, kind: str) -> None:
    """The stored record by one that cannot be read."""
    box = desk.keys.box(BOB)
    desk.redis.delete(box)
    desk.redis.execute_command("XADD", box, entry, *without_form(BOB)[kind])


# -- dead letters


async def test_a_box_of_dead_letters_is_listed_whole(desk: Desk) -> None:
    entries = [put(desk, letter, box=desk.keys.dead(BOB)) for letter in letters(BOB)]
    whole = a_record(BOB, id="good")
    how = ["entry", "1-0", "attempts", 1, "at_ms", 1, "reason", "cannot", "history", ""]
    entries.append(put(desk, [*whole, *how], box=desk.keys.dead(BOB)))

    for with_body in (False, True):
        _, page = await desk.store.dead_letters.page(BOB, "", 1_000, with_body)

        assert [letter.entry for letter in page] == entries
        assert (page[-1].head.id, page[-1].reason) == ("good", "cannot")


async def test_what_cannot_be_read_is_not_revived(desk: Desk) -> None:
    count = await fill(desk)
    bob = await desk.join()
    await taken_in_order(desk, bob)
    await buried(desk)
    _, page = await desk.store.dead_letters.page(BOB, "", 1_000)

    outcomes = await desk.store.dead_letters.revive(BOB, [letter.entry for letter in page])
    given = await taken_in_order(desk, bob)

    spoilt = len(LANES) * len(without_content(BOB))
    words = [word for word, _ in outcomes]
    assert words.count("unreadable") == count - spoilt
    assert given == []
    assert desk.depth() == 0


async def test_it_can_be_dropped_and_that_is_in_the_books(desk: Desk) -> None:
    entries = [put(desk, letter, box=desk.keys.dead(BOB)) for letter in letters(BOB)]

    dropped = await desk.store.dead_letters.drop(BOB, entries, by=BOB)

    assert dropped == [True] * len(entries)
    assert len(desk.events("dropped")) == len(entries)
    assert desk.redis.xlen(desk.keys.dead(BOB)) == 0


async def test_a_buried_record_is_kept_as_it_was(desk: Desk) -> None:
    record = without_form(BOB)["bytes"]
    put(desk, record)
    bob = await desk.join()

    await desk.take(bob)
    await buried(desk)

    _, (letter,) = await desk.store.dead_letters.page(BOB, "", 10, with_body=True)
    assert msgspec.msgpack.decode(letter.body, type=list[msgspec.Raw]) is not None
    assert all(part in letter.body for part in record)
