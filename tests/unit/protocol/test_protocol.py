"""Frames: what parses, what is refused and how it is explained. No sockets."""

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import Malformed, TooLarge, UnknownOp
from relay.protocol import frames
from relay.protocol.address import address
from relay.protocol.columns import escape
from relay.protocol.entry import parse_entry
from relay.protocol.frames import Ack, AnyFrame, Auth, Nack, Ping, Send, Sync, Touch, frame, parse
from relay.protocol.message import Message, parse_message

LIMIT = 1_000


def parsed(**fields: object) -> AnyFrame:
    return parse(json.dumps(fields).encode())


def a_raw(**fields: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps({"id": "m-1", "to": "bob", "payload": 1, **fields}).encode())


def test_defaults_are_those_of_the_contract() -> None:
    auth, nack, touch = parsed(op="auth"), parsed(op="nack", entries=["1-1"]), parsed(op="touch", entries=["1-1"])
    message = parse_message(a_raw(), "acme", LIMIT)

    assert isinstance(auth, Auth)
    assert (auth.window, auth.mode, auth.ack_timeout_s) == (50, None, None)
    assert isinstance(nack, Nack)
    assert (nack.retry, nack.delay_s, nack.reason, nack.confirm) == (True, None, "", False)
    assert isinstance(touch, Touch)
    assert touch.extend_s == 30
    assert (message.priority, message.max_attempts, message.receipt, message.request) == (0, 0, True, False)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"op": "ping", "extra": 1}, Ping), ({"op": "ack", "entries": ["1-1"]}, Ack), ({"op": "sync", "peer": "b"}, Sync)],
)
def test_a_frame_becomes_its_type_and_unknown_fields_are_ignored(fields: dict[str, object], kind: type) -> None:
    assert isinstance(parsed(**fields), kind)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"1", b'"ping"', b"null", b"{}", b'{"op":1}', b'{"op":null}', b"\xff", b'{"op":"ping"} x'],
)
def test_what_is_no_frame_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse(data)


def test_an_unknown_op_is_named_but_not_at_any_length() -> None:
    with pytest.raises(UnknownOp, match="unknown op 'fly'"):
        parsed(op="fly")
    with pytest.raises(UnknownOp) as error:
        parsed(op="x" * 10_000)
    assert len(error.value.message) < 100


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"op": "ack", "entries": "1-1"}, "entries"),
        ({"op": "ack", "entries": []}, "entries"),
        ({"op": "ack", "entries": ["1-1"] * 1_001}, "entries"),
        ({"op": "nack", "entries": ["1-1"], "delay_s": -1}, "delay_s"),
        ({"op": "auth", "window": 1_001}, "window"),
        ({"op": "auth", "card": []}, "card"),
        ({"op": "auth", "card": {"x": "x" * 20_000}}, "card"),
        ({"op": "send", "messages": []}, "messages"),
        ({"op": "reply", "entry": "1-1"}, "payload"),
    ],
)
def test_a_broken_field_is_named(fields: dict[str, object], field: str) -> None:
    with pytest.raises(Malformed, match=field):
        parsed(**fields)


def test_a_card_is_an_object_or_nothing() -> None:
    auth, none = parsed(op="auth", card={"a": 1}), parsed(op="auth", card=None)

    assert isinstance(auth, Auth)
    assert isinstance(none, Auth)
    assert (bytes(auth.card), bytes(none.card)) == (b'{"a": 1}', b"null")


def test_deep_nesting_is_malformed_and_no_crash() -> None:
    with pytest.raises(Malformed):
        parse(b'{"op":' + b"[" * 100_000)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_our_errors(data: bytes) -> None:
    with suppress(Malformed, UnknownOp):
        parse(data)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda v: st.lists(v, max_size=3))
)
def test_any_value_in_any_field_of_a_message_is_taken_or_refused(value: object) -> None:
    for name in Message.__struct_fields__:
        with suppress(Malformed, TooLarge):
            parse_message(a_raw(**{name: value}), "acme", LIMIT)


def test_a_message_that_cannot_be_read_does_not_hurt_its_neighbours() -> None:
    good = '{"id":"m-1","to":"bob","payload":{"a": 1.00,"b":"],[{\\"}"}}'
    half = '{"id":"m-2","to":"bob","payload":"\\ud800"}'

    send = parse(f'{{"op":"send","x":{{"messages":[0]}}, "messages" : [{good}, {half},{good}]}}'.encode())

    assert isinstance(send, Send)
    first, second, third = send.messages
    assert bytes(parse_message(first, "acme", LIMIT).payload) == b'{"a": 1.00,"b":"],[{\\"}"}'
    assert parse_message(third, "acme", LIMIT).id == "m-1"
    with pytest.raises(Malformed) as refused:
        parse_message(second, "acme", LIMIT)
    assert (refused.value.details["id"], refused.value.details["to"]) == ("m-2", "bob")


def test_a_refusal_names_the_id_as_it_was_sent() -> None:
    with pytest.raises(Malformed) as refused:
        parse_message(a_raw(id="x" * 129), "acme", LIMIT)

    assert refused.value.details["id"] == "x" * 129


def test_a_bare_recipient_is_of_the_senders_tenant() -> None:
    assert parse_message(a_raw(), "acme", LIMIT).to == "acme/bob"
    assert parse_message(a_raw(to="other/bob"), "acme", LIMIT).to == "other/bob"


def test_a_payload_is_the_bytes_that_came() -> None:
    raw = msgspec.Raw(b'{"id":"m-1","to":"bob","payload": {"a" : 1.00} }')

    assert bytes(parse_message(raw, "acme", LIMIT).payload) == b'{"a" : 1.00}'


def test_a_payload_at_the_limit_fits_and_one_byte_more_does_not() -> None:
    parse_message(a_raw(payload="x" * (LIMIT - 2)), "acme", LIMIT)
    with pytest.raises(TooLarge) as error:
        parse_message(a_raw(payload="x" * (LIMIT - 1)), "acme", LIMIT)

    assert error.value.details["max"] == LIMIT
    assert error.value.details["id"] == "m-1"


@pytest.mark.parametrize(
    ("name", "found"),
    [("bob", "acme/bob"), ("x/y", "x/y"), ("a.b_c-D9", "acme/a.b_c-D9"), ("x" * 64, f"acme/{'x' * 64}")],
)
def test_addresses(name: str, found: str) -> None:
    assert address(name, "acme") == found


@pytest.mark.parametrize("name", ["", "/", "a/", "/b", "a/b/c", "a b", "ä", "x" * 65, "a\n", "a/b\n", "~"])
def test_what_is_no_address(name: str) -> None:
    with pytest.raises(Malformed):
        address(name, "acme")


@pytest.mark.parametrize(("handle", "found"), [("1-0", ("1-0", 0)), ("17-2p9", ("17-2", 9))])
def test_entries(handle: str, found: tuple[str, int]) -> None:
    assert parse_entry(handle) == found


@pytest.mark.parametrize("handle", ["", "1", "1-", "01-1", "1-01", "1-1p", "1-1p0", "1-1p10", "-1-1", "1-1 ", "1-1\n"])
def test_an_entry_has_one_spelling(handle: str) -> None:
    assert parse_entry(handle) is None


def test_a_frame_to_a_client_begins_with_its_op() -> None:
    assert frame("pong", server_time_ms=1) == b'{"op":"pong","server_time_ms":1}'


@given(st.text())
def test_escaped_text_fits_in_a_column(text: str) -> None:
    assert not set(escape(text)) & {"\t", "\n", "\r"}


def test_escape_keeps_texts_apart() -> None:
    assert len({escape(text) for text in ("a\tb", "a\\tb", "a\nb", "a\\nb", "a\\\tb")}) == 5


def test_send_keeps_its_messages_unparsed() -> None:
    found = parsed(op="send", messages=[{"id": 1}, 2, None])

    assert isinstance(found, Send)
    assert len(found.messages) == 3


@pytest.mark.parametrize(
    "text",
    ['{"op":"send","messages":[{"id":"\\ud800"}]}', '{"op":"send","messages":' + "[" * 5_000, "x" * 1_000, "[]"],
    ids=["half a surrogate", "deep", "no JSON", "no object"],
)
def test_a_strangers_frame_is_looked_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a frame of an agent is worth, to save the messages that are not to blame, a stranger's is not."""
    monkeypatch.setattr(frames, "salvage", lambda _: pytest.fail("it was read again"))

    with pytest.raises(Malformed):
        frames.parse_auth(text.encode())


def test_a_strangers_frame_that_is_no_auth_is_not_read() -> None:
    costly = '{"op":"send","messages":[' + '{"id":"m"},' * 1_000 + "1]}"

    assert frames.parse_auth(costly.encode()) is None
