"""The messages of a frame: found whatever else is in it, at a cost that no sender can raise."""

import gc
import time
from collections.abc import Callable

import pytest

from relay.errors import Malformed, RelayError
from relay.protocol.frames import Send, parse, parse_auth
from relay.protocol.message import parse_message
from relay.protocol.unpacking import MAX_NESTED, MAX_SALVAGED, names_of
from tests.pace import reading_s

MOST = 4 * 2**20 - 200  # characters of the largest frame
HALF = r'"\ud800"'
DEEP = '{"op":"send","messages":[{"id":"m-1","to":"bob","payload":'
PLAIN = "[" + "[]," * (MOST // 3) + "1]"  # as large as a frame may be, and read as it is


def filled(head: str, unit: str, tail: str, size: int = MOST) -> str:
    return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


def a_send(unit: str, size: int = MOST) -> str:
    """One message whose payload begins with what cannot be read, and goes on."""
    return filled(f'{{"op":"send","messages":[{{"id":"m-1","to":"bob","payload":[{HALF},', unit, "1]}]}", size)


def judge(text: str) -> str:
    """What becomes of a frame, message by message."""
    try:
        frame = parse(text.encode())
    except RelayError as error:
        return error.code
    for raw in frame.messages if isinstance(frame, Send) else ():
        try:
            parse_message(raw, "acme", 65_536)
        except RelayError:
            continue
    return type(frame).__name__


WORST: dict[str, Callable[[], str]] = {
    "half a surrogate, then strings": lambda: a_send('"a",'),
    "half a surrogate, then lists": lambda: a_send("[],"),
    "the largest that is salvaged, lists": lambda: a_send("[],", MAX_SALVAGED),
    "the largest that is salvaged, objects": lambda: a_send('{"a":1},', MAX_SALVAGED),
    "brackets in the deep": lambda: filled(DEEP + "[" * 1_100, "[],", "]" * 1_100 + "}]}", MAX_NESTED),
    "members without end": lambda: filled('{"op":"send",', '"a":1,', f'"x":{HALF}}}'),
    "salvaged members without end": lambda: filled('{"op":"send",', '"a":1,', f'"x":{HALF}}}', MAX_SALVAGED),
    "nesting": lambda: filled('{"op":"send","messages":[', "[", ""),
    "digits": lambda: filled('{"op":"nack","entries":["1-1"],"delay_s":', "9", "}"),
    "entries without end": lambda: filled('{"op":"ack","entries":[', '"1",', '"1"]}'),
    "messages without end": lambda: filled('{"op":"send","messages":[', "1,", "1]}"),
    "a long id": lambda: filled('{"op":"send","messages":[{"id":"', "x", '","to":"bob","payload":1}]}'),
    "headers without end": lambda: (
        '{"op":"send","messages":[{"id":"m","to":"b","payload":1,"headers":{'
        + ",".join(f'"{n:x}":""' for n in range(MOST // 10))
        + "}}]}"
    ),
    "an id that is a list": lambda: filled('{"op":"send","messages":[{"id":[', "[],", '1],"to":"bob","payload":1}]}'),
}


@pytest.mark.parametrize("name", WORST)
def test_no_frame_costs_much(name: str) -> None:
    """No more than twice what it takes to read the largest frame as plain JSON, in the same minute. Without
    collections, which an instance makes rarely."""
    text = WORST[name]()
    costs, plain = [], []
    gc.disable()

    for _ in range(3):
        plain.append(reading_s(PLAIN))
        began = time.process_time()
        judge(text)
        costs.append(time.process_time() - began)

    gc.enable()
    assert min(costs) < 2 * max(plain)


@pytest.mark.parametrize("size", [2_000, MAX_SALVAGED])
def test_a_message_that_cannot_be_read_is_refused_alone_in_a_frame_of_ordinary_size(size: int) -> None:
    good = '{"id":"m-2","to":"bob","payload":"x"}'
    text = a_send("[],", size - len(good) - 1)[: -len("]}")] + f",{good}]}}"

    frame = parse(text.encode())

    assert isinstance(frame, Send)
    bad, fine = frame.messages
    assert parse_message(fine, "acme", 65_536).id == "m-2"
    assert names_of(bad) == {"id": "m-1", "to": "bob"}
    with pytest.raises(Malformed):
        parse_message(bad, "acme", 2**20)


def test_so_is_one_that_is_nested_too_deeply() -> None:
    deep = '{"id":"m-1","payload":' + "[" * 2_000 + "]" * 2_000 + ',"to":"bob"}'
    good = '{"id":"m-2","to":"bob","payload":"]"}'

    frame = parse(f'{{"op":"send","messages":[{good},{deep},{good}]}}'.encode())

    assert isinstance(frame, Send)
    first, bad, last = frame.messages
    assert [parse_message(fine, "acme", 65_536).id for fine in (first, last)] == ["m-2", "m-2"]
    with pytest.raises(Malformed) as refused:
        parse_message(bad, "acme", 65_536)
    assert refused.value.details == {"id": "m-1", "to": "bob"}


def test_in_a_large_frame_it_spoils_the_frame() -> None:
    with pytest.raises(Malformed):
        parse(a_send('"a",', 2 * MAX_SALVAGED).encode())


@pytest.mark.parametrize(("count", "size"), [(1, 600_000), (500, 2_000)])
def test_a_large_frame_has_all_its_messages(count: int, size: int) -> None:
    one = f'{{"id":"m","to":"bob","payload":"{"x" * size}"}}'

    frame = parse(f'{{"messages":[{",".join([one] * count)}],"op":"send"}}'.encode())

    assert isinstance(frame, Send)
    assert [bytes(raw) for raw in frame.messages] == [one.encode()] * count


@pytest.mark.parametrize("count", [0, 501])
def test_a_large_frame_keeps_the_limits_of_a_small_one(count: int) -> None:
    one = f'{{"id":"m","to":"bob","payload":"{"x" * 2_000}"}}'
    text = f'{{"op":"send","x":"{"x" * 600_000}","messages":[{",".join([one] * count)}]}}'

    with pytest.raises(Malformed, match="length"):
        parse(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        f'{{"op":"send","messages":[{HALF}]',
        f'{{"op":"send","messages":[{HALF}]}} x',
        f'{{"op":"send","messages":[{HALF},]}}',
        f'{{"op":"send","messages":[],"x":{HALF}}}',
        f'{{"op":"send","messages":{{}},"x":{HALF}}}',
        f'{{"op":"fly","messages":[{HALF}]}}',
        f'{{"op":"send" "messages":[{HALF}]}}',
        f'["op","send",{HALF}]',
        '{"op":"send","messages":[' + ",".join([HALF] * 501) + "]}",
    ],
)
def test_what_is_no_send_is_not_salvaged(text: str) -> None:
    with pytest.raises(RelayError):
        parse(text.encode())


def test_before_authentication_only_auth_is_read() -> None:
    auth = parse_auth(b'{"op":"auth","token":"t"}')

    assert auth is not None
    assert auth.token == "t"
    assert parse_auth(b'{"op":"ping"}') is None
    with pytest.raises(Malformed):
        parse_auth(b'{"op":"auth","window":0}')
    with pytest.raises(Malformed):
        parse_auth(b"\xff")


def test_a_name_that_is_too_long_is_not_repeated() -> None:
    with pytest.raises(Malformed) as refused:
        parse_message(parse(b'{"op":"send","messages":[{"id":"%b"}]}' % (b"x" * 5_000)).messages[0], "acme", 1)  # type: ignore[union-attr]

    assert refused.value.details["id"] is None
