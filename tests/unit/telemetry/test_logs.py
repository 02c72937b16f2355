"""Log lines: events with fields, in two forms, with addresses hidden on request."""

import json
import logging
import sys
from typing import Any

import pytest

from relay.settings import Settings
from relay.telemetry import logs
from relay.telemetry.logs import Formatter


def line(message: str = "session_began", settings: Settings | None = None, **fields: Any) -> str:
    fields = {"name": "relay.core.instance", "levelname": "INFO", "created": 1.2345, **fields}
    record = logging.makeLogRecord({"msg": message, **fields})
    return Formatter(settings or Settings()).format(record)


def test_json_is_one_object_a_line() -> None:
    text = line(settings=Settings(log_format="json"), agent="acme/alice", count=3, odd={1, 2})

    found = json.loads(text)
    assert "\n" not in text
    assert (found["event"], found["level"], found["logger"]) == ("session_began", "info", "relay.core.instance")
    assert (found["agent"], found["count"]) == ("acme/alice", 3)
    assert found["at"] == "1970-01-01T00:00:01.234+00:00"


def test_text_names_the_event_and_its_fields() -> None:
    text = line(agent="acme/alice", count=3)

    assert "session_began" in text
    assert text.endswith("agent=acme/alice count=3")


def test_hashed_addresses_are_the_same_for_the_same_agent_and_do_not_tell_it() -> None:
    hashed = Settings(log_format="json", log_addresses="hashed")
    first, again, other = (
        json.loads(line(settings=hashed, agent=agent, session="s-1")) for agent in ("acme/a", "acme/a", "acme/b")
    )

    assert first["agent"] == again["agent"] != other["agent"]
    assert "acme" not in first["agent"]
    assert first["session"] == "s-1"


def test_an_exception_is_a_field_in_json_and_follows_in_text() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        info = sys.exc_info()

    assert "ValueError: boom" in json.loads(line(settings=Settings(log_format="json"), exc_info=info))["exception"]
    assert line(exc_info=info).splitlines()[-1] == "    ValueError: boom"


@pytest.mark.parametrize(
    "entry", ["1-0\n2026-01-01 info serving", "1-0 agent=acme/root", 'a"b', "\x1b[31mred", "naïve\u2028line", ""]
)
def test_text_keeps_what_a_client_chose_in_one_field_of_one_line(entry: str) -> None:
    text = line("acked", entry=entry, agent="acme/alice")

    assert len(text.splitlines()) == 1
    assert text.endswith(f"entry={json.dumps(entry)} agent=acme/alice")


def test_lines_of_an_exception_cannot_pass_for_events() -> None:
    try:
        raise ValueError("boom\n2026-01-01 00:00:00,000 info    serving")
    except ValueError:
        info = sys.exc_info()

    assert all(each.startswith("    ") for each in line(exc_info=info).splitlines()[1:])


def test_an_outage_is_told_once_in_a_while_by_each_part_of_a_process() -> None:
    seldom = logs.OutageFilter()
    said = [
        ("worker_cannot", {"worker": "sweeper"}),
        ("worker_cannot", {"worker": "sweeper"}),
        ("worker_cannot", {"worker": "reaper"}),
        ("store_unavailable", {}),
        ("store_unavailable", {}),
        ("session_began", {}),
        ("session_began", {}),
    ]

    kept = [seldom.filter(logging.makeLogRecord({"msg": event, **fields})) for event, fields in said]

    assert kept == [True, False, True, True, False, True, True]


def test_the_next_line_of_an_outage_counts_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("relay.telemetry.logs.time.monotonic", lambda: now)
    seldom = logs.OutageFilter(every_s=10)
    for _ in range(4):
        seldom.filter(logging.makeLogRecord({"msg": "wakeups_lost"}))

    now += 10
    record = logging.makeLogRecord({"msg": "wakeups_lost"})

    assert seldom.filter(record)
    assert vars(record)["left_out"] == 3
