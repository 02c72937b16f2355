"""From a send to a delivery and its receipt, whoever is there and on whichever instance."""

import asyncio

import pytest

from tests.agents import message, messages, until
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")


async def test_who_was_offline_finds_everything_in_order_and_the_sender_gets_receipts(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(3))

    bob = await room.agent("bob", at=room.b)
    found = await bob.deliveries(3)
    await bob.ack(*found)
    receipts = await alice.receipts(3)

    assert bob.queue_status["pending"] == 3
    assert [one["payload"] for one in found] == [1, 2, 3]
    assert all(one["was_stored"] and one["attempt"] == 1 for one in found)
    assert await bob.drained() == 3
    assert [(one["id"], one["state"], one["was_stored"]) for one in receipts] == [
        ("m-1", "delivered", True),
        ("m-2", "delivered", True),
        ("m-3", "delivered", True),
    ]
    assert all(one["to"] == bob.address and one["latency_ms"] >= 0 for one in receipts)


async def test_a_send_in_mid_flush_arrives_after_all_older_ones_exactly_once(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(20))
    bob = await room.agent("bob", window=5)
    first = await bob.deliveries(5)

    await alice.sent(message("late", payload="late"))
    await bob.ack(*first)
    seen = [one["payload"] for one in first]
    while "late" not in seen:
        one = await bob.delivery()
        seen.append(one["payload"])
        await bob.ack(one)
    await bob.settled_down()

    assert seen == [*range(1, 21), "late"]
    assert bob.deliveries_waiting == []
    assert bob.got("drained") == [{"op": "drained", "delivered": 20}]
    ops = [(frame["op"], len(frame.get("messages", []))) for frame in bob.heard]
    assert ops.index(("drained", 0)) == len(ops) - 1 - next(
        n for n, frame in enumerate(reversed(bob.heard)) if frame["op"] == "drained"
    )
    assert bob.got_deliveries()[-1]["was_stored"] is False


@pytest.mark.parametrize(("count", "seen", "acked"), [(5, 3, 2), (5, 5, 0), (5, 5, 5), (7, 1, 1), (3, 3, 1)])
async def test_who_dies_in_the_middle_finds_exactly_the_rest_in_order(
    room: Room, count: int, seen: int, acked: int
) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(count))
    bob = await room.agent("bob", window=max(1, seen))
    found = await bob.deliveries(seen)
    if acked:
        await bob.ack(*found[:acked])

    bob.vanish()
    again = await room.agent("bob", at=room.b, window=50)

    assert again.queue_status["pending"] == count - acked
    assert await again.drained() == count - acked
    assert [one["payload"] for one in again.got_deliveries()] == list(range(acked + 1, count + 1))
    assert all(one["attempt"] == 1 for one in again.got_deliveries())


async def test_what_is_sent_through_one_instance_arrives_through_the_other_before_any_recheck(room: Room) -> None:
    alice, bob = await room.agent("alice", at=room.b), await room.agent("bob", at=room.a)
    await bob.drained()

    await alice.sent(message("m-1"))
    one = await bob.delivery()
    await bob.ack(one)

    assert one["was_stored"] is False
    assert room.depth("bob") == 0
    again = await room.agent("bob", at=room.b)
    assert again.queue_status == {"op": "queue_status", "pending": 0, "bytes": 0, "oldest_ms": None}


async def test_one_agent_cannot_settle_what_another_holds(room: Room) -> None:
    alice, bob, eve = await room.agents("alice", "bob", "eve")
    await alice.sent(message("m-1"))
    one = await bob.delivery()

    for op in ("ack", "nack", "release", "touch"):
        await eve.say(op, entries=[one["entry"]], confirm=True)
        assert (await eve.refusal())["code"] in ("lock_lost", "not_found")
        assert await eve.expect("settled") == {"op": "settled", "entries": []}

    assert room.depth("bob") == 1
    await bob.ack(one)
    assert room.depth("bob") == 0


async def test_a_forged_from_is_ignored(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.sent({**message("m-1"), "from": room.address("eve")})

    assert (await bob.delivery())["from"] == alice.address


async def test_a_second_connection_replaces_the_first_whose_late_close_changes_nothing(room: Room) -> None:
    alice = await room.agent("alice")
    old = await room.agent("bob", at=room.a)
    await alice.sent(message("m-1"), message("m-2"))
    held = await old.deliveries(2)

    new = await room.agent("bob", at=room.b)
    closing = await old.expect("closing")
    code = await old.closed()
    taken_over = await new.deliveries(2)
    await old.close()
    await alice.sent(message("m-3"))

    assert (closing["code"], code) == ("replaced", 4509)
    assert new.queue_status["pending"] == 2
    assert [one["entry"] for one in taken_over] == [one["entry"] for one in held]
    assert all(one["attempt"] == 1 for one in taken_over)
    third = await new.delivery()
    assert third["id"] == "m-3"
    await new.ack(*taken_over, third)
    await alice.say("presence", agents=["bob"])
    assert (await alice.expect("presence"))["agents"][new.address]["online"] is True


async def test_many_takeovers_leave_one_session_and_nothing_lost(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(10))

    sessions = [await room.agent("bob", at=room.a if n % 2 else room.b) for n in range(6)]

    for old in sessions[:-1]:
        assert await old.closed() == 4509
    last = sessions[-1]
    assert await last.drained() == 10
    await last.ack(*await last.deliveries(10))
    assert room.depth("bob") == 0
    consumers = room.redis.xinfo_consumers(room.keys.box(last.address), "agent")
    assert {one["name"] for one in consumers if not one["name"].startswith("~")} <= {last.welcome["session"]}


async def test_the_same_id_again_is_a_duplicate_also_after_its_end(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    assert await alice.sent(message("m-1")) == []

    assert await alice.sent(message("m-1", payload="other")) == ["m-1"]
    one = await bob.delivery()
    await bob.ack(one)
    assert await alice.sent(message("m-1")) == ["m-1"]

    assert one["payload"] == "hello"
    assert room.depth("bob") == 0


async def test_the_same_id_through_two_instances_at_once_is_stored_once(room: Room) -> None:
    here = await room.agent("alice", at=room.a, scope="send")
    there = await room.agent("alice", at=room.b, scope="send")
    batch = messages(50)

    duplicates = await asyncio.gather(here.sent(*batch), there.sent(*batch))

    assert sorted(duplicates[0] + duplicates[1]) == sorted(one["id"] for one in batch)
    assert room.depth("bob") == 50
    bob = await room.agent("bob")
    found = await bob.deliveries(50)
    assert len({one["id"] for one in found}) == 50
    assert sorted(one["seq"] for one in found) == list(range(1, 51))


async def test_ids_are_unique_per_sender_and_recipient_only(room: Room) -> None:
    alice, carol = await room.agents("alice", "carol")

    assert await alice.sent(message("m-1", to="bob"), message("m-1", to="dave")) == []
    assert await carol.sent(message("m-1", to="bob")) == []

    assert (room.depth("bob"), room.depth("dave")) == (2, 1)


async def test_the_same_id_twice_in_one_frame_gets_one_answer_of_each_kind(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.send(message("m-1"), message("m-1"))
    answer = await alice.expect("accepted")

    assert (answer["ids"], answer["duplicate_ids"]) == (["m-1"], ["m-1"])
    assert room.depth("bob") == 1


async def test_a_nacked_message_is_handled_again_and_not_taken_for_a_duplicate(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("m-1"))
    first = await bob.delivery()

    await bob.settle("nack", first, delay_s=0, reason="not today")
    second = await bob.delivery()
    await bob.ack(second)

    assert (second["entry"], second["attempt"]) == (first["entry"], 2)
    (receipt,) = await alice.receipts(1)
    assert (receipt["state"], receipt["attempt"]) == ("delivered", 2)
    assert room.depth("bob") == 0


async def test_the_window_holds_back_until_something_is_confirmed(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.agent("bob", window=3)
    await alice.sent(*messages(10))
    first = await bob.deliveries(3)
    await bob.settled_down()

    assert len(bob.got_deliveries()) == 3
    await bob.ack(first[1])
    (fourth,) = await bob.deliveries(1)
    await bob.settled_down()

    assert fourth["payload"] == 4
    assert len(bob.got_deliveries()) == 4


async def test_higher_priority_first_and_in_order_inside_one(room: Room) -> None:
    alice = await room.agent("alice")
    plan = [(1, 0), (2, 9), (3, 5), (4, 0), (5, 9), (6, 5)]
    await alice.sent(*(message(f"m-{n}", payload=n, priority=priority) for n, priority in plan))

    bob = await room.agent("bob", window=2)
    seen = []
    for _ in plan:
        one = await bob.delivery()
        seen.append(one)
        await bob.ack(one)

    assert await bob.drained() == 6
    assert [one["payload"] for one in seen] == [2, 5, 3, 6, 1, 4]
    assert [one["priority"] for one in seen] == [9, 9, 5, 5, 0, 0]
    assert room.depth("bob") == 0


async def test_what_comes_after_the_session_began_waits_for_drained_whatever_its_priority(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(6))
    bob = await room.agent("bob", window=2)
    held = await bob.deliveries(2)

    await alice.sent(message("urgent", payload="urgent", priority=9))
    seen = [one["payload"] for one in held]
    await bob.ack(*held)
    while len(seen) < 7:
        one = await bob.delivery()
        seen.append(one["payload"])
        await bob.ack(one)

    assert seen == [1, 2, 3, 4, 5, 6, "urgent"]
    order = [frame["op"] for frame in bob.heard if frame["op"] in ("deliver", "drained")]
    assert order[-2:] == ["drained", "deliver"]
    assert await bob.drained() == 6


async def test_live_mail_of_higher_priority_overtakes_what_is_held_back(room: Room) -> None:
    alice = await room.agent("alice")
    bob = await room.agent("bob", window=1)
    await bob.drained()
    await alice.sent(*messages(3))
    first = await bob.delivery()
    await alice.sent(message("urgent", payload="urgent", priority=3))

    seen = []
    await bob.ack(first)
    for _ in range(3):
        one = await bob.delivery()
        seen.append(one["payload"])
        await bob.ack(one)

    assert seen == ["urgent", 2, 3]


async def test_shared_sessions_compete_and_each_message_goes_to_one(room: Room) -> None:
    alice = await room.agent("alice")
    workers = [await room.agent("pool", at=at, mode="shared", window=5) for at in (room.a, room.b, room.b)]
    for worker in workers:
        await worker.drained()

    await alice.sent(*messages(60, to="pool"))

    async def work(worker):  # type: ignore[no-untyped-def]
        done = []
        while True:
            one = await worker.delivery(within_s=60)
            done.append(one["payload"])
            await worker.say("ack", entries=[one["entry"]])

    working = [asyncio.create_task(work(worker)) for worker in workers]
    await until(lambda: room.depth("pool") == 0, "all are done")
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)

    each = [[one["payload"] for one in worker.got_deliveries()] for worker in workers]
    assert sorted(payload for some in each for payload in some) == list(range(1, 61))
    assert all(each)


async def test_what_a_shared_session_held_goes_to_another_when_it_ends_uncounted(room: Room) -> None:
    alice = await room.agent("alice")
    first = await room.agent("pool", mode="shared")
    await alice.sent(*messages(3, to="pool"))
    held = await first.deliveries(3)
    second = await room.agent("pool", at=room.b, mode="shared")

    first.vanish()
    again = await second.deliveries(3)

    assert [one["entry"] for one in again] == [one["entry"] for one in held]
    assert {one["attempt"] for one in again} == {1}


async def test_an_exclusive_session_replaces_shared_ones(room: Room) -> None:
    shared = [await room.agent("pool", at=at, mode="shared") for at in (room.a, room.b)]

    alone = await room.agent("pool")

    assert [await one.closed() for one in shared] == [4509, 4509]
    assert alone.is_open


async def test_a_client_that_only_sends_does_not_disturb_who_serves_the_mailbox(room: Room) -> None:
    bob = await room.agent("bob")
    alice = await room.agent("alice")
    await alice.sent(message("m-1"))
    await bob.delivery()

    sender = await room.agent("bob", at=room.b, scope="send")
    assert await sender.drained() == 0
    await sender.sent(message("m-2", to="alice"))
    successor = await room.agent("bob", at=room.b)
    assert (await successor.delivery())["id"] == "m-1"
    assert await bob.closed() == 4509

    assert sender.queue_status == {"op": "queue_status", "pending": 0, "bytes": 0, "oldest_ms": None}
    assert (await alice.delivery())["from"] == bob.address
    await successor.settled_down()
    assert (successor.is_open, sender.is_open) == (True, True)
    assert sender.got_deliveries() == []


async def test_an_agent_can_write_to_itself(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.sent(message("note", to="alice"))
    one = await alice.delivery()
    await alice.ack(one)

    assert one["from"] == alice.address
    assert (await alice.receipts(1))[0]["id"] == "note"


async def test_rapid_takeovers_never_leave_the_backlog_to_a_replaced_session(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(*messages(30))

    for _ in range(5):
        sessions = [await room.agent("bob", at=(room.a, room.b)[n % 2]) for n in range(6)]
        assert await sessions[-1].drained() == 30
        assert [one["payload"] for one in sessions[-1].got_deliveries()] == list(range(1, 31))
