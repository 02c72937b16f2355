"""revive: dead letters start again with no failed attempts."""

from tests.builders import BOB, NOON_MS, Desk, Puller, a_message, delivered


async def bury(desk: Desk, bob: Puller, count: int = 1) -> list[str]:
    """Everything in the mailbox, dead. Returns what the dead-letter box calls it."""
    for row in await desk.take(bob, room=count):
        await desk.nack(bob, row.entry, retry=False, reason="bad")
    _, found = await desk.store.dead_letters.page(BOB, "", 1_000)
    return [letter.entry for letter in found]


async def test_a_revived_message_is_as_new_with_its_whole_time_again(desk: Desk) -> None:
    await desk.send_one(a_message("m-1", payload={"n": 1}, ttl_s=60, max_attempts=3, priority=4))
    bob = await desk.join()
    (letter,) = await bury(desk, bob)
    desk.clock.advance(120)
    ears = desk.ears()

    ((word, entry),) = await desk.store.dead_letters.revive(BOB, [letter])
    row = await desk.take_one(bob)

    body = delivered(row)
    ttl_ms = desk.store.settings.message_ttl_s * 1_000
    assert (word, entry) == ("revived", row.entry)
    assert (row.attempt, body["seq"], body["payload"], body["id"]) == (1, 1, {"n": 1}, "m-1")
    assert (body["sent_at_ms"], body["expires_at_ms"]) == (NOON_MS + 120_000, NOON_MS + 120_000 + ttl_ms)
    assert ears.heard() == [f"mail\t{BOB}"]
    assert desk.dead_letters() == []
    assert (desk.known_ids(), desk.bytes_held()) == ({"m-1": entry}, 7)
    assert [event.entry for event in desk.events("revived")] == [entry]
    assert await desk.ack(bob, entry) == {}
    assert (desk.depth(priority=4), desk.bytes_held()) == (0, 0)


async def test_it_can_fail_and_be_buried_again(desk: Desk) -> None:
    await desk.send_one(a_message("m-1", max_attempts=1))
    bob = await desk.join()
    (letter,) = await bury(desk, bob)
    await desk.store.dead_letters.revive(BOB, [letter])

    row = await desk.take_one(bob)
    await desk.nack(bob, row.entry, reason="again")

    _, (again,) = await desk.store.dead_letters.page(BOB, "", 10, with_body=True)
    assert (again.attempts, again.reason) == (1, "again")
    assert [failed.reason for failed in again.history] == ["again"]


async def test_what_is_not_in_the_box_is_not_found_and_does_not_hurt_the_rest(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    bob = await desk.join()
    one, two = await bury(desk, bob, 2)

    outcomes = await desk.store.dead_letters.revive(BOB, [one, "1-1", two, one])

    assert [word for word, _ in outcomes] == ["revived", "not_found", "revived", "not_found"]
    assert desk.depth() == 2


async def test_a_full_mailbox_takes_nothing_back(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    bob = await desk.join()
    letters = await bury(desk, bob, 2)
    await desk.store.limits.set_caps(BOB, 1, None)

    outcomes = await desk.store.dead_letters.revive(BOB, letters)
    await desk.store.limits.set_caps(BOB, 10, 10)
    by_bytes = await desk.store.dead_letters.revive(BOB, letters[1:])

    assert [word for word, _ in outcomes] == ["revived", "full"]
    assert [word for word, _ in by_bytes] == ["full"]
    assert len(desk.dead_letters()) == 1


async def test_many_are_revived_in_several_calls(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}") for n in range(250)))
    bob = await desk.join()
    letters = await bury(desk, bob, 250)

    outcomes = await desk.store.dead_letters.revive(BOB, letters)

    assert {word for word, _ in outcomes} == {"revived"}
    assert desk.depth() == 250


async def test_only_the_times_of_the_message_are_renewed_not_those_in_its_payload(desk: Desk) -> None:
    payload = {"sent_at_ms": 1, "expires_at_ms": 2}
    await desk.send_one(a_message("m-1", payload=payload))
    bob = await desk.join()
    (letter,) = await bury(desk, bob)
    desk.clock.advance(120)

    await desk.store.dead_letters.revive(BOB, [letter])

    body = delivered(await desk.take_one(bob))
    assert (body["payload"], body["sent_at_ms"]) == (payload, NOON_MS + 120_000)


async def test_what_was_sent_again_meanwhile_is_not_put_there_twice(desk: Desk) -> None:
    await desk.send_one(a_message("m-1"))
    bob = await desk.join()
    (letter,) = await bury(desk, bob)
    desk.clock.advance(2 * desk.store.settings.dedup_window_s)
    again = await desk.send_one(a_message("m-1"))

    ((word, _),) = await desk.store.dead_letters.revive(BOB, [letter])

    assert word == "duplicate"
    assert (desk.depth(), desk.known_ids()) == (1, {"m-1": again.entry})
    assert len(desk.dead_letters()) == 1
