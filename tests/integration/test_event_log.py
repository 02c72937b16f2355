"""The event log as it is in the store: an entry per call, with a line per event."""

from relay.store.watching.history import Wanted
from tests.builders import ALICE, BOB, NOON_MS, Desk, a_message


def last_entry(desk: Desk) -> list[str]:
    """Its field, and its lines."""
    name, value = desk.raw_range(desk.keys.events(0))[-1][1]
    return [name, *value.split("\n")]


async def test_all_events_of_a_call_are_lines_of_one_field(desk: Desk) -> None:
    first, second = await desk.send(a_message("m-1", thread="t"), a_message("m-2", type="job", payload="four"))

    assert last_entry(desk) == [
        *("e1", f"{NOON_MS}\t{desk.store.instance}"),
        f"accepted\t{first.entry}\t1\t\t\t\t\tacme\tbob\talice\tm-1\t\tt\t0\t7",
        f"accepted\t{second.entry}\t1\t\t\t\t\tacme\tbob\talice\tm-2\tjob\t\t0\t6",
    ]


async def test_a_served_mailbox_has_the_same_events_on_the_short_way(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message("m-1", type="job"))
    accepted = last_entry(desk)
    (row,) = await desk.take(bob)
    row.taken_at_ms = NOON_MS - 30
    await desk.ack(bob, rows=[row])

    session = bob.name.removeprefix(desk.store.instance)
    first = f"{NOON_MS}\t{desk.store.instance}"
    assert accepted == ["e1", first, f"accepted\t{sent.entry}\t1\t\t\t\t\tacme\tbob\talice\tm-1\tjob\t\t0\t7"]
    assert last_entry(desk) == ["e1", first, f"acked\t{sent.entry}\t\t1\t{session}\t\t30\tacme\tbob\talice\tm-1"]


async def test_no_delivery_was_held_for_less_than_no_time(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("m-1"))
    (row,) = await desk.take(bob)
    row.taken_at_ms = NOON_MS + 30
    await desk.ack(bob, rows=[row])

    (acked,) = desk.events("acked")
    assert (acked.taken_at, acked.at_ms) == (str(NOON_MS), NOON_MS)


async def test_what_a_line_leaves_out_is_told_by_its_entry(desk: Desk) -> None:
    bob = await desk.join()
    await desk.send_one(a_message("m-1"))
    taken = await desk.take_one(bob)
    await desk.ack(bob, taken.entry)

    (acked,) = desk.events("acked")
    assert (acked.who, acked.instance, acked.at_ms) == (bob.name, desk.store.instance, NOON_MS)
    assert 0 <= acked.at_ms - int(acked.taken_at) < 60_000
    assert last_entry(desk)[2].endswith("\tm-1")


async def test_a_name_that_begins_with_a_dot_is_no_session(desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))

    await desk.store.lookup.cancel(ALICE, BOB, "m-1", ".24/root")

    (cancelled,) = desk.events("cancelled")
    assert cancelled.who == "\\.24/root"
    page = await desk.store.history.latest(Wanted("acme", session=".24/root"), None, 10)
    assert [event.fields["who"] for event in page.events] == [".24/root"]
