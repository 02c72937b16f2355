"""history: looks into the event logs are whole, in order, of one tenant, and bounded."""

import math
from collections.abc import AsyncIterator

import pytest

from relay.store.record.events import Event
from relay.store.watching import history
from relay.store.watching.history import LogCursor, Wanted
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk

ACME = Wanted("acme")
ACCEPTED = frozenset({"accepted"})


async def pages(desk: Desk, wanted: Wanted, limit: int) -> AsyncIterator[list[str]]:
    """The ids and kinds of all pages, newest first."""
    before: LogCursor | None = None
    while True:
        page = await desk.store.history.latest(wanted, before, limit)
        assert len(page.events) <= limit
        yield [f"{event.fields['id']} {event.fields['kind']}" for event in page.events]
        before = page.back_to
        if before is None:
            return


async def all_of(desk: Desk, wanted: Wanted, limit: int = 1_000) -> list[str]:
    return [one async for page in pages(desk, wanted, limit) for one in page]


@pytest.mark.parametrize("limit", [1, 3, 7, 1_000])
async def test_pages_of_many_logs_are_one_history(make_desk: MakeDesk, limit: int) -> None:
    desk = await make_desk(shards=4)
    for n in range(10):
        await desk.send(*(a_message(f"{name}-{n}", to=f"acme/{name}") for name in ("bob", "carol", "dan")))
        await desk.send_one(a_message("x", to=f"other/{n}"), sender="other/y")

    found = await all_of(desk, ACME, limit)

    assert len(found) == len(set(found)) == 30
    numbers = [int(one.partition("-")[2].partition(" ")[0]) for one in found]
    assert numbers == sorted(numbers, reverse=True)


async def test_an_event_is_found_by_message_agent_and_kind(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2", to=CAROL))
    bob = await desk.join()
    taken = await desk.take_one(bob)
    desk.clock.advance(10)
    await desk.ack(bob, taken.entry)

    assert await all_of(desk, Wanted("acme", message="1")) == ["1 acked", "1 taken", "1 accepted"]
    assert await all_of(desk, Wanted("acme", message="1", kinds=frozenset({"taken"}))) == ["1 taken"]
    assert await all_of(desk, Wanted("acme", agent="carol")) == ["2 accepted"]
    assert await all_of(desk, Wanted("acme", agent="alice", kinds=frozenset({"accepted"}))) == [
        "2 accepted",
        "1 accepted",
    ]
    assert await all_of(desk, Wanted("acm")) == []


async def test_a_look_past_many_events_of_others_ends_and_says_how_far_it_went(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PAGE_BYTES", 1_000)
    monkeypatch.setattr(history, "MOST_PAGES", 3)
    await desk.send_one(a_message("first"))
    for n in range(60):
        await desk.send_one(a_message(f"m-{n}", to="other/x"), sender="other/y")

    page = await desk.store.history.latest(ACME, None, 10)

    assert page.events == []
    assert page.back_to is not None
    assert await all_of(desk, ACME) == ["first accepted"]


async def test_no_call_reads_or_returns_more_than_a_page(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", to=f"acme/{n % 7}") for n in range(400)))
    for n in range(200):
        await desk.send_one(a_message(f"x-{n}", thread="t" * 100))

    at_ms, rows = await desk.store.history._read(0, "XREVRANGE", "+", "-", 2_000, ACME)

    assert at_ms is not None
    assert 2_000 <= sum(len(value) for row in rows for value in row[1:]) < 6_000


async def test_an_event_that_cannot_be_read_hides_no_other(desk: Desk) -> None:
    await desk.send_one(a_message("1"))
    desk.redis.xadd(desk.keys.events(0), {"e9": "5\ti1\naccepted\tof another version" + "\t" * 6 + "acme"})
    desk.redis.xadd(desk.keys.events(0), {"e1": "late\ti1\naccepted\tx" + "\t" * 6 + "acme"})
    desk.redis.xadd(desk.keys.events(0), {"e1": "5\ti1\n\tacme\naccepted" + "\t" * 12 + "acme\t\t"})
    await desk.send_one(a_message("2"))

    assert await all_of(desk, ACME) == ["2 accepted", "1 accepted"]


async def test_what_a_session_did_is_found_wherever_it_was_logged(desk: Desk, make_desk: MakeDesk) -> None:
    there = await make_desk(prefix=desk.keys.prefix, clock=desk.clock)
    here, gone = await desk.join(BOB), await there.join(CAROL)
    await desk.send(a_message("1"), a_message("2", to=CAROL))
    await desk.ack(here, (await desk.take_one(here)).entry)
    await there.take_one(gone)
    await desk.store.presence.leave(CAROL, gone.name, "unknown here")  # by an instance that it is no session of

    assert here.name.partition(".")[2] == gone.name.partition(".")[2]
    assert await all_of(desk, Wanted("acme", session=here.name)) == ["1 acked", "1 taken", " joined"]
    assert await all_of(desk, Wanted("acme", session=gone.name)) == [" left", "2 released", "2 taken", " joined"]


async def test_a_look_for_rare_events_reads_every_line_of_an_entry(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", to=BOB if n % 3 else CAROL) for n in range(9)))

    assert await all_of(desk, Wanted("acme", agent="carol")) == ["m-6 accepted", "m-3 accepted", "m-0 accepted"]
    assert await all_of(desk, Wanted("acme", message="m-8")) == ["m-8 accepted"]
    assert await all_of(desk, Wanted("acme", message="m-")) == []


async def test_a_follower_gets_everything_once_and_in_order(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=4)
    ids = [f"m-{n}" for n in range(300)]
    for n in range(0, 300, 10):
        await desk.send(*(a_message(one, to=f"acme/{one}", thread="t" * 100) for one in ids[n : n + 10]))
        await desk.send_one(a_message("x", to=f"other/{n}"), sender="other/y")
    from_ms, is_behind, rounds = 0, True, 0
    seen: list[Event] = []

    while len(seen) < 300:
        from_ms, is_behind, found = await desk.store.history.since(from_ms, ACME)
        seen += found
        rounds += 1
        assert rounds < 1_000

    assert sorted(event.fields["id"] for event in seen) == sorted(ids)
    assert [event.at_ms for event in seen] == sorted(event.at_ms for event in seen)
    assert not is_behind


async def test_a_millisecond_larger_than_a_page_does_not_stop_a_follower(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "FOLLOWED_BYTES", 100)
    for n in range(3):
        await desk.send(*(a_message(f"m-{n}-{k}") for k in range(20)), sender=ALICE)
    from_ms, seen = 0, 0

    for _ in range(100):
        from_ms, _, found = await desk.store.history.since(from_ms, Wanted("acme", agent=BOB.partition("/")[2]))
        seen += len(found)

    assert seen == 60


async def test_an_event_is_found_by_several_kinds_by_session_and_by_time(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2"))
    bob = await desk.join()
    first, second = await desk.take(bob)
    desk.clock.advance(10)
    await desk.ack(bob, first.entry)
    desk.clock.advance(10)
    await desk.nack(bob, second.entry)

    assert await all_of(desk, Wanted("acme", kinds=frozenset({"acked", "nacked"}))) == ["2 nacked", "1 acked"]
    assert await all_of(desk, Wanted("acme", session=bob.name, kinds=frozenset({"nacked", "joined"}))) == [
        *("2 nacked", " joined"),
    ]
    assert await all_of(desk, Wanted("acme", session="nobody")) == []
    settled = frozenset({"acked", "nacked"})
    assert await all_of(desk, Wanted("acme", kinds=settled, until_ms=NOON_MS + 20_000)) == ["1 acked"]
    assert await all_of(desk, Wanted("acme", kinds=settled, until_ms=NOON_MS + 10_000)) == []


async def test_a_look_can_end_before_a_time(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=4)
    await desk.send(*(a_message(f"m-{n}", to=f"acme/{n}") for n in range(20)))
    events: list[Event] = []
    while len(events) < 20:  # what happened in a millisecond is read when that one is over
        _, _, events = await desk.store.history.since(0, ACME)
    middle_ms = events[10].at_ms

    next_ms, is_behind, before = await desk.store.history.since(0, ACME, before_ms=middle_ms)

    assert (next_ms, is_behind) == (middle_ms, False)
    assert before == [event for event in events if event.at_ms < middle_ms]


async def test_it_is_known_from_when_on_the_logs_are_whole(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=2)
    await desk.send(*(a_message(f"m-{n}", to=f"acme/{n}") for n in range(20)))
    await desk.send(*(a_message(f"x-{n}", to=f"acme/{n}") for n in range(20)))
    whole = await desk.store.observing.whole_since_ms()
    desk.redis.xtrim(desk.keys.events(1), maxlen=1, approximate=False)

    still_believed = await desk.store.observing.whole_since_ms()
    desk.store.observing._looked_at = -math.inf
    seen = await desk.store.observing.whole_since_ms()

    assert (whole, still_believed) == (None, None)
    assert seen == int(desk.redis.xrange(desk.keys.events(1))[0][0].partition("-")[0])


async def test_a_log_that_lost_everything_has_what_comes_next(desk: Desk) -> None:
    await desk.send_one(a_message("1"))
    last_ms = int(desk.redis.xrevrange(desk.keys.events(0))[0][0].partition("-")[0])
    desk.redis.xtrim(desk.keys.events(0), maxlen=0, approximate=False)

    assert await desk.store.observing.whole_since_ms() == last_ms + 1
