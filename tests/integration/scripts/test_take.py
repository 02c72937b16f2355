"""take: what was released first, then what is new, in order; nothing expired, nothing before its time."""

import asyncio

from msgspec.structs import replace

from relay.store.callbacks import answer_to
from relay.store.mailbox.take import TakeAnswer, TakeRequest, TakeResult
from tests.builders import BOB, Desk, a_message, delivered, free_search
from tests.conftest import MakeDesk


async def test_new_messages_come_in_order_and_are_held_by_the_session(desk: Desk) -> None:
    sent = await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    bob = await desk.join()

    taken = await desk.take(bob)

    assert [row.entry for row in taken] == [answer.entry for answer in sent]
    assert [(delivered(row)["seq"], row.attempt) for row in taken] == [(1, 1), (2, 1), (3, 1)]
    assert delivered(taken[0])["id"] == "m-0"
    assert desk.holders() == {answer.entry: (bob.name, 1) for answer in sent}
    assert desk.depth() == 3
    assert desk.kinds()[-1] != "taken", "what ends a first delivery tells of it"


async def test_a_session_gets_no_more_than_it_has_room_for(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", priority=n % 2) for n in range(6)))
    bob = await desk.join()

    taken = await desk.take(bob, room=4)
    nothing = await desk.take(bob, room=0)

    assert len(taken) == 4
    assert nothing == []
    assert len(desk.holders()) + len(desk.holders(priority=1)) == 4


async def test_a_session_that_finds_nothing_new_leaves_no_consumer_behind(desk: Desk) -> None:
    """Such a consumer is not replicated: what has no replica to delete it from comes back with a failover."""
    await desk.send_one(a_message())
    first, second = [await desk.join(mode="shared") for _ in range(2)]
    await desk.take(first)

    nothing = await desk.take(second)

    assert nothing == []
    assert desk.consumers() == {first.name}


async def test_high_priorities_come_first_and_each_in_order(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", priority=(0, 9, 5)[n % 3]) for n in range(6)))
    bob = await desk.join()

    taken = await desk.take(bob)

    assert [delivered(row)["seq"] for row in taken] == [2, 5, 3, 6, 1, 4]
    assert [row.entry.partition("p")[2] for row in taken] == ["9", "9", "5", "5", "", ""]


async def test_an_instance_that_does_not_know_the_lanes_asks_again(make_desk: MakeDesk) -> None:
    here = await make_desk()
    there = await make_desk(prefix=here.keys.prefix)
    await here.send(a_message("low"), a_message("high", priority=5))
    bob = await there.join()

    taken = await there.take(bob)

    assert [delivered(row)["id"] for row in taken] == ["high", "low"]


async def test_what_was_released_comes_before_what_is_new(desk: Desk) -> None:
    first, second, third = await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    bob = await desk.join()
    await desk.take(bob, room=2)
    await desk.release(bob, first.entry)

    taken = await desk.take(bob)

    assert [row.entry for row in taken] == [first.entry, third.entry]
    assert desk.holders()[second.entry] == (bob.name, 1)


async def test_what_has_expired_is_ended_and_not_given(desk: Desk) -> None:
    short, plain = await desk.send(a_message("1", ttl_s=5, receipt="all"), a_message("2"))
    bob = await desk.join()

    desk.clock.advance(5)
    taken = await desk.take(bob)

    assert [row.entry for row in taken] == [plain.entry]
    assert desk.depth() == 1
    assert desk.holders() == {plain.entry: (bob.name, 1)}
    assert desk.due() == {}
    assert [event.entry for event in desk.events("expired")] == [short.entry]
    assert [receipt["state"] for receipt in await desk.receipts()] == ["expired"]


async def test_a_released_message_that_has_expired_is_not_given_again(desk: Desk) -> None:
    (short,) = await desk.send(a_message("1", ttl_s=5))
    bob = await desk.join()
    await desk.take(bob)
    await desk.release(bob, short.entry)

    desk.clock.advance(5)
    taken = await desk.take(bob)

    assert taken == []
    assert (desk.depth(), desk.holders(), desk.bytes_held()) == (0, {}, 0)
    assert desk.waits_since() is None


async def test_a_full_window_of_expired_messages_hides_none_of_the_live_ones(desk: Desk) -> None:
    await desk.send(*(a_message(f"short-{n}", ttl_s=1) for n in range(20)))
    live = await desk.send_one(a_message("live"))
    bob = await desk.join()
    desk.clock.advance(1)

    taken = await desk.take(bob, room=2)

    assert [row.entry for row in taken] == [live.entry]
    assert len(desk.events("expired")) == 20


async def test_a_delayed_message_is_parked_until_its_time(desk: Desk) -> None:
    late, plain = await desk.send(a_message("1", delay_s=5), a_message("2"))
    bob = await desk.join()

    before = await desk.take(bob)
    parked = desk.holders()[late.entry]
    desk.clock.advance(5)
    became = await desk.overdue()
    after = await desk.take(bob)

    assert [row.entry for row in before] == [plain.entry]
    assert parked == ("~parked", 1)
    assert became == ["ready"]
    assert [(row.entry, row.attempt) for row in after] == [(late.entry, 1)]


async def test_a_message_parked_by_a_slow_clock_is_unparked_all_the_same(make_desk: MakeDesk) -> None:
    desk = await make_desk()
    slow = await make_desk(prefix=desk.keys.prefix)
    late = await desk.send_one(a_message("1", delay_s=5))
    desk.clock.advance(5)
    await desk.overdue()
    slow.clock.advance(4.9)
    bob = await slow.join()

    too_early = await slow.take(bob)
    await desk.overdue()
    in_time = await desk.take(bob)

    assert too_early == []
    assert [row.entry for row in in_time] == [late.entry]


async def test_the_backlog_ends_where_the_session_began(desk: Desk) -> None:
    backlog = await desk.send(a_message("1"), a_message("2"))
    bob, joined = await desk.join_at_backlog()
    live = await desk.send_one(a_message("3"))

    first = await desk.take(bob, room=10)
    waiting_for_its_turn = desk.holders()[live.entry]
    bob.drained = True
    then = await desk.take(bob)

    assert joined.backlog_end == backlog[-1].entry
    assert [row.entry for row in first] == [answer.entry for answer in backlog]
    assert waiting_for_its_turn == ("~ready", 1)
    assert [(row.entry, row.attempt) for row in then] == [(live.entry, 1)]


async def test_urgent_live_mail_waits_until_the_backlog_of_every_lane_is_through(desk: Desk) -> None:
    low, high = await desk.send(a_message("low"), a_message("high", priority=5))
    bob, _ = await desk.join_at_backlog()
    while (urgent := await desk.send_one(a_message("urgent", priority=9))).entry.split("-")[0] <= bob.backlog_end.split(
        "-"
    )[0]:
        await desk.cancel("urgent")  # in the same millisecond: too close to tell
        desk.clock.advance(3_600)

    backlog = await desk.take(bob)
    bob.drained = True
    live = await desk.take(bob)

    assert [row.entry for row in backlog] == [high.entry, low.entry]
    assert [row.entry for row in live] == [urgent.entry]


async def test_mail_read_too_far_stays_ahead_of_mail_that_came_later(desk: Desk) -> None:
    backlog = await desk.send_one(a_message("1"))
    bob, _ = await desk.join_at_backlog()
    live = await desk.send(a_message("2"), a_message("3"))
    await desk.take(bob)
    later = await desk.send_one(a_message("4"))
    bob.drained = True

    taken = await desk.take(bob)

    assert [row.entry for row in taken] == [*(answer.entry for answer in live), later.entry]
    assert desk.holders()[backlog.entry] == (bob.name, 1)


async def test_what_was_lost_on_the_way_to_the_session_is_given_again(desk: Desk) -> None:
    lost, seen = await desk.send(a_message("1"), a_message("2"))
    bob = await desk.join(ack_timeout_s=30)
    await desk.take(bob)

    again = await desk.take(bob, known=[seen.entry])

    assert [(row.entry, row.attempt) for row in again] == [(lost.entry, 1)]
    assert bob.gone == []
    assert set(desk.due()) == {f"hold {lost.entry}", f"hold {seen.entry}"}


async def test_what_was_lost_leaves_no_timer_behind_for_a_holder_without_one(desk: Desk) -> None:
    await desk.send_one(a_message("1"))
    bob = await desk.join(mode="shared", ack_timeout_s=30)
    await desk.take(bob)
    carol = await desk.join(mode="shared")

    await desk.take(bob, room=0, known=[])
    taken = await desk.take(carol)
    desk.clock.advance(30)

    assert len(taken) == 1
    assert await desk.overdue() == []


async def test_a_session_is_told_what_it_holds_no_more(desk: Desk) -> None:
    kept, expired = await desk.send(a_message("1"), a_message("2", ttl_s=5))
    bob = await desk.join()
    await desk.take(bob)
    desk.clock.advance(5)
    await desk.overdue()

    taken = await desk.take(bob, known=[kept.entry, expired.entry])

    assert taken == []
    assert bob.gone == [expired.entry]


async def test_a_session_that_does_not_know_yet_that_it_was_replaced_gets_nothing(desk: Desk) -> None:
    sent = await desk.send_one(a_message("1"))
    old = await desk.join()
    new = await desk.join()

    too_late = await desk.take(old)
    taken = await desk.take(new)

    assert too_late == []
    assert [row.entry for row in taken] == [sent.entry]


async def test_a_lost_group_heals(desk: Desk) -> None:
    sent = await desk.send(a_message("1"), a_message("2"))
    bob = await desk.join()
    await desk.take(bob, room=1)

    desk.redis.xgroup_destroy(desk.keys.box(BOB), "agent")
    taken = await desk.take(bob)
    refused = await desk.ack(bob, *(row.entry for row in taken))

    assert [row.entry for row in taken] == [answer.entry for answer in sent]
    assert refused == {}
    assert desk.depth() == 0


async def test_a_message_sent_before_anybody_came_is_seen(desk: Desk) -> None:
    await desk.send_one(a_message("1"))
    groups_before = desk.redis.xinfo_groups(desk.keys.box(BOB))
    bob = await desk.join()

    taken = await desk.take(bob)

    assert groups_before == []
    assert len(taken) == 1


async def test_competing_sessions_get_each_message_once(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}") for n in range(10)))
    pullers = [await desk.join(mode="shared") for _ in range(10)]

    taken = await asyncio.gather(*(desk.take(puller, room=1) for puller in pullers))

    assert len({rows[0].entry for rows in taken}) == 10
    assert {owner for owner, _ in desk.holders().values()} == {puller.name for puller in pullers}


async def test_a_message_is_timed_by_its_own_timeout_before_the_sessions(desk: Desk) -> None:
    own, sessions = await desk.send(a_message("1", ack_timeout_s=7), a_message("2"))
    bob = await desk.join(ack_timeout_s=30)

    await desk.take(bob)

    assert desk.due() == {f"hold {own.entry}": 7, f"hold {sessions.entry}": 30}


async def test_a_ghost_in_the_pending_list_is_swept_away(desk: Desk) -> None:
    ghost, live = await desk.send(a_message("1"), a_message("2"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.release(bob, ghost.entry, live.entry)
    desk.redis.xdel(desk.keys.box(BOB), ghost.entry)  # an operator's hand

    taken = await desk.take(bob)

    assert [row.entry for row in taken] == [live.entry]
    assert set(desk.holders()) == {live.entry}


async def test_a_hundred_full_windows_are_taken_and_acked_in_one_call_each(desk: Desk) -> None:
    addresses = [f"acme/a{n}" for n in range(100)]
    for address in addresses:
        await desk.send(*(a_message(f"m-{n}", to=address) for n in range(50)))
    pullers = await asyncio.gather(*(desk.join(address) for address in addresses))

    taken = await asyncio.gather(*(desk.take(puller, room=50) for puller in pullers))
    refused = await asyncio.gather(
        *(desk.ack(puller, *(row.entry for row in rows)) for puller, rows in zip(pullers, taken, strict=True))
    )

    assert [len(rows) for rows in taken] == [50] * 100
    assert refused == [{}] * 100
    assert desk.redis.hlen(desk.keys.ids(0)) == 0
    assert len(desk.events("acked")) == 5_000


async def test_receipts_to_more_senders_than_fit_in_one_entry_are_left_for_the_worker(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=4_000)
    bob = await desk.join()
    for n in range(3_500):
        desk.store.accepting.accept(desk.store.accepting.draft(f"acme/s{n}", a_message("m-1"), lambda *_: None))
    await desk.store.pipeline.finish()
    taken = await desk.take(bob, room=4_000)

    await desk.ack(bob, *(row.entry for row in taken))
    await desk.store.pipeline.finish()
    told_at_once = len(list(desk.redis.scan_iter(desk.keys.receipts("acme/*"), count=10_000)))
    for entry, fields in await desk.store.receipts.left_in_outbox(0, "-", 2**42, 10):
        desk.store.receipts.forward(0, entry, fields)
    await desk.store.pipeline.finish()

    assert told_at_once == 3_000
    assert len(list(desk.redis.scan_iter(desk.keys.receipts("acme/*"), count=10_000))) == 3_500
    assert desk.redis.xlen(desk.keys.outbox(0)) == 0


async def test_a_take_stops_at_its_bytes_and_goes_on_there(desk: Desk) -> None:
    bob = await desk.join(BOB)
    await desk.send(*(a_message(f"m-{n}", payload="x" * 1_000) for n in range(10)))
    bob.most_bytes = 3_000

    first = await desk.take(bob, room=10)
    was_cut = bob.was_cut
    bob.most_bytes = 2**20
    rest = await desk.take(bob, room=10)

    assert was_cut
    assert 1 <= len(first) <= 3
    assert [delivered(row)["seq"] for row in first + rest] == list(range(1, 11))
    assert {row.attempt for row in rest} == {1}
    assert not bob.was_cut


async def test_a_take_gives_one_message_at_least(desk: Desk) -> None:
    bob = await desk.join(BOB)
    await desk.send(a_message("m-1", payload="x" * 50_000), a_message("m-2", payload="x"))
    bob.most_bytes = 1

    found = await desk.take(bob, room=10)

    assert [delivered(row)["seq"] for row in found] == [1]
    assert bob.was_cut


async def test_few_long_messages_before_many_short_ones_do_not_break_the_limit(desk: Desk) -> None:
    """The mean says little: what was read too much waits at the front of the line."""
    bob = await desk.join(BOB)
    await desk.send(*(a_message(f"long-{n}", payload="x" * 50_000) for n in range(10)))
    await desk.send(*(a_message(f"short-{n}", payload="x") for n in range(90)))
    bob.most_bytes = 100_000

    first = await desk.take(bob, room=100)
    seqs = [delivered(row)["seq"] for row in first]
    while len(seqs) < 100 and (more := await desk.take(bob, room=100)):
        seqs += [delivered(row)["seq"] for row in more]

    assert sum(len(row.body) for row in first) < 200_000
    assert seqs == list(range(1, 101))


async def test_a_take_that_gets_all_its_room_is_not_cut(desk: Desk) -> None:
    bob = await desk.join(BOB)
    await desk.send(*(a_message(f"m-{n}") for n in range(3)))

    assert len(await desk.take(bob, room=2)) == 2
    assert not bob.was_cut


async def test_a_look_for_types_goes_on_where_it_was(desk: Desk) -> None:
    large = "x" * 60_000
    for priority in (5, 0):
        await desk.send(*(a_message(f"{priority}-{n}", payload=large, type="a", priority=priority) for n in range(20)))
    await desk.send_one(a_message("wanted", type="b"))

    looks = [await _leased(desk, "c"), await _leased(desk, "b"), await _leased(desk, "b")]

    assert looks == [[], ["wanted"], []]
    assert set(desk.holders(priority=5).values()) == {("~ready", 1)}


async def test_one_call_reads_so_much_of_other_types(desk: Desk) -> None:
    await desk.send(*(a_message(f"{n}", payload="x" * 60_000, type="a") for n in range(20)))
    request = TakeRequest("http.w.1", 1, 100_000, 30_000, is_puller=True, types=["b"])

    first = await _taken(desk, request)
    second = await _taken(desk, replace(request, after=first.place))

    assert (first.rows, second.rows) == ([], [])
    assert 0 < _number_of(desk, first.place) < _number_of(desk, second.place) < 19


async def test_a_look_says_how_much_it_has_read_of_other_types(desk: Desk) -> None:
    await desk.send(*(a_message(f"{n}", payload="x" * 60_000, type="a") for n in range(20)))
    await desk.send(*(a_message(f"b-{n}", type="b") for n in range(10)))
    request = TakeRequest("http.w.1", 1, 100_000, 30_000, is_puller=True, types=["c"])

    whole = await _taken(desk, request)
    nothing = await _taken(desk, replace(request, types=["a"]))

    assert (whole.passed, nothing.passed) == (1_000, 0)


async def test_every_message_of_another_type_counts_by_the_time_it_takes(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", type="a") for n in range(64)))
    request = TakeRequest("http.w.1", 1, 100_000, 30_000, is_puller=True, types=["c"])

    look = await _taken(desk, request)

    assert look.place == ""
    assert 500 <= look.passed <= 510, "half of what one look reads"


def _number_of(desk: Desk, place: str) -> int:
    """How many entries stand before the one that a look has come to."""
    priority, entry = place.split(" ")
    return [id for id, _ in desk.redis.xrange(desk.keys.box(BOB, int(priority)))].index(entry)


async def _leased(desk: Desk, kind: str) -> list[str]:
    found = await desk.store.leases.take(BOB, 5, 2**20, free_search(kind), 30_000, "w1", desk.clock.now_ms())
    return [delivered(row)["id"] for row, _ in found]


async def _taken(desk: Desk, request: TakeRequest) -> TakeResult:
    taken: TakeAnswer = await answer_to(lambda answer: desk.store.taking.take(BOB, lambda: request, answer))
    assert isinstance(taken, TakeResult)
    return taken
