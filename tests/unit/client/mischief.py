"""What nobody should say to a client: frames of every kind, mail, answers over HTTP, registrations, ends."""

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec import Raw, Struct

from relay.client import Key, SealingKey
from relay.client.connection.frames import Frame
from relay.client.keys.keys import SEALED
from relay.client.keys.security import KEY_HEADER, _context, signed_part

ASKED = ("ask-1", "ask-2", "ask-3")  # in clear, sealed, and in parts: what bob waits for
SENT = "m-now"  # of bob to alice, and still in his outbox
SECRET = "by alice, for bob alone"
CLEAR = "by alice, for everybody"
FORGED = "by eve"
ALICES, EVES = SealingKey.generate(), SealingKey.generate()
EVES_SIGN = Key.generate()


@dataclass(frozen=True, slots=True)
class Said:
    """The relay says this in a session."""

    text: bytes

    def __repr__(self) -> str:
        return f"Said({self.text[:300]!r})"  # some are very long


@dataclass(frozen=True, slots=True)
class Cut:
    """The session ends. In the next one these frames come before the relay's own."""

    code: int | None
    first: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"Cut({self.code}, {[text[:300] for text in self.first]})"


@dataclass(frozen=True, slots=True)
class Answered:
    """The next call over HTTP is answered so."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Registered:
    """This is said to be what eve has registered."""

    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replied:
    """A reply to a request of bob's, or to none."""

    sender: str
    about: str
    id: str
    more: bool
    seal: str

    def text(self, bobs: str, round: int) -> bytes:
        """The frame; `bobs` is the key that is sealed to. In each round its id is another."""
        by_alice = CLEAR if self.seal == "no" else SECRET
        payload = json.dumps(by_alice if self.sender == "acme/alice" else FORGED).encode()
        if self.seal != "no":
            key = ALICES if self.sender == "acme/alice" else EVES
            about = "ask-0" if self.seal == "to another request" else self.about
            payload = key.seal(bobs, payload, _context(self.sender, "acme/bob", about))
        if self.seal == "damaged":
            payload = payload.replace(b"A", b"B")
        answer = {
            "entry": "9-9",
            "id": f"{self.id}-{round}",
            "from": self.sender,
            "reply_to": self.about,
            "more": self.more,
        }
        return msgspec.json.encode({"op": "deliver", "messages": [{**answer, "payload": Raw(payload)}]})


@dataclass(frozen=True, slots=True)
class Mail:
    """A message of eve, which the relay stores and delivers."""

    payload: Raw
    type: str | None
    thread: str | None
    seal: bool
    signs: str
    shows: str

    def message(self, id: str, bobs: str) -> dict[str, Any]:
        payload = bytes(self.payload)
        if self.seal:
            payload = EVES.seal(bobs, payload, _context("acme/eve", "acme/bob", id))
        found = {"id": id, "to": "acme/bob", "type": self.type, "thread": self.thread, "payload": Raw(payload)}
        found["max_attempts"] = 3  # a key that is not the pinned one may be it again later
        if self.signs == "no":
            return found
        names = (id, self.type or "", self.thread or "", "")
        signature = EVES_SIGN.sign(signed_part("acme/eve", "acme/bob", *names, payload))
        shown = EVES_SIGN.public if self.shows == "her key" else self.shows
        return {**found, "headers": {KEY_HEADER: shown}, "signature": signature if self.signs == "yes" else self.signs}


Input = Said | Cut | Answered | Registered | Replied | Mail


# -- values

HUGE = Raw(b"9" * 5_000)
# What a relay takes, and then what it does not.
STRANGE = [HUGE, Raw(b"1e999"), Raw(b"-1e999"), Raw(b"-0"), Raw(b"0." + b"1" * 500), Raw(b'"\\u0000"')]
STRANGE += [Raw(b"[" * depth + b"]" * depth) for depth in (10, 500, 900, 950)]
STRANGE += [Raw(b'{"a":' * depth + b"1" + b"}" * depth) for depth in (500, 950)]
BROKEN = [Raw(b'"\\ud800"'), Raw(b'"\xff"'), Raw(b'"\\udfff\\ud800"'), Raw(b'"\xed\xa0\x80"')]
BROKEN += [Raw(b"[" * depth + b"]" * depth) for depth in (1_500, 20_000)]
RAW = st.sampled_from(STRANGE + BROKEN)
INTEGERS = st.sampled_from([0, 1, -1, 2, 2**31, 2**53, 2**53 + 1, 2**63, -(2**63), 2**64, 10**40, -(10**40), 10**400])
NUMBERS = INTEGERS | st.sampled_from([1.5, -0.5, 1e-320, 1e308, -1e308])
NAMES = st.sampled_from(
    [
        *(*ASKED, "ask-0", SENT, "m-1", "reply:1", "reply:2", "1-0", "9-9", "t"),
        *("alice", "bob", "acme/alice", "acme/bob", "acme/eve", "acme/carol", "other/eve", "news", "sum", "odd"),
        *("delivered", "dead", "expired", "cancelled", "acked", "queued", "held", "replied", "memory", "fsync"),
        *("queue_full", "rate_limited", "store_unavailable", "too_large", "unauthorized", "forbidden", "draining"),
        *("", "x", "/", "a/b/c", "\0", "\n", "\x1b[2J", "ä" * 200, "x" * 5_000, "AAAA", "A" * 44, "A" * 88, KEY_HEADER),
    ]
)
ODD = (
    RAW
    | NUMBERS
    | NAMES
    | st.sampled_from([None, True, False, [], {}, [[]], [None], {"": None}, {"a": [1]}, ["x"] * 1_001])
)
SEALS = [
    Raw(SEALED + tail)
    for tail in (
        *(b"}", b',"once":"","box":1}', b',"once":"AAAA","box":"AAAA"}', b',"once":[],"box":{}}'),
        *(b',"x":' + b"[" * 920 + b"]" * 920 + b"}", b',"once":"%b","box":"%b"}' % (b"A" * 44, b"A" * 88)),
    )
]
TAKEN = st.sampled_from([*map(Raw, (b"1", b'"retry"', b'"reject"', b"null", b'{"n":1}')), *STRANGE, *SEALS])
PAYLOADS = TAKEN | st.sampled_from([*BROKEN, Raw(SEALED), Raw(SEALED + b'"')])


def _is_kind(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Struct)


def of_type(kind: Any) -> SearchStrategy[Any]:
    """Values of a field's type, extreme ones too."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:  # a frame with one number out of its range is not looked at any further
        return any_of({st.sampled_from([0, 1, 2, 10, 2**31, 2**53]): 9, of_type(inside[0]): 1})
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(of_type, inside))
    if origin is list:
        return st.lists(of_type(inside[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(of_type(inside[0]).map(str), of_type(inside[1]), max_size=2)
    if _is_kind(kind):
        return fields_of(kind)
    plain: dict[Any, SearchStrategy[Any]] = {str: NAMES, int: INTEGERS, float: NUMBERS, bool: st.booleans()}
    return {**plain, Raw: PAYLOADS, type(None): st.none()}.get(kind, ODD)


@st.composite
def fields_of(draw: DrawFn, kind: type[Struct]) -> dict[str, Any]:
    """The fields of one type. Now and then one is missing, odd, or unknown."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = {one.encode_name: draw(of_type(hints[one.name])) for one in msgspec.structs.fields(kind)}
    match draw(st.integers(0, 9)):
        case 0:
            found[draw(st.sampled_from([*found, "unknown"]))] = draw(ODD)
        case 1:
            del found[draw(st.sampled_from(list(found)))]
        case 2:
            required = {one.encode_name for one in msgspec.structs.fields(kind) if one.required}
            found = {name: value for name, value in found.items() if name in required}
    return found


def written(value: Any) -> bytes:
    """As JSON, with numbers that no reader takes and text that is none."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Mapping):
        return b"{" + b",".join(json.dumps(name).encode() + b":" + written(one) for name, one in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(written, value)) + b"]"
    return json.dumps(value).encode()


# -- frames

KINDS: list[type[Struct]] = list(typing.get_args(Frame))


@st.composite
def frames(draw: DrawFn, *, kinds: list[type[Struct]] = KINDS) -> bytes:
    """A frame of any kind, with any values."""
    kind = draw(st.sampled_from(kinds))
    return written({"op": kind.__struct_config__.tag, **draw(fields_of(kind))})


@st.composite
def damaged(draw: DrawFn) -> bytes:
    """A frame with other bytes in it, or without its end."""
    text = bytearray(draw(frames()))
    for _ in range(draw(st.integers(0, 3))):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return bytes(text[: draw(st.integers(0, len(text)))])


def noise() -> SearchStrategy[bytes]:
    unknown = st.builds(lambda op, more: written({"op": op, "x": more}), ODD, ODD)
    return unknown | ODD.map(written) | st.binary(max_size=40)


def deliveries() -> SearchStrategy[bytes]:
    """Mail of others, which is what a peer has most say in."""
    return frames(kinds=[kind for kind in KINDS if "messages" in typing.get_type_hints(kind)])


@st.composite
def any_of(draw: DrawFn, weights: dict[SearchStrategy[Any], int]) -> Any:
    """One of these, as often as it says. `one_of` would choose among all that they are made of."""
    return draw(draw(st.sampled_from([one for one, weight in weights.items() for _ in range(weight)])))


def texts() -> SearchStrategy[bytes]:
    return any_of({frames(): 5, deliveries(): 4, damaged(): 2, noise(): 1})


# -- everything

STATUSES = st.sampled_from([200, 201, 204, 301, 400, 401, 403, 404, 409, 413, 429, 500, 502, 503])


def bodies() -> SearchStrategy[dict[str, Any]]:
    """What calls are answered with, as far as it is a JSON object."""
    card = st.fixed_dictionaries({}, optional={"sealing_key": ODD, "sealing_signature": ODD})
    known = {"state": NAMES | ODD, "attempt": ODD, "key": NAMES | ODD, "card": card | ODD, "mode": NAMES | ODD}
    known |= {"parts": st.lists(ODD, max_size=3) | ODD, "reply": ODD, "id": ODD, "to": ODD}
    error = st.fixed_dictionaries({"code": NAMES | ODD, "message": ODD, "retry_after_ms": ODD})
    return st.fixed_dictionaries({}, optional={**known, "error": error | ODD}).map(_readable)


def _readable(body: dict[str, Any]) -> dict[str, Any]:
    """What is left of it after the wire. What no reader takes is another test's."""
    kept = {}
    for name, value in body.items():
        try:
            kept[name] = msgspec.json.decode(written(value))
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return kept


def ends() -> SearchStrategy[Cut]:
    """Every end after which the client comes back, and what may come before the relay's hello."""
    codes = st.sampled_from([None, 0, 1000, 1001, 1002, 1006, 1009, 1011, 3000, 4000, 4001, 4008, 4029, 4321, 4499, -1])
    before = [kind for kind in KINDS if kind.__struct_config__.tag != "error"]  # one there says that our auth was wrong
    return st.builds(Cut, codes, st.lists(frames(kinds=before) | noise(), max_size=2).map(tuple))


def receipts() -> SearchStrategy[bytes]:
    """How what bob has sent is said to have ended."""
    states = st.sampled_from(["delivered", "delivered", "dead", "expired", "cancelled", "else"])
    one = st.fixed_dictionaries({"id": st.sampled_from([*ASKED, SENT]), "to": st.just("acme/alice"), "state": states})
    return st.builds(
        lambda ends: written({"op": "receipts", "cursor": "0-0", "receipts": ends}), st.lists(one, max_size=2)
    )


def replies() -> SearchStrategy[Replied]:
    """Often as they should be, so that what comes before and after the right one is met too."""
    senders = st.sampled_from([*["acme/alice"] * 5, "acme/eve", "other/alice", "alice"])
    seals = st.sampled_from(["no", "no", "yes", "yes", "yes", "to another request", "damaged"])
    ids = st.sampled_from(["reply:1", "reply:2", "reply:3", "m-1"])
    return st.builds(Replied, senders, st.sampled_from([*ASKED * 3, "ask-0"]), ids, st.booleans(), seals)


def mails() -> SearchStrategy[Mail]:
    threads, kinds = st.sampled_from([None, "t", "u"]), st.sampled_from([None, "odd", "in order"])
    signs, shows = st.sampled_from(["no", "yes", "", "é", "A" * 88]), st.sampled_from(["her key", "", "é", "A" * 44])
    return st.builds(Mail, TAKEN, kinds, threads, st.booleans(), signs, shows)


def inputs() -> SearchStrategy[list[Input]]:
    """What a client meets in one example."""
    heard = {texts().map(Said): 10, receipts().map(Said): 2, replies(): 5, mails(): 5, ends(): 1}
    called = {st.builds(Answered, STATUSES, bodies()): 3, bodies().map(Registered): 2}
    return st.lists(any_of({**heard, **called}), min_size=8, max_size=24)
