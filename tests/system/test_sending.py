"""What a message may carry, what is refused, and that each message gets one answer."""

import json
from contextlib import suppress

import aiohttp
import pytest

from tests.agents import Agent, Frame, message, messages
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")

LIMIT = 65_536
DAY_S = 86_400


def payload_text(delivered: Agent) -> str:
    """The payload of the last delivery, as it stands in the frame."""
    text = next(text for text in reversed(delivered.raw) if '"op":"deliver"' in text)
    assert text.count('"payload":') == 1
    before, _, rest = text.partition('"payload":')
    after = rest.rpartition(',"sent_at_ms"')[0]
    assert before
    return after


@pytest.mark.parametrize(
    "payload",
    [
        "1.00",
        "1e2",
        "-0",
        "123456789012345678901234567890.10",
        '"\\u00e4\\/\\n"',
        '"äöü 漢字 🎉"',
        '{"b":1,"a":2,"b":3}',
        '{ "spaced" : [ 1 , 2 ] }',
        "null",
        "false",
        '""',
        "[]",
        "{}",
        "[" * 200 + "]" * 200,
        '"\\u0000"',
        '"\\ud83c\\udf89"',
        '"\u2028\x7f"',
        '{"op":"ack","payload_":1}',
        '"tab\\tand\\\\back"',
    ],
)
async def test_a_payload_arrives_as_the_very_bytes_that_were_sent(room: Room, payload: str) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.say_text('{"op":"send","messages":[{"id":"m-1","to":"bob","payload":' + payload + "}]}")
    await alice.accepted("m-1")
    await bob.delivery()

    assert payload_text(bob) == payload


async def test_everything_optional_is_carried_unchanged(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    extras: Frame = {
        "type": "Aufgabe\t1",
        "thread": "t\n\\1 ✓",
        "reply_to": "m-0",
        "headers": {"trace": "ä\u0000", "": "empty"},
        "signature": "c2ln+/=",
        "priority": 4,
        "request": True,
    }

    await alice.sent(message("m-1", payload={"x": 1}, **extras))
    one = await bob.delivery()

    assert {name: one[name] for name in extras} == extras
    assert one["payload"] == {"x": 1}
    assert (one["id"], one["from"], one["seq"], one["attempt"]) == ("m-1", alice.address, 1, 1)
    assert one["expires_at_ms"] - one["sent_at_ms"] == 7 * DAY_S * 1_000


async def test_what_the_sender_left_out_is_absent(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.sent(message("m-1"))

    assert set(await bob.delivery()) == {
        *("entry", "id", "from", "seq", "priority", "payload", "sent_at_ms", "expires_at_ms", "attempt"),
        *("was_stored", "request"),
    }


async def test_accepted_names_the_durability(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.send(message("m-1"))

    assert await alice.expect("accepted") == {
        "op": "accepted",
        "ids": ["m-1"],
        "duplicate_ids": [],
        "durability": "memory",
    }


async def test_sequence_numbers_count_per_thread_without_gaps(room: Room) -> None:
    alice, carol, bob = await room.agents("alice", "carol", "bob")

    await alice.sent(
        *(message(f"x-{n}", thread="x") for n in range(3)),
        *(message(f"y-{n}", thread="y") for n in range(2)),
        message("x-0", thread="x"),
        message("x-3", thread="x"),
        message("none-1"),
        message("none-2"),
    )
    await carol.sent(message("c", thread="x"))
    found = await bob.deliveries(9)

    assert {one["id"]: one["seq"] for one in found} == {
        "x-0": 1,
        "x-1": 2,
        "x-2": 3,
        "x-3": 4,
        "y-0": 1,
        "y-1": 2,
        "none-1": 1,
        "none-2": 2,
        "c": 1,
    }


async def test_a_refused_message_takes_no_sequence_number(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.send(message("m-1"), message("big", payload="x" * LIMIT), message("m-2"))
    await alice.expect("accepted")

    assert [one["seq"] for one in await bob.deliveries(2)] == [1, 2]


async def test_a_payload_at_the_limit_passes_and_one_byte_more_is_refused(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.sent(message("fits", payload="x" * (LIMIT - 2)))
    assert len((await bob.delivery())["payload"]) == LIMIT - 2
    await alice.send(message("over", payload="x" * (LIMIT - 1)))
    refusal = await alice.refusal()

    assert refusal == {
        "id": "over",
        "to": "bob",
        "code": "too_large",
        "message": refusal["message"],
        "retryable": False,
        "max": LIMIT,
    }
    assert room.depth("bob") == 1
    await alice.settled_down()
    await bob.settled_down()


async def test_the_limit_counts_bytes_not_characters(room: Room) -> None:
    alice = await room.agent("alice")
    fits, over = "ä" * (LIMIT // 2 - 1), "ä" * (LIMIT // 2)

    for id, text in (("fits", fits), ("over", over)):
        await alice.say_text(json.dumps({"op": "send", "messages": [message(id, payload=text)]}, ensure_ascii=False))

    await alice.expect("accepted")
    assert (await alice.refusal())["id"] == "over"


async def test_every_message_of_a_frame_gets_exactly_one_answer(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.sent(message("old"))
    good = [message(f"good-{n}", to=("bob", "dave")[n % 2]) for n in range(10)]
    bad: list[Frame] = [
        message("b-1", payload="x" * LIMIT),
        message("b-2", to="b b"),
        message("b-3", to="other/bob"),
        message("b-4", priority=10),
        message("b-5", ttl_s=0),
        message("b-6", headers={"a": 1}),
        message("b-7", headers={"a": "x" * 5_000}),
        message("b-8", type="x" * 129),
        message("b-9", max_attempts=101),
        message("b-10", delay_s=-1),
        message("b-11", receipt="some"),
        message("b-12", request="yes"),
        {"id": "b-13", "to": "bob"},
        {"id": "b-14", "payload": 1},
        message("b-15", to=""),
        message("b-16", to="a/b/c"),
        message("b-17", to="x" * 65),
    ]
    batch = [one for pair in zip(good, bad, strict=False) for one in pair] + bad[len(good) :] + [message("old")]

    await alice.send(*batch)
    await alice.settled_down()
    answers = alice.got("accepted")[1:]
    refusals = [one for frame in alice.got("refused") for one in frame["refusals"]]

    assert sorted(id for frame in answers for id in frame["ids"]) == sorted(one["id"] for one in good)
    assert [id for frame in answers for id in frame["duplicate_ids"]] == ["old"]
    assert sorted(one["id"] for one in refusals) == sorted(one["id"] for one in bad)
    codes = {one["id"]: one["code"] for one in refusals}
    assert (codes.pop("b-1"), codes.pop("b-3")) == ("too_large", "forbidden")
    assert set(codes.values()) == {"malformed"}
    assert all(one["message"] and one["retryable"] is False for one in refusals)
    assert (room.depth("bob"), room.depth("dave")) == (6, 5)


@pytest.mark.parametrize("id", ["", "x" * 129, "ä", "a\n", "a\u0000", "\u007f", None, 7, ["m-1"], {}])
async def test_a_bad_id_is_refused_by_name_as_far_as_it_has_one(room: Room, id: object) -> None:
    alice = await room.agent("alice")

    await alice.send({"id": id, "to": "bob", "payload": 1}, message("good"))
    refusal = await alice.refusal()
    await alice.accepted("good")

    assert refusal["code"] == "malformed"
    assert refusal["id"] == (id if isinstance(id, str) else None)
    assert refusal["to"] == "bob"


@pytest.mark.parametrize("id", ["x" * 128, " ", "~!\"\\'{}", "a/b:c"])
async def test_any_printable_ascii_is_an_id(room: Room, id: str) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.sent(message(id))
    one = await bob.delivery()
    await bob.ack(one)

    assert one["id"] == id
    assert (await alice.receipts(1))[0]["id"] == id


async def test_a_message_that_is_no_object_is_refused_alone(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.say("send", messages=[1, message("good"), None, [], "text"])
    await alice.expect("accepted")
    await alice.settled_down()

    refusals = [one for frame in alice.got("refused") for one in frame["refusals"]]
    assert [one["code"] for one in refusals] == ["malformed"] * 4


@pytest.mark.parametrize("count", [0, 501])
async def test_a_frame_has_1_to_500_messages(room: Room, count: int) -> None:
    alice = await room.agent("alice")

    await alice.send(*messages(count))

    assert (await alice.error())["code"] == "malformed"
    assert room.depth("bob") == 0


async def test_500_messages_in_a_frame_are_fine(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob", window=1_000)

    await alice.sent(*messages(500))

    assert [one["payload"] for one in await bob.deliveries(500)] == list(range(1, 501))


async def test_the_recipient_may_be_written_with_and_without_its_tenant(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.sent(message("m-1", to="bob"), message("m-2", to=bob.address))
    assert await alice.sent(message("m-1", to=bob.address)) == ["m-1"]

    assert [one["id"] for one in await bob.deliveries(2)] == ["m-1", "m-2"]


async def test_unknown_fields_are_ignored(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.say("send", messages=[message("m-1", colour="red", entry="1-1", seq=9)], colour="red")
    await alice.accepted("m-1")

    one = await bob.delivery()
    assert "colour" not in one
    assert one["seq"] == 1


@pytest.mark.parametrize("ttl_s", [1e308, 1e17, 31 * DAY_S])
async def test_a_ttl_can_only_shorten_the_relays(room: Room, ttl_s: float) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.sent(message("m-1", ttl_s=ttl_s))
    one = await bob.delivery()

    assert one["expires_at_ms"] - one["sent_at_ms"] == 7 * DAY_S * 1_000


async def test_a_short_ttl_is_told_to_the_recipient(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.sent(message("m-1", ttl_s=60.5))
    one = await bob.delivery()

    assert one["expires_at_ms"] - one["sent_at_ms"] == 60_500


async def test_a_malformed_frame_among_good_ones_is_an_error_for_itself_only(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")

    await alice.send(message("m-1"))
    await alice.say_text('{"op":"send","messages":[{')
    await alice.say_text('{"op":"ack","entries":"1-1"}')
    await alice.say_text('{"op":"fly"}')
    await alice.say_bytes(b"\x81\xff")
    await alice.send(message("m-2"))
    await alice.accepted("m-1", "m-2")
    await alice.settled_down()

    assert [one["code"] for one in alice.got("error")] == ["malformed", "malformed", "unknown_op", "malformed"]
    assert [one["id"] for one in await bob.deliveries(2)] == ["m-1", "m-2"]


async def test_binary_frames_are_malformed(room: Room) -> None:
    alice = await room.agent("alice")

    await alice.say_bytes(b'{"op":"ping"}', aiohttp.WSMsgType.BINARY)

    assert (await alice.error())["code"] == "malformed"
    await alice.settled_down()


@pytest.mark.parametrize("size", [4 * 2**20, 5 * 2**20, 20 * 2**20])
async def test_a_frame_over_the_size_limit_ends_the_connection_with_1009(room: Room, size: int) -> None:
    alice = await room.agent("alice")

    with suppress(ConnectionError):  # the relay need not read it to its end
        await alice.say("send", messages=[message("m-1", payload="x" * size)])

    assert await alice.closed() == 1009
    assert room.depth("bob") == 0


async def test_order_holds_over_many_frames_of_one_sender(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob", window=1_000)

    for n in range(200):
        await alice.send(message(f"m-{n}", payload=n))
    found = await bob.deliveries(200)

    assert [one["payload"] for one in found] == list(range(200))
    assert [one["seq"] for one in found] == list(range(1, 201))
