"""What operators' commands read of the relay: one message's payload hides no other message, and is shown as written."""

import orjson
import pytest

from relay.cli.answers import read_answer

DEEP = "[" * 100_000 + "]" * 100_000
PAYLOADS = [
    *("1", "1.00", "1e999", "-0", "9" * 5_000, "true", "null", '""', "{}", "[]", DEEP),
    *(
        r'"\ud800"',
        r'"a\"}],{\\"',
        r'"\",\"payload\":"',
        '{"payload":{"payload":[1,"]"]}}',
        '{"a":[{"b":"},"},2],"c":{}}',
    ),
]


def a_page(*payloads: str, **row: str) -> bytes:
    rows = [
        orjson.dumps({"id": f"m-{n}"} | row)[:-1].decode() + f',"payload":{one}}}' for n, one in enumerate(payloads)
    ]
    return f'{{"messages":[{",".join(rows)}],"cursor":"1"}}'.encode()


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload[:20])
def test_a_payload_is_kept_as_it_was_written(payload: str) -> None:
    text = a_page("0", payload, "2")

    assert orjson.dumps(read_answer(text)) == text


def test_a_payload_first_and_last_in_its_row_are_found() -> None:
    text = b'{"messages":[{"payload":1e999,"id":"a"},{"id":"b","payload":[1e999]}]}'

    assert orjson.dumps(read_answer(text)) == text


def test_a_payload_is_one_line() -> None:
    assert orjson.dumps(read_answer(a_page('{\n "a":\r\n\t1}'))) == a_page('{  "a":   1}')


def test_what_a_sender_called_its_message_is_taken_for_no_payload() -> None:
    text = a_page("1", type='","payload":2,"', thread="\\")

    (row,) = read_answer(text)["messages"]

    assert (row["type"], orjson.dumps(row["payload"])) == ('","payload":2,"', b"1")


def test_rows_without_payloads_and_other_answers_are_read_as_they_are() -> None:
    assert read_answer(b'{"messages":[{"id":"a"},1]}') == {"messages": [{"id": "a"}, 1]}
    assert read_answer(b'{"messages":2}') == {"messages": 2}
    assert read_answer(b"[1]") == [1]


@pytest.mark.parametrize(
    "text", [b"", b"<html>", b'{"messages":[{"payload":', b'{"messages":[{"payload":[}', b'{"a":"\xff"}']
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_answer(text)
