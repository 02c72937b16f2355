"""accept: each message at most once in its mailbox, and a word for every way it can go."""

import pytest

from relay.store.keys import ALL_LANES
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk


async def test_a_message_is_stored_with_its_place_in_the_thread(desk: Desk) -> None:
    first, second = await desk.send(a_message("m-1", payload="abc"), a_message("m-2", payload="abcd"))

    assert (first.word, second.word) == ("stored", "stored")
    assert [first.values[1], second.values[1]] == [1, 2]
    assert desk.depth() == 2
    assert desk.known_ids() == {"m-1": first.entry, "m-2": second.entry}
    assert desk.bytes_held() == len('"abc"') + len('"abcd"')
    assert desk.waits_since() == NOON_MS
    assert [(event.kind, event.id, event.entry, event.seq) for event in desk.events()] == [
        ("accepted", "m-1", first.entry, "1"),
        ("accepted", "m-2", second.entry, "2"),
    ]


async def test_an_entry_has_head_options_and_body_in_this_order(desk: Desk) -> None:
    answer = await desk.send_one(a_message("m-1", type="greeting", thread="t", priority=0, payload="hi"))

    ((entry, fields),) = desk.redis.xrange(desk.keys.box(BOB))
    assert entry == answer.entry
    assert list(fields) == ["head", "opts", "body"]
    assert fields["head"] == "acme\tbob\talice\tm-1\tgreeting\tt\t0\t4"
    assert fields["opts"].split("\t")[:2] == ["1", str(NOON_MS)]


async def test_sequence_numbers_count_per_sender_recipient_and_thread(desk: Desk) -> None:
    answers = await desk.send(
        a_message("1", thread="t"), a_message("2", thread="u"), a_message("3", thread="t"), a_message("4", to=CAROL)
    )
    from_carol = await desk.send_one(a_message("1", thread="t"), sender=CAROL)

    assert [answer.values[1] for answer in answers] == [1, 1, 2, 1]
    assert from_carol.values[1] == 1


async def test_sequence_numbers_go_on_when_a_bucket_of_them_begins(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=100)
    await desk.send(a_message("1"), a_message("2"))

    desk.clock.advance(99)
    later = await desk.send_one(a_message("3"))
    desk.clock.advance(99)
    much_later = await desk.send_one(a_message("4"))

    assert (later.values[1], much_later.values[1]) == (3, 4)


async def test_the_same_id_while_it_waits_is_a_duplicate(desk: Desk) -> None:
    first = await desk.send_one(a_message("m-1"))
    again = await desk.send_one(a_message("m-1"))

    assert (again.word, again.values) == ("duplicate", (first.entry, "", 0))
    assert desk.depth() == 1
    assert desk.kinds() == ["accepted", "duplicate"]


async def test_the_same_id_twice_in_one_call_is_stored_once(desk: Desk) -> None:
    first, again = await desk.send(a_message("m-1"), a_message("m-1"))

    assert (first.word, again.word) == ("stored", "duplicate")
    assert again.entry == first.entry
    assert desk.depth() == 1


async def test_the_same_id_through_two_instances_is_stored_once(make_desk: MakeDesk) -> None:
    here = await make_desk()
    there = await make_desk(prefix=here.keys.prefix)
    first = await here.send_one(a_message("m-1"))
    again = await there.send_one(a_message("m-1"))

    assert (again.word, again.entry) == ("duplicate", first.entry)
    assert here.depth() == 1


async def test_the_same_id_from_another_sender_or_to_another_recipient_is_another_message(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-1", to=CAROL))
    from_carol = await desk.send_one(a_message("m-1"), sender=CAROL)

    assert from_carol.word == "stored"
    assert (desk.depth(BOB), desk.depth(CAROL)) == (2, 1)


async def test_the_same_id_lately_ended_is_a_duplicate_that_says_how(desk: Desk) -> None:
    first = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.ack(bob, first.entry)

    desk.clock.advance(3_599)
    again = await desk.send_one(a_message("m-1"))

    assert (again.word, again.values) == ("duplicate", (first.entry, "acked", 1))
    assert desk.depth() == 0


async def test_the_same_id_after_the_window_is_stored_again(desk: Desk) -> None:
    await desk.join()  # a mailbox that nobody serves goes when it is empty, and its next entry may have the same time
    first = await desk.send_one(a_message("m-1"))
    await desk.cancel("m-1")

    desk.clock.advance(3_600)
    again = await desk.send_one(a_message("m-1"))

    assert again.word == "stored"
    assert again.entry != first.entry
    assert desk.depth() == 1


async def test_the_window_holds_wherever_in_its_bucket_a_message_ended(make_desk: MakeDesk) -> None:
    desk = await make_desk(dedup_window_s=10)
    for second in range(10):
        await desk.send_one(a_message(f"m-{second}"))
        await desk.cancel(f"m-{second}")

        desk.clock.advance(9.999)
        within = await desk.send_one(a_message(f"m-{second}"))
        desk.clock.advance(0.001)
        after = await desk.send_one(a_message(f"m-{second}"))

        assert (within.word, after.word) == ("duplicate", "stored")
        desk.clock.advance(1)


async def test_a_blocked_sender_stores_nothing(desk: Desk) -> None:
    await desk.store.agents.change_blocks(BOB, [ALICE], [])
    answer = await desk.send_one(a_message("m-1"))
    other_way = await desk.send_one(a_message("m-1", to=ALICE), sender=BOB)

    assert answer.word == "blocked"
    assert other_way.word == "stored"
    assert desk.depth() == 0
    assert [(event.kind, event.reason) for event in desk.events("refused")] == [("refused", "blocked")]


async def test_a_block_means_the_whole_name(desk: Desk) -> None:
    await desk.store.agents.change_blocks(BOB, ["acme/alice2", "acme/ali", "other/alice"], [])
    answer = await desk.send_one(a_message("m-1"))

    assert answer.word == "stored"


async def test_in_a_closed_tenant_only_the_registered_have_mailboxes(make_desk: MakeDesk) -> None:
    desk = await make_desk(open_tenants=("elsewhere",))
    await desk.store.agents.register(CAROL)

    stranger, known = await desk.send(a_message("m-1", to=BOB), a_message("m-1", to=CAROL))

    assert (stranger.word, known.word) == ("unknown", "stored")
    assert desk.depth(BOB) == 0
    assert [event.reason for event in desk.events("refused")] == ["unknown_agent"]


async def test_a_mailbox_at_its_cap_of_messages_is_full_until_one_is_acked(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=3)
    answers = await desk.send(*(a_message(f"m-{n}", payload="x") for n in range(4)))
    bob = await desk.join()
    await desk.take(bob, room=1)

    still_full = await desk.send_one(a_message("m-3", payload="x"))
    await desk.ack(bob, answers[0].entry)
    room_again = await desk.send_one(a_message("m-3", payload="x"))

    assert [answer.word for answer in answers] == ["stored", "stored", "stored", "full"]
    assert still_full.values == (3, 9, -1, 1, 3, 67_108_864)
    assert room_again.word == "stored"
    assert desk.depth() == 3


async def test_a_mailbox_at_its_cap_of_bytes_is_full(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_bytes=1_024)
    exactly, over, small = await desk.send(
        a_message("1", payload="x" * 1_020), a_message("2", payload="abc"), a_message("3", payload=1)
    )

    assert (exactly.word, over.word, small.word) == ("stored", "full", "stored")
    assert over.values[:2] == (1, 1_022)
    assert desk.bytes_held() == 1_023


async def test_the_cap_counts_all_priorities_together(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=2)
    answers = await desk.send(a_message("1"), a_message("2", priority=5), a_message("3", priority=9))

    assert [answer.word for answer in answers] == ["stored", "stored", "full"]


async def test_a_duplicate_is_known_as_one_although_the_mailbox_is_full(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=1)
    await desk.send_one(a_message("m-1"))
    again = await desk.send_one(a_message("m-1"))

    assert again.word == "duplicate"


async def test_full_says_how_fast_the_mailbox_drains(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=4)
    await desk.send(*(a_message(f"m-{n}") for n in range(4)))
    bob = await desk.join()
    for _ in range(2):
        taken = await desk.take_one(bob)
        desk.clock.advance(8)
        await desk.ack(bob, taken.entry)
    await desk.send(a_message("a"), a_message("b"))

    full = await desk.send_one(a_message("c"))

    # The first ack is taken for a second; the next one came 8 s after it: (1000 * 7 + 8000) / 8.
    assert full.values[2] == 1_875


async def test_full_says_whether_anybody_is_there_to_drain_it(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=1)
    await desk.send_one(a_message("m-1"))
    nobody = await desk.send_one(a_message("m-2"))
    await desk.join()
    somebody = await desk.send_one(a_message("m-2"))
    desk.clock.advance(61)
    with_a_dead_instance = await desk.send_one(a_message("m-2"))

    assert [answer.values[3] for answer in (nobody, somebody, with_a_dead_instance)] == [0, 1, 0]


async def test_an_instance_that_does_not_know_the_lanes_is_told(make_desk: MakeDesk) -> None:
    here = await make_desk()
    there = await make_desk(prefix=here.keys.prefix)
    await here.send_one(a_message("m-1", priority=5))

    answer = await there.send_one(a_message("m-2"))

    assert answer.word == "stored"
    assert here.redis.hget(here.shard_key("lanes"), BOB) == "5"
    assert there.store.accepting._lanes.of(BOB) == ALL_LANES  # it had to ask twice, once
    assert here.kinds() == ["accepted", "accepted"]


async def test_messages_that_had_to_ask_twice_stay_in_order(make_desk: MakeDesk) -> None:
    here = await make_desk()
    there = await make_desk(prefix=here.keys.prefix)
    await here.send_one(a_message("high", priority=9))

    answers = await there.send(*(a_message(f"m-{n}") for n in range(5)))

    assert [answer.values[1] for answer in answers] == [2, 3, 4, 5, 6]


async def test_each_priority_has_a_stream_of_its_own(desk: Desk) -> None:
    low, high = await desk.send(a_message("low"), a_message("high", priority=9))

    assert (desk.depth(), desk.depth(priority=9)) == (1, 1)
    assert high.entry.endswith("p9")
    assert "p" not in low.entry


async def test_a_short_ttl_and_a_delay_stand_in_due(desk: Desk) -> None:
    short, late, plain = await desk.send(a_message("1", ttl_s=5), a_message("2", delay_s=7), a_message("3"))

    assert desk.due() == {f"ttl {short.entry}": 5, f"park {late.entry}": 7}
    assert plain.word == "stored"


async def test_a_ttl_longer_than_the_relays_own_is_the_relays(make_desk: MakeDesk) -> None:
    desk = await make_desk(message_ttl_s=100)
    await desk.send_one(a_message("m-1", ttl_s=1_000))

    ((_, fields),) = desk.redis.xrange(desk.keys.box(BOB))
    assert fields["opts"].split("\t")[2] == str(NOON_MS + 100_000)
    assert desk.due() == {}


async def test_every_instance_that_serves_the_mailbox_is_woken_once(desk: Desk) -> None:
    desk.is_alive("i1")
    await desk.join(session="i1.1", mode="shared")
    await desk.join(session="i2.1", mode="shared")
    one, two = desk.ears("i1"), desk.ears("i2")

    await desk.send(a_message("1"), a_message("2"))

    assert one.heard() == ["mail\tacme/bob"]
    assert two.heard() == ["mail\tacme/bob"]


async def test_a_delayed_message_wakes_nobody(desk: Desk) -> None:
    await desk.join()
    ears = desk.ears()

    await desk.send_one(a_message("1", delay_s=5))

    assert ears.heard() == []


async def test_five_hundred_messages_to_five_hundred_mailboxes_go_in_one_call(desk: Desk) -> None:
    answers = await desk.send(*(a_message("m", to=f"acme/a{n}") for n in range(500)))

    assert {answer.word for answer in answers} == {"stored"}
    assert desk.redis.xlen(desk.keys.events(0)) == 1
    assert desk.redis.hlen(desk.keys.ids(0)) == 500


@pytest.mark.parametrize("priority", [0, 3], ids=["plain", "with a lane"])
async def test_an_instance_is_told_once_however_many_sessions_it_has(desk: Desk, priority: int) -> None:
    for _ in range(3):
        await desk.join(mode="shared")
    ears = desk.ears()

    await desk.send(a_message("1", priority=priority), a_message("2", priority=priority))

    assert ears.heard() == ["mail\tacme/bob"]


# -- what a sender may begin


async def test_a_sender_is_the_first_to_send_to_so_many_addresses_that_nobody_uses(make_desk: MakeDesk) -> None:
    desk = await make_desk(sender_max_mailboxes=2)

    words = [(await desk.send_one(a_message("1", to=f"acme/new-{n}"))).word for n in range(4)]
    again = await desk.send_one(a_message("2", to="acme/new-0"))
    others = await desk.send_one(a_message("1", to="acme/new-9"), sender=CAROL)

    assert words == ["stored", "stored", "rationed", "rationed"]
    assert (again.word, others.word) == ("stored", "stored")
    assert desk.redis.zcard(desk.keys.roster(0)) == 3
    assert [event.reason for event in desk.events("refused")] == ["rate_limited"] * 2


async def test_a_tenant_has_so_many_such_addresses_and_one_sender_cannot_use_them_up(make_desk: MakeDesk) -> None:
    desk = await make_desk(sender_max_mailboxes=2, tenant_max_mailboxes=3)

    for n in range(9):
        await desk.send_one(a_message("1", to=f"acme/new-{n}"))
    words = [(await desk.send_one(a_message("1", to=f"acme/more-{n}"), sender=CAROL)).word for n in range(2)]

    assert words == ["stored", "rationed"]


async def test_whoever_is_registered_is_sent_to_without_a_ration(make_desk: MakeDesk) -> None:
    desk = await make_desk(sender_max_mailboxes=1)
    await desk.send_one(a_message("1", to="acme/new"))
    await desk.store.agents.register(BOB, mode="shared")

    assert (await desk.send_one(a_message("1"))).word == "stored"


async def test_the_next_time_brings_new_rations(make_desk: MakeDesk) -> None:
    desk = await make_desk(sender_max_mailboxes=1, max_threads=1)
    refused = await desk.send(
        a_message("1", to="acme/a", thread="x"), a_message("2", to="acme/b"), a_message("3", to="acme/a", thread="y")
    )
    waits_ms = refused[1].values[1]

    desk.clock.advance(waits_ms / 1_000)
    later = await desk.send(a_message("4", to="acme/b"), a_message("5", to="acme/a", thread="y"))

    assert [one.word for one in refused] == ["stored", "rationed", "rationed"]
    assert 0 < waits_ms <= desk.keys.ttl_ms
    assert [one.word for one in later] == ["stored", "stored"]


async def test_a_sender_begins_so_many_threads_and_goes_on_with_those_it_has(make_desk: MakeDesk) -> None:
    desk = await make_desk(max_threads=3)

    words = [(await desk.send_one(a_message(f"m-{n}", thread=f"t-{n}"))).word for n in range(5)]
    further = await desk.send(a_message("1", thread="t-0"), a_message("2"), a_message("3", thread="t-4"))
    others = await desk.send_one(a_message("1", thread="t-4"), sender=CAROL)

    assert words == ["stored", "stored", "stored", "rationed", "rationed"]
    assert [one.word for one in further] == ["stored", "stored", "rationed"]
    assert others.word == "stored"
    assert desk.redis.hlen(desk.keys.seqs(0, desk.clock.now_ms())[0]) < 10
