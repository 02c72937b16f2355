"""Which ends of messages are logged, and how many."""

import logging

import pytest

from relay.store.record.events import COLUMNS
from workers import ends
from workers.ends import EndsLog


def an_event(kind: str, **columns: str) -> list[str]:
    values = {"kind": kind, "at_ms": "5", "entry": "5-0", "attempt": "2", "tenant": "acme", "to": "bob"}
    values |= {"from": "alice", "id": "m-1"} | columns
    return [values.get(name, "") for name in COLUMNS]


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, object]]]:
    names = ("agent", "sender", "id", "entry", "attempt", "reason", "left_out")
    return [
        (record.levelname, record.message, {name: vars(record)[name] for name in names if name in vars(record)})
        for record in caplog.records
    ]


def test_ends_other_than_by_ack_are_told_with_the_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = EndsLog()

    for event in (an_event("acked"), an_event("dead", reason="cannot parse"), an_event("expired"), an_event("deadly")):
        log.note(3, event)
    log.close()

    message = {"agent": "acme/bob", "sender": "acme/alice", "id": "m-1", "entry": "5-0", "attempt": 2}
    assert told(caplog) == [
        ("WARNING", "dead", message | {"reason": "cannot parse"}),
        ("INFO", "expired", message),
    ]


def test_of_very_many_only_the_number_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(ends, "MOST_LINES", 2)
    log = EndsLog()

    for _ in range(5):
        log.note(0, an_event("expired"))
    log.close()

    assert [fields.get("left_out") for _, _, fields in told(caplog)] == [None, None, 3]
