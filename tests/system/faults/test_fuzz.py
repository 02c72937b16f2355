"""Ten thousand frames that no client should send: each is answered, none ends the session or troubles the instance."""

import json
import random
import string
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agents import Agent, message
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("fuzz")

SETTINGS = {"rate_per_s": 0, "recheck_s": 30}
FRAMES, BATCH = 10_000, 250
SEED = 20_240_601

VALID: list[dict[str, Any]] = [
    {"op": "send", "messages": [message("m-1", thread="t", priority=3, headers={"a": "b"}, ttl_s=5, delay_s=9)]},
    {"op": "ack", "entries": ["1-1"], "confirm": True},
    {"op": "nack", "entries": ["1-1", "2-2p4"], "reason": "no", "retry": True, "delay_s": 5},
    {"op": "release", "entries": ["1-1"]},
    {"op": "touch", "entries": ["1-1"], "extend_s": 30},
    {"op": "reply", "entry": "1-1", "payload": {"x": 1}, "more": True},
    {"op": "receipts_ack", "cursor": "1-1"},
    {"op": "subscribe", "topics": ["a", "b"]},
    {"op": "unsubscribe", "topics": ["a"]},
    {"op": "publish", "topic": "nobody-listens", "payload": 1},
    {"op": "block", "agents": ["stranger"]},
    {"op": "unblock", "agents": ["stranger"]},
    {"op": "presence", "agents": ["bob"]},
    {"op": "sync", "peer": "bob", "thread": "t"},
    {"op": "ping"},
    {"op": "auth", "window": 5, "mode": "shared", "card": {}},
]
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        2**31,
        2**63,
        2**64,
        10**40,
        -(10**40),
        1.5,
        -0.0,
        1e308,
        1e-320,
        "",
        "x",
        "1-1",
        "0-0",
    ),
    *("\x00", "\t", "\n", "ä" * 200, "x" * 2_000, "a/b", "a/b/c", "/", "..", "~ready", "~parked", "9" * 400, "-1-1"),
    *("18446744073709551615-18446744073709551615", "999999999999999999-999999999999999999", "1-1p0", "1-1p10"),
    *([], {}, [[]], [None], ["x"] * 1_001, {"a": {"a": {}}}, [1, "1", None], {"": ""}, ["1-1"] * 1_000),
]


class Mischief:
    """Frames as (bytes, whether they are text), as the source of chance has it."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance

    def frame(self) -> tuple[bytes, bool]:
        make = self._random.choice(
            [
                *(self.mutated, self.mutated, self.truncated, self.odd_field, self.odd_field, self.odd_message),
                *(self.noise, self.random_json, self.nested, self.surrogates, self.huge_number, self.binary),
            ]
        )
        return make()

    def _valid(self) -> dict[str, Any]:
        return dict(self._random.choice(VALID))

    def mutated(self) -> tuple[bytes, bool]:
        data = bytearray(json.dumps(self._valid()).encode())
        for _ in range(self._random.randint(1, 4)):
            data[self._random.randrange(len(data))] = self._random.randrange(256)
        return bytes(data), True

    def truncated(self) -> tuple[bytes, bool]:
        data = json.dumps(self._valid()).encode()
        return data[: self._random.randrange(len(data))], True

    def odd_field(self) -> tuple[bytes, bool]:
        frame = self._valid()
        frame[self._random.choice([*frame, "confirm", "entries", "extra"])] = self._random.choice(ODD)
        return json.dumps(frame).encode(), True

    def odd_message(self) -> tuple[bytes, bool]:
        one = {**message("m-1"), self._random.choice(MESSAGE_FIELDS): self._random.choice(ODD)}
        return json.dumps({"op": "send", "messages": [one, self._random.choice(ODD)]}).encode(), True

    def noise(self) -> tuple[bytes, bool]:
        return self._random.randbytes(self._random.randint(0, 60)), True

    def random_json(self) -> tuple[bytes, bool]:
        return json.dumps(self._value(4)).encode(), True

    def _value(self, depth: int) -> Any:
        kind = self._random.randrange(6 if depth else 3)
        if kind == 0:
            return self._random.choice(ODD)
        if kind < 3:
            return "".join(self._random.choices(string.printable, k=self._random.randrange(8)))
        if kind == 3:
            return [self._value(depth - 1) for _ in range(self._random.randrange(4))]
        keys = [self._random.choice(["op", "entries", "messages", "id", "to", "payload", "x"]) for _ in range(3)]
        return {key: self._value(depth - 1) for key in keys}

    def nested(self) -> tuple[bytes, bool]:
        depth = self._random.choice([10, 500, 1_500, 20_000])
        opening, closing = self._random.choice([("[", "]"), ('{"op":', "}"), ('{"op":"send","messages":[', "]}")])
        whole = self._random.random() < 0.5
        return (opening * depth + "1" + (closing * depth if whole else "")).encode(), True

    def surrogates(self) -> tuple[bytes, bool]:
        escaped = self._random.choice(["\\ud800", "\\udfff", "\\ud83d\\ud83d", "\\u0000", "\\uffff"])
        raw = self._random.choice([b"\xed\xa0\x80", b"\xff\xfe", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
        text = json.dumps(self._valid()).encode()
        where = text.index(b'"', self._random.randrange(len(text) // 2)) + 1
        return text[:where] + self._random.choice([escaped.encode(), raw]) + text[where:], True

    def huge_number(self) -> tuple[bytes, bool]:
        number = self._random.choice(
            ["9" * 500, "1e999", "-1e999", "0." + "1" * 500, "1E400", "-0", "00", "1.", ".1", "NaN"]
        )
        field = self._random.choice(["window", "delay_s", "extend_s", "next_active_at_ms", "ttl_s"])
        return b'{"op":"touch","entries":["1-1"],"%b":%b}' % (field.encode(), number.encode()), True

    def binary(self) -> tuple[bytes, bool]:
        return json.dumps(self._valid()).encode(), False


MESSAGE_FIELDS = [
    *("id", "to", "payload", "type", "thread", "reply_to", "priority", "ttl_s", "delay_s", "max_attempts"),
    *("ack_timeout_s", "receipt", "request", "signature", "headers"),
]
ANSWERS = {"error", "refused", "accepted", "settled", "subscribed", "blocks", "presence", "sync_state", "pong"}


def must_be_answered(data: bytes, is_text: bool) -> bool:
    """Whether a frame is certainly wrong: it is not JSON, no object, or its op is unknown."""
    if not is_text:
        return True
    try:
        frame = json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return True
    return not isinstance(frame, dict) or frame.get("op") not in [one["op"] for one in VALID]


def _refuse(name: str) -> Any:
    raise ValueError(name)


def batches(count: int) -> list[list[tuple[bytes, bool]]]:
    """Hypothesis chooses the frames; the same ones in every run."""
    found: list[list[tuple[bytes, bool]]] = []

    @settings(max_examples=count, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=True))
    def make(chance: random.Random) -> None:
        mischief = Mischief(chance)
        found.append([mischief.frame() for _ in range(BATCH)])

    make()
    return found


async def test_bad_frames_are_answered_and_change_nothing(room: Room) -> None:
    mallory, bob = await room.agents("mallory", "bob")
    sent = 0

    for batch in batches(FRAMES // BATCH):
        for data, is_text in batch:
            await mallory.say_bytes(data, aiohttp.WSMsgType.TEXT if is_text else aiohttp.WSMsgType.BINARY)
        sent += BATCH
        await _hear_all(mallory, f"round-{sent}")
        answers = sum(frame["op"] in ANSWERS for frame in mallory.heard)
        wrong = sum(must_be_answered(*one) for one in batch)
        assert answers >= wrong, f"{wrong} bad frames, {answers} answers"
        assert {frame["op"] for frame in mallory.heard} <= ANSWERS | OPENING
        mallory.heard.clear()
        mallory.inbox.clear()
        mallory.raw.clear()

    assert sent >= FRAMES
    assert mallory.is_open
    assert room.a.is_running
    await mallory.say("unblock", agents=["bob", "stranger"])
    await mallory.expect("blocks")
    await mallory.sent(message("good", payload="still here", priority=9))
    while (await bob.delivery())["payload"] != "still here":
        await bob.say("ack", entries=[bob.got_deliveries()[-1]["entry"]])
    async with aiohttp.ClientSession() as http, http.get(f"{room.a.url}/readyz") as answer:
        assert answer.status == 200


OPENING = {"hello", "welcome", "queue_status", "drained", "receipts", "deliver", "event"}


async def _hear_all(agent: Agent, mark: str) -> None:
    """Returns when everything said before has been answered."""
    await agent.say("sync", peer="bob", thread=mark)
    while (await agent.expect("sync_state", within_s=20))["thread"] != mark:
        pass


async def test_bad_frames_before_auth_are_answered_too(room: Room) -> None:
    mischief = Mischief(random.Random(SEED))
    for _ in range(40):
        eve = await room.socket("eve")
        await eve.expect("hello")
        data, is_text = mischief.frame()
        while not must_be_answered(data, is_text):
            data, is_text = mischief.frame()

        await eve.say_bytes(data, aiohttp.WSMsgType.TEXT if is_text else aiohttp.WSMsgType.BINARY)

        assert (await eve.error())["code"] in ("malformed", "unknown_op", "unauthorized")
        await eve.close()


async def test_pieces_of_a_frame_and_control_frames_in_between_are_put_together(room: Room) -> None:
    alice = await room.agent("alice")
    transport = alice._ws._response.connection.transport  # type: ignore[union-attr]

    def piece(opcode: int, payload: bytes) -> bytes:
        return bytes([opcode, 0x80 | len(payload)]) + b"\0\0\0\0" + payload  # a mask of zeros changes nothing

    transport.write(piece(0x01, b'{"op":'))  # type: ignore[union-attr]
    transport.write(piece(0x89, b"ping"))  # type: ignore[union-attr]
    transport.write(piece(0x00, b'"pi') + piece(0x80, b'ng"}'))  # type: ignore[union-attr]

    await alice.expect("pong")
