"""Log lines: events with fields, in two forms, with addresses hidden on request."""

import json
import logging
import sys
from typing import Any

from relay.logs import Formatter
from relay.settings import Settings


def line(message: str = "session_began", settings: Settings | None = None, **fields: Any) -> str:
    record = logging.makeLogRecord({"msg": message, "name": "relay.hub", "levelname": "INFO", **fields})
    return Formatter(settings or Settings()).format(record)


def test_json_is_one_object_a_line() -> None:
    text = line(settings=Settings(log_format="json"), agent="acme/alice", count=3, odd={1, 2})

    found = json.loads(text)
    assert "\n" not in text
    assert (found["event"], found["level"], found["logger"]) == ("session_began", "info", "relay.hub")
    assert (found["agent"], found["count"]) == ("acme/alice", 3)
    assert found["at_ms"] > 0


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
    assert line(exc_info=info).splitlines()[-1] == "ValueError: boom"
