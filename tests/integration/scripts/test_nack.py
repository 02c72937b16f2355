"""nack: a failure is counted; the message comes again later, or goes to the dead-letter box."""

import pytest

from tests.builders import BOB, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk


async def test_it_is_parked_for_the_delay_and_comes_again_as_the_next_attempt(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join(ack_timeout_s=60)
    await desk.take(bob)

    refused = await desk.nack(bob, sent.entry, delay_s=5, reason="busy")
    parked, due = desk.holders(), desk.due()
    too_early = await desk.take(bob)
    desk.clock.advance(5)
    await desk.overdue()
    again = await desk.take(bob)

    assert refused == {}
    assert parked == {sent.entry: ("~parked", 2)}
    assert due == {f"park {sent.entry}": 5}
    assert too_early == []
    assert [(row.entry, row.attempt) for row in again] == [(sent.entry, 2)]
    assert [(event.attempt, event.reason) for event in desk.events("nacked")] == [("1", "busy")]


async def test_without_a_delay_it_is_ready_at_once(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    ears = desk.ears()

    await desk.nack(bob, sent.entry, delay_s=0)

    assert desk.holders() == {sent.entry: ("~ready", 2)}
    assert desk.due() == {}
    assert ears.heard() == ["mail\tacme/bob"]


@pytest.mark.parametrize(("attempt", "delay_s"), [(1, 10), (2, 20), (4, 80), (7, 600), (40, 600)])
async def test_the_delay_doubles_by_attempt_if_none_is_named(desk: Desk, attempt: int, delay_s: int) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    for _ in range(attempt - 1):
        await desk.nack(bob, sent.entry, delay_s=0)
        await desk.take(bob)

    await desk.nack(bob, sent.entry)

    assert desk.due() == {f"park {sent.entry}": delay_s}


async def test_after_max_attempts_it_is_dead_with_its_history(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1", max_attempts=2, payload="cargo"))
    bob = await desk.join()
    for reason in ("first", "second"):
        await desk.take(bob)
        await desk.nack(bob, sent.entry, delay_s=0, reason=reason)

    (letter,) = desk.dead_letters()
    assert letter["entry"] == sent.entry
    assert (letter["attempts"], letter["reason"], letter["at_ms"]) == ("2", "second", str(NOON_MS))
    assert letter["history"].split("\n") == [
        f"1\t{NOON_MS}\t{bob.name}\tfirst",
        f"2\t{NOON_MS}\t{bob.name}\tsecond",
    ]
    assert letter["body"] == '"cargo"'
    assert (desk.depth(), desk.holders(), desk.known_ids(), desk.bytes_held()) == (0, {}, {}, 0)
    assert desk.failures() == {}
    assert [event.attempt for event in desk.events("dead")] == ["2"]
    receipts = await desk.receipts()
    assert [(one["state"], one["reason"], one["attempt"]) for one in receipts] == [("dead", "second", 2)]


@pytest.mark.parametrize("reason", ["tab \t, line \n", 'say "no"\\', "zu spät \u2028", "{", "\0\x7f"])
async def test_the_receipt_has_the_reason_as_it_was_given(desk: Desk, reason: str) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    bob = await desk.join()

    await desk.nack(bob, *(row.entry for row in await desk.take(bob)), retry=False, reason=reason)

    assert [(one["id"], one["reason"]) for one in await desk.receipts()] == [("m-1", reason), ("m-2", reason)]


async def test_without_a_retry_it_is_dead_at_once_and_leaves_no_history_behind(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)

    await desk.nack(bob, sent.entry, retry=False)

    assert [letter["attempts"] for letter in desk.dead_letters()] == ["1"]
    assert desk.depth() == 0
    assert desk.waits_since() is None
    assert desk.failures() == {}


async def test_when_the_dead_letter_box_is_full_it_is_parked_and_tried_again(make_desk: MakeDesk) -> None:
    desk = await make_desk(dead_max_messages=1)
    first, second = await desk.send(a_message("1", max_attempts=1), a_message("2", max_attempts=1))
    bob = await desk.join()
    await desk.take(bob)

    await desk.nack(bob, first.entry, second.entry, reason="bad")
    parked, due = desk.holders(), desk.due()
    desk.clock.advance(60)
    still_full = await desk.overdue()
    still_due = desk.due()
    desk.redis.delete(desk.keys.dead(BOB))
    desk.clock.advance(60)
    room_again = await desk.overdue()

    assert parked == {second.entry: ("~parked", 1)}
    assert due == still_due == {f"bury {second.entry}": 60}
    assert still_full == ["nothing"]
    assert room_again == ["dead"]
    assert [(letter["entry"], letter["reason"]) for letter in desk.dead_letters()] == [(second.entry, "bad")]
    assert (desk.depth(), desk.failures(), desk.due()) == (0, {}, {})
    assert len(desk.events("dead")) == 2


async def test_a_message_that_was_acked_in_the_end_leaves_no_history(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=0)
    history = desk.failures()
    await desk.take(bob)
    await desk.ack(bob, sent.entry)

    assert list(history) == [sent.entry]
    assert desk.failures() == {}


async def test_the_history_of_a_message_that_fails_without_end_stays_small(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    for n in range(60):
        await desk.take(bob)
        await desk.nack(bob, sent.entry, delay_s=0, reason=f"{n} " + "x" * 1_000)

    lines = desk.failures()[sent.entry].split("\n")
    assert len(lines) < 20
    assert lines[-1].startswith("60\t")
    assert all(line.count("\t") == 3 for line in lines)


@pytest.mark.parametrize(("entry", "code"), [("theirs", "lock_lost"), ("1-1", "not_found")])
async def test_only_the_holder_can_fail(desk: Desk, entry: str, code: str) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join(mode="shared")
    eve = await desk.join(mode="shared")
    await desk.take(bob)
    named = sent.entry if entry == "theirs" else entry

    refused = await desk.nack(eve, named, retry=False)

    assert refused == {named: code}
    assert desk.holders() == {sent.entry: (bob.name, 1)}
    assert desk.events("nacked", "dead") == []


async def test_a_wrong_attempt_is_lock_lost(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)

    call = [bob.name, "0-0", True, 0, "", '""', [10, sent.entry, 2]]
    _, _, refused, _ = await desk.call("nack", BOB, [10], call, dead=True)

    assert refused == [1, sent.entry.encode(), b"lock_lost"]


async def test_after_a_nack_the_same_id_is_a_duplicate_and_the_message_comes_again(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=0)

    again = await desk.send_one(a_message("m-1"))
    taken = await desk.take(bob)

    assert again.word == "duplicate"
    assert [row.attempt for row in taken] == [2]


async def test_a_delay_of_long_ago_does_not_bring_back_what_waits_for_its_burial(make_desk: MakeDesk) -> None:
    desk = await make_desk(dead_max_messages=1)
    await desk.send(a_message("1"), a_message("2", delay_s=5))
    bob = await desk.join()
    desk.clock.advance(5)
    first, delayed = await desk.take(bob)  # before any worker saw that the delay was over
    await desk.nack(bob, first.entry, delayed.entry, retry=False)

    became = await desk.overdue()

    assert became == []
    assert desk.holders() == {delayed.entry: ("~parked", 1)}
    assert desk.due() == {f"bury {delayed.entry}": 60}
