"""fence: a call that is sent again is carried out once, and one that comes too late is not carried out at all."""

from typing import Any

import pytest

from relay.errors import StoreRefused
from relay.store.mailbox.settle import ReplyStep
from tests.builders import BOB, LEASE_MS, NOON_MS, Desk, a_message


async def a_held_message(desk: Desk, **fields: Any) -> tuple[Any, str]:
    bob = await desk.join()
    sent = await desk.send_one(a_message(**fields))
    await desk.take(bob)
    return bob, sent.entry


def ack(bob: Any, entry: str) -> list[Any]:
    return [bob.name, "0-0", True, 500, [10, entry, 0]]


async def test_an_ack_that_is_sent_again_is_answered_as_the_first_time(desk: Desk) -> None:
    bob, entry = await a_held_message(desk)
    packet = desk.packet("ack", BOB, [], ack(bob, entry), exchange=desk.next_exchange())

    _, receipts, refused, _ = await desk.store.pipeline.reply(packet)
    again = await desk.store.pipeline.reply(packet)

    assert (len(receipts), refused) == (2, [])
    assert again == [b"", [], [], b""]
    assert len(desk.events("acked")) == 1


async def test_what_was_refused_the_first_time_is_refused_again_though_it_would_succeed_now(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message())
    packet = desk.packet("ack", BOB, [], ack(bob, sent.entry), exchange=desk.next_exchange() + 1)  # as is the take
    _, _, refused, _ = await desk.store.pipeline.reply(packet)

    answer = bob.asks(1, None)
    desk.store.taking.take(BOB, bob.request, bob.answered)
    await answer
    _, _, again, _ = await desk.store.pipeline.reply(packet)

    assert refused == again == [1, sent.entry.encode(), b"lock_lost"]
    assert desk.depth() == 1


@pytest.mark.parametrize(
    ("name", "before", "values"),
    [
        ("ack", [], ["0-0", True, 500]),
        ("nack", [10], ["0-0", True, 0, "late", '"late"']),
        ("release", [], []),
        ("touch", [], [60_000]),
    ],
)
async def test_a_settling_call_that_comes_too_late_changes_nothing(
    desk: Desk, name: str, before: list[Any], values: list[Any]
) -> None:
    bob, entry = await a_held_message(desk, ack_timeout_s=5)
    late = desk.packet(
        name, BOB, before, [bob.name, *values, [10, entry, 0]], name == "nack", desk.store.pipeline.exchange
    )
    await desk.touch(bob, entry, extend_s=7)

    with pytest.raises(StoreRefused):
        await desk.store.pipeline.reply(late)

    assert desk.holders() == {entry: (bob.name, 1)}
    assert desk.due() == {f"hold {entry}": 7}


async def test_a_join_that_comes_after_its_instance_gave_it_up_replaces_nobody(desk: Desk) -> None:
    given_up = desk.new_session("other")
    late = desk.packet("join", BOB, [], [given_up, "exclusive", LEASE_MS, 0, NOON_MS])
    serving = await desk.join()
    await desk.store.presence.leave(BOB, given_up, "store_unavailable")

    with pytest.raises(StoreRefused):
        await desk.store.pipeline.reply(late)

    assert [line.split("\t")[0] for line in desk.sessions()] == [serving.name]


async def test_a_take_that_comes_after_its_session_looked_again_takes_nothing(desk: Desk) -> None:
    bob = await desk.join()
    values = [bob.name, 10, "", 0, False, False, False]
    late = desk.packet("take", BOB, [], values, exchange=desk.store.pipeline.exchange)
    await desk.take(bob, known=[])
    sent = await desk.send_one(a_message())

    with pytest.raises(StoreRefused):
        await desk.store.pipeline.reply(late)

    assert desk.holders() == {}
    assert [row.entry for row in await desk.take(bob)] == [sent.entry]


async def test_a_part_of_a_reply_that_is_sent_again_is_there_once(desk: Desk) -> None:
    bob, entry = await a_held_message(desk, request=True)
    part = ReplyStep(BOB, bob.name, bob.backlog_end, entry, b'"half"', True, lambda _: None)
    packet = desk.store.settling._encode_reply(0, part, (desk.next_exchange(), 0))

    first = await desk.store.pipeline.reply(packet)
    again = await desk.store.pipeline.reply(packet)

    assert (first[2], again) == (b"replied", [b"", [], b"replied", b""])
    assert len(desk.events("replied")) == 1


async def test_an_instance_is_remembered_by_one_small_record(desk: Desk) -> None:
    bob = await desk.join()
    for n in range(20):
        await desk.send_one(a_message(f"m-{n}"))
        await desk.ack(bob, (await desk.take_one(bob)).entry)

    assert desk.redis.hlen(desk.keys.calls(0)) == 1
    assert desk.redis.hstrlen(desk.keys.calls(0), desk.store.instance) < 20
