"""shadows: what is kept of the messages of blocked senders, by each script that keeps, shows or ends it."""

from itertools import pairwise

import pytest

from relay.store.watching.history import Wanted
from tests.builders import ALICE, BOB, CAROL, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk


@pytest.fixture
async def desk(make_desk: MakeDesk) -> Desk:
    desk = await make_desk(mailbox_max_messages=3, mailbox_max_bytes=100, message_ttl_s=60)
    await desk.store.agents.change_blocks(BOB, [ALICE], [])
    return desk


def left(desk: Desk) -> tuple[int, int, int]:
    """Shadows, their sizes, and what is to happen to them."""
    return (
        desk.redis.zcard(desk.shard_key("shadows")),
        desk.redis.hlen(desk.shard_key("shadowed")),
        desk.redis.zcard(desk.shard_key("due")),
    )


async def test_accept_keeps_everything_but_the_payload(desk: Desk) -> None:
    answer = await desk.send_one(a_message("m-1", payload="secret", thread="t", priority=2))

    (shadow,) = desk.redis.zrange(desk.shard_key("shadows"), 0, -1)
    assert (answer.word, answer.values[1]) == ("blocked", 1)
    assert shadow.split("\n")[:3] == [BOB, answer.entry, "8"]
    assert "secret" not in shadow
    assert answer.entry.endswith("p2")
    assert desk.depth(priority=2) == desk.bytes_held() == 0
    assert desk.waits_since() is None


async def test_accept_knows_the_same_id_again_also_after_the_block(desk: Desk) -> None:
    first = await desk.send_one(a_message("m-1"))
    in_one_call = await desk.send(a_message("m-2"), a_message("m-2"))
    await desk.store.agents.change_blocks(BOB, [], [ALICE])
    again = await desk.send_one(a_message("m-1"))

    assert [one.word for one in in_one_call] == ["blocked", "duplicate"]
    assert (again.word, again.values) == ("duplicate", (first.entry, "", 0))


async def test_accept_gives_each_its_own_handle_as_a_mailbox_would(desk: Desk) -> None:
    hidden = await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    stored = await desk.send(*(a_message(f"m-{n}", to=CAROL) for n in range(3)))

    for answers in (hidden, stored):
        first, *others = (tuple(map(int, one.entry.split("-"))) for one in answers)
        assert first[1] % 1_000 == 0
        for (ms, n), (next_ms, next_n) in pairwise([first, *others]):
            assert (next_ms, next_n) == (ms, n + 1) or (next_ms > ms and next_n == 0)


async def test_shadows_fill_the_mailbox_for_blocked_senders_only(desk: Desk) -> None:
    words = [one.word for one in await desk.send(*(a_message(f"m-{n}") for n in range(4)))]
    full = await desk.send_one(a_message("m-5"))
    other = await desk.send_one(a_message("m-1"), sender=CAROL)

    assert words == ["blocked"] * 3 + ["full"]
    assert full.values[:2] == (3, 21)
    assert other.word == "stored"


async def test_a_mailbox_that_only_shadows_fill_is_not_told_to_be_full_but_to_the_blocked_sender(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}") for n in range(4)))

    asked = [Wanted("acme", message="m-3", sees_blocks=sees) for sees in (True, False)]
    told = [(await desk.store.history.latest(wanted, None, 10)).events[0].fields for wanted in asked]

    assert [(event["kind"], event["reason"]) for event in told] == [
        ("refused", "blocked, queue_full"),
        ("refused", "queue_full"),
    ]


async def test_bytes_of_shadows_count_too(desk: Desk) -> None:
    assert (await desk.send_one(a_message("m-1", payload="x" * 90))).word == "blocked"
    assert (await desk.send_one(a_message("m-2", payload="x" * 90))).word == "full"


async def test_where_and_cancel_see_it_as_if_it_waited(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    looks = desk.store.lookup

    before = await looks.where(ALICE, BOB, "m-1")
    words = [await looks.cancel(ALICE, BOB, "m-1"), await looks.cancel(ALICE, BOB, "m-1")]
    after = await looks.where(ALICE, BOB, "m-1")

    assert before is not None
    assert after is not None
    assert (before.state, before.entry, before.at_ms) == ("queued", sent.entry, NOON_MS)
    assert words == ["cancelled", "not_found"]
    assert (after.state, after.entry) == ("cancelled", sent.entry)
    assert left(desk) == (0, 0, 0)


async def test_overdue_ends_it_with_its_time_and_leaves_no_event(desk: Desk) -> None:
    await desk.send_one(a_message("m-1", receipt="all"))
    desk.clock.advance(60)

    assert await desk.overdue() == ["expired"]

    found = await desk.store.lookup.where(ALICE, BOB, "m-1")
    assert found is not None
    assert found.state == "expired"
    assert (await desk.send_one(a_message("m-1"))).word == "duplicate"
    assert [one["state"] for one in await desk.receipts()] == ["expired"]
    assert "expired" not in desk.kinds()
    assert left(desk) == (0, 0, 0)


async def test_remove_ends_them_all(make_desk: MakeDesk) -> None:
    desk = await make_desk()
    await desk.store.agents.register(BOB)
    await desk.store.agents.change_blocks(BOB, [ALICE], [])
    await desk.send(*(a_message(f"m-{n}") for n in range(600)))

    assert await desk.store.agents.remove(BOB, force=False) == "removed"

    assert left(desk) == (0, 0, 0)
    found = await desk.store.lookup.where(ALICE, BOB, "m-599")
    assert found is not None
    assert found.state == "cancelled"


async def test_shadows_are_not_counted_as_mail(desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))

    assert (await desk.store.depths.of(0)).messages == 0
    assert desk.redis.hget(desk.shard_key("sums"), "acme\tmessages") is None


async def test_describe_shows_them_to_a_blocked_viewer_alone(desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))

    (to_alice,), (to_carol,), (as_it_is,) = [
        await desk.store.agents.describe([BOB], viewer) for viewer in (ALICE, CAROL, "")
    ]

    assert (to_alice.depth, to_alice.bytes, to_alice.oldest_ms) == (1, 7, NOON_MS)
    for shown in (to_carol, as_it_is):
        assert (shown.depth, shown.bytes, shown.oldest_ms) == (0, 0, None)


@pytest.mark.parametrize("thread", ["t", ""])
async def test_thread_counts_them_for_their_sender(desk: Desk, thread: str) -> None:
    await desk.send(a_message("m-1", thread=thread or None), a_message("m-2", thread=thread or None))
    agents = desk.store.agents

    to_alice = await agents.thread_state(ALICE, BOB, thread)
    to_bob = await agents.thread_state(ALICE, BOB, thread, for_sender=False)

    assert (to_alice.last_seq, to_alice.settled_seq, to_alice.pending) == (2, 0, 2)
    assert (to_bob.last_seq, to_bob.settled_seq, to_bob.pending) == (2, 2, 0)
