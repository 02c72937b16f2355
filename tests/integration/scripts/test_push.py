"""Push: what is accepted for a session with credits is its own at once, in the order of the mailbox."""

import pytest

from relay.store.mailbox.accept_plain import PUSH_BODY_BYTES
from relay.store.wakes import Wakes, parse_wakes
from tests.builders import BOB, Desk, Puller, a_message, delivered


class Listener:
    """Hears what is pushed to one instance."""

    def __init__(self, desk: Desk, session: str) -> None:
        self._client = desk.redis.__class__(
            host="127.0.0.1", port=desk.redis.connection_pool.connection_kwargs["port"], decode_responses=False
        )
        self._subscription = self._client.pubsub(ignore_subscribe_messages=True)
        self._subscription.subscribe(desk.keys.wake_prefix(0) + session.partition(".")[0])
        self._subscription.get_message(timeout=5)

    def heard(self) -> Wakes:
        """The next publication."""
        message = next(filter(None, (self._subscription.get_message(timeout=1) for _ in range(5))))
        return parse_wakes(0, message["data"])


async def a_pushed_session(desk: Desk, credits: int = 10) -> Puller:
    bob = await desk.join()
    bob.credits_max = credits
    await desk.take(bob)
    bob.credits_max = 0
    assert desk.pushed_to() == (bob.name, credits)
    return bob


async def test_what_is_accepted_belongs_to_the_session_at_once(desk: Desk) -> None:
    bob = await a_pushed_session(desk)
    listener = Listener(desk, bob.name)

    sent = await desk.send(a_message("m-1"), a_message("m-2", payload={"n": 2}))

    assert desk.holders() == {answer.entry: (bob.name, 1) for answer in sent}
    assert desk.pushed_to() == (bob.name, 8)
    (push,) = listener.heard().pushes
    assert (push.session, [(row.entry, row.attempt, delivered(row)["seq"]) for row in push.rows]) == (
        bob.name,
        [(answer.entry, 1, answer.values[1]) for answer in sent],
    )
    body = delivered(push.rows[1])
    assert (body["id"], body["payload"]) == ("m-2", {"n": 2})


async def test_the_count_of_pushes_goes_on(desk: Desk) -> None:
    bob = await a_pushed_session(desk)
    listener = Listener(desk, bob.name)

    await desk.send(a_message("m-1"))
    await desk.send(a_message("m-2"), a_message("m-3"))

    first, second = (listener.heard().pushes[0].total for _ in range(2))
    assert second == first + 2


async def test_without_credits_the_rest_waits_and_the_session_is_woken(desk: Desk) -> None:
    bob = await a_pushed_session(desk, credits=2)
    listener = Listener(desk, bob.name)

    sent = await desk.send(*(a_message(f"m-{n}") for n in range(3)))

    heard = listener.heard()
    assert [len(push.rows) for push in heard.pushes] == [2]
    assert heard.lines == [["mail", BOB, "", str(heard.pushes[0].total)]]
    assert list(desk.holders()) == [answer.entry for answer in sent[:2]]
    assert desk.pushed_to() is None
    assert [row.entry for row in await desk.take(bob)] == [sent[2].entry]


async def test_credits_come_back_with_acks(desk: Desk) -> None:
    bob = await a_pushed_session(desk, credits=2)
    sent = await desk.send(a_message("m-1"), a_message("m-2"))
    rows = [row for answer in sent if (row := desk.kept(answer.entry))]

    refused = await desk.ack(bob, rows=rows)

    assert (refused, desk.pushed_to(), desk.depth()) == ({}, (bob.name, 2), 0)


async def test_a_large_message_is_fetched_when_there_is_room(desk: Desk) -> None:
    bob = await a_pushed_session(desk)

    await desk.send(a_message("m-1", payload="x" * PUSH_BODY_BYTES))

    assert (desk.holders(), desk.pushed_to()) == ({}, None)
    assert len(await desk.take(bob)) == 1


@pytest.mark.parametrize("special", [{"priority": 3}, {"delay_s": 60}, {"ack_timeout_s": 5}])
async def test_a_special_message_ends_the_pushes(desk: Desk, special: dict[str, float]) -> None:
    await a_pushed_session(desk)

    await desk.send(a_message("m-1", **special))

    assert (desk.holders(), desk.pushed_to()) == ({}, None)


@pytest.mark.parametrize("how", ["release", "nack", "ack"])
async def test_whatever_else_is_done_to_a_mailbox_ends_them(desk: Desk, how: str) -> None:
    bob = await a_pushed_session(desk)
    (sent,) = await desk.send(a_message("m-1"))

    await getattr(desk, how)(bob, sent.entry)

    assert desk.pushed_to() is None


async def test_who_takes_over_is_not_pushed_to_before_it_has_taken(desk: Desk) -> None:
    bob = await a_pushed_session(desk)
    (sent,) = await desk.send(a_message("m-1"))

    successor = await desk.join()

    assert desk.pushed_to() is None
    assert desk.holders() == {sent.entry: ("~ready", 1)}
    assert [row.entry for row in await desk.take(successor)] == [sent.entry]
    assert bob.name != successor.name


async def test_who_leaves_gives_back_what_was_pushed(desk: Desk) -> None:
    bob = await a_pushed_session(desk)
    (sent,) = await desk.send(a_message("m-1"))

    await desk.leave(bob)

    assert (desk.pushed_to(), desk.holders()) == (None, {sent.entry: ("~ready", 1)})


async def test_what_was_lost_on_the_way_is_given_again_in_order(desk: Desk) -> None:
    bob = await a_pushed_session(desk, credits=2)
    sent = await desk.send(*(a_message(f"m-{n}") for n in range(3)))

    rows = await desk.take(bob, known=[])

    assert [(row.entry, row.attempt) for row in rows] == [(answer.entry, 1) for answer in sent]


async def test_a_lost_group_loses_nothing(desk: Desk) -> None:
    bob = await a_pushed_session(desk)
    before = await desk.send(a_message("m-1"))
    desk.redis.xgroup_destroy(desk.keys.box(BOB), "agent")

    after = await desk.send(a_message("m-2"))

    assert desk.pushed_to() is None
    assert [row.entry for row in await desk.take(bob)] == [answer.entry for answer in (*before, *after)]


@pytest.mark.parametrize("mode", ["shared", "sender"])
async def test_only_who_serves_alone_is_pushed_to(desk: Desk, mode: str) -> None:
    bob = await desk.join(mode=mode)
    bob.credits_max = 10

    await desk.take(bob)

    assert (bob.credits, desk.pushed_to()) == (0, None)


async def test_a_mailbox_with_lanes_is_not_pushed_from(desk: Desk) -> None:
    await desk.send(a_message("m-1", priority=3))
    bob = await desk.join()
    bob.credits_max = 10

    await desk.take(bob)

    assert (bob.credits, desk.pushed_to()) == (0, None)


async def test_credits_are_what_the_window_has_left(desk: Desk) -> None:
    await desk.send(a_message("m-1"), a_message("m-2"))
    bob = await desk.join()
    bob.credits_max = 10

    await desk.take(bob)

    assert bob.credits == 8
