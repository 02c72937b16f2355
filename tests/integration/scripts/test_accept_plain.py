"""accept_plain: ordinary messages are stored, and those for a session with credits are its own at once, in order."""

import pytest

from relay.protocol.message import Message
from relay.store.mailbox.accept_plain import PUSH_BODY_BYTES, encode
from relay.store.wakes import Wakes, parse_wakes
from tests.builders import ALICE, BOB, CAROL, Desk, Puller, a_message, delivered
from tests.conftest import MakeDesk


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


async def call(desk: Desk, *messages: Message) -> tuple[list[int], list[str]]:
    """First seq of each run and handle of each message, as the script returns them."""
    drafts = [desk.store.accepting.draft(ALICE, message, lambda *_: None) for message in messages]
    _, _, _, first_seqs, handles = await desk.store.pipeline.reply(encode(desk.encoder, 0, drafts))
    return first_seqs, [handle.decode() for handle in handles]


async def test_ordinary_messages_get_handles_and_the_numbers_of_their_thread(desk: Desk) -> None:
    await desk.join()

    first_seqs, handles = await call(desk, a_message("m-1"), a_message("m-2"))
    after, _ = await call(desk, a_message("m-3"))

    assert (first_seqs, after) == ([1], [3])
    assert desk.known_ids() == {"m-1": handles[0], "m-2": handles[1]} | {"m-3": desk.known_ids()["m-3"]}
    assert desk.kinds() == ["joined", "accepted", "accepted", "accepted"]


@pytest.mark.parametrize("why", ["new thread", "known id", "full", "unused", "paused", "blocks", "own caps", "lanes"])
async def test_a_mailbox_where_anything_else_is_met_is_left_alone(make_desk: MakeDesk, why: str) -> None:
    desk = await make_desk(mailbox_max_messages=3)
    await desk.join()
    await desk.send_one(a_message("m-0", priority=3 if why == "lanes" else 0))
    if why == "paused":
        await desk.store.pauses.pause(BOB, ALICE)
    if why == "blocks":
        await desk.store.agents.change_blocks(BOB, [CAROL], [])
    if why == "own caps":
        await desk.store.limits.set_caps(BOB, 100, 100_000)
    messages = {
        "new thread": [a_message("m-1", thread="t-1")],
        "known id": [a_message("m-0")],
        "full": [a_message("m-1"), a_message("m-2"), a_message("m-3")],
        "unused": [a_message("m-1", to="acme/nobody")],
    }.get(why, [a_message("m-1")])

    first_seqs, handles = await call(desk, *messages)

    assert (first_seqs, handles) == ([0], [""] * len(messages))
    assert list(desk.known_ids()) == ["m-0"]


async def test_another_mailbox_of_the_call_is_served(desk: Desk) -> None:
    await desk.join()

    _, handles = await call(desk, a_message("m-1", to="acme/nobody"), a_message("m-2"))

    assert handles == ["", desk.known_ids()["m-2"]]


async def test_the_first_handle_of_a_mailbox_begins_as_those_of_shadows_do(desk: Desk) -> None:
    """By the number a sender must not see whether it is blocked. A mailbox made anew must not give a handle again."""
    recipients = [f"acme/agent-{n}" for n in range(20)]
    for recipient in recipients:
        await desk.join(recipient)

    _, handles = await call(desk, *(a_message("m-1", to=recipient) for recipient in recipients))

    assert "" not in handles
    assert {handle.partition("-")[2] for handle in handles} != {"0"}


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
