"""What becomes of a row of a dump: the message that its sender would send now, or a refusal."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relay.core.replay import Wanted, message_of, read_dump
from relay.errors import ConfigurationError, RelayError

NOW_MS = 1_800_000_000_000
MAX_PAYLOAD_BYTES = 100
DAY_MS = 86_400_000


def a_row(payload: str = "1", rest: str = "", **columns: Any) -> dict[str, Any]:
    row = {"box": "mailbox", "tenant": "acme", "to": "bob", "from": "alice", "id": "m-1", "entry": "5-0"}
    numbers = {"priority": 0, "not_before": 0, "max_attempts": 0, "ack_timeout_ms": 0, "receipt": 1, "request": 0}
    body = {"body": payload + rest, "bytes": len(payload.encode())}
    return row | numbers | body | {"expires_at": NOW_MS + DAY_MS} | columns


def test_a_row_is_what_its_sender_would_send_now() -> None:
    rest = ',"type":"job","thread":"t","reply_to":"q","headers":{"a":"b"},"signature":"s"'
    row = a_row('{"n": 1.00}', rest, priority=3, not_before=NOW_MS + 500, receipt=2, request=1, ack_timeout_ms=7_000)

    message = message_of(row, NOW_MS, MAX_PAYLOAD_BYTES)

    assert message is not None
    assert (message.id, message.to, bytes(message.payload)) == ("m-1", "acme/bob", b'{"n": 1.00}')
    assert (message.type, message.thread, message.reply_to, message.signature) == ("job", "t", "q", "s")
    assert (message.headers, message.priority, message.ttl_s, message.delay_s) == ({"a": "b"}, 3, 86_400, 0.5)
    assert (message.receipt, message.request, message.ack_timeout_s) == ("all", True, 7)


def test_what_has_expired_is_no_message_but_a_dead_letter_has_its_whole_time_again() -> None:
    assert message_of(a_row(expires_at=NOW_MS), NOW_MS, MAX_PAYLOAD_BYTES) is None

    revived = message_of(a_row(box="dead", expires_at=NOW_MS), NOW_MS, MAX_PAYLOAD_BYTES)

    assert revived is not None
    assert revived.ttl_s is None


@pytest.mark.parametrize(
    ("row", "code", "says"),
    [
        (a_row(id="m\t1"), "malformed", "$.id"),
        (a_row(id=""), "malformed", "$.id"),
        (a_row(id="m" * 129), "malformed", "$.id"),
        (a_row(id=None), "malformed", "$.id"),
        (a_row(to="b/ob"), "malformed", "$.to"),
        (a_row(to="bob\t"), "malformed", "$.to"),
        (a_row(tenant="ac me"), "malformed", "$.from"),
        (a_row(**{"from": "al\tice"}), "malformed", "$.from"),
        (a_row(rest=',"type":"' + "x" * 129 + '"'), "malformed", "$.type"),
        (a_row(rest=',"thread":"' + "x" * 129 + '"'), "malformed", "$.thread"),
        (a_row(rest=',"thread":5'), "malformed", "$.thread"),
        (a_row(rest=',"headers":{"a":"' + "x" * 4_096 + '"}'), "malformed", "$.headers"),
        (a_row(rest=',"signature":"' + "x" * 4_097 + '"'), "malformed", "$.signature"),
        (a_row(priority=10), "malformed", "$.priority"),
        (a_row(priority=None), "malformed", "$.priority"),
        (a_row(max_attempts=101), "malformed", "$.max_attempts"),
        (a_row(ack_timeout_ms=31 * DAY_MS), "malformed", "$.ack_timeout_s"),
        (a_row(not_before=NOW_MS + 31 * DAY_MS), "malformed", "$.delay_s"),
        (a_row(receipt=3), "malformed", "$.receipt"),
        (a_row(request=-1), "malformed", "$.request"),
        (a_row(body=None), "malformed", "$.body"),
        (a_row('"' + "x" * 99 + '"'), "too_large", "101 bytes"),
        (a_row("nothing"), "malformed", "JSON is malformed"),
        (a_row(""), "malformed", "$.bytes"),
        (a_row('1,"id":"other"'), "malformed", "trailing"),
        (a_row('"é"', bytes=2), "malformed", "does not end after 2 bytes"),
        (a_row("[" * 100_000), "malformed", "recursion"),
        (a_row("12", bytes=-1), "malformed", "$.bytes"),
        (a_row("12", bytes=1), "malformed", "does not end after 1 bytes"),
    ],
)
def test_a_row_is_refused_as_its_sender_would_be(row: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(RelayError) as refused:
        message_of(row, NOW_MS, MAX_PAYLOAD_BYTES)

    assert refused.value.code == code
    assert says in refused.value.message


def test_a_file_of_something_else_is_no_dump(tmp_path: Path) -> None:
    (tmp_path / "mailboxes").mkdir()
    pq.write_table(pa.table({"id": ["m-1"]}), tmp_path / "mailboxes" / "part-0.parquet")
    (tmp_path / "mailboxes" / "_SUCCESS").touch()

    with pytest.raises(ConfigurationError, match="it has no accepted_at, "):
        list(read_dump(tmp_path, Wanted()))
