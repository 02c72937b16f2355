"""Logs: events with fields, as JSON or text. Addresses can be hashed; payloads are never logged."""

import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from hashlib import blake2s
from textwrap import indent
from typing import Any

import orjson

from relay.settings import Settings

LIFE = logging.getLogger("relay.core.lifecycle")  # each step of each message, at level debug
OUTAGE_EVENTS = frozenset({"store_unavailable", "wakeups_lost", "step_failed", "worker_cannot"})
SELDOM_S = 10.0
ADDRESS_FIELDS = ("agent", "to", "sender", "address", "remote")
_WORD = re.compile(r"""(?:(?!["'=\\])[!-~])+""")  # printable ASCII without blanks, quotes, backslashes and "="
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Formatter(logging.Formatter):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._json = settings.log_format == "json"
        self._hashed = settings.log_addresses == "hashed"

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if self._hashed:
            fields |= {name: _hashed(fields[name]) for name in ADDRESS_FIELDS if name in fields}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return self._as_json(record, fields) if self._json else self._as_text(record, fields)

    def _as_json(self, record: logging.LogRecord, fields: dict[str, Any]) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **fields,
        }
        return orjson.dumps(line, default=str).decode()

    def _as_text(self, record: logging.LogRecord, fields: dict[str, Any]) -> str:
        exception = fields.pop("exception", None)
        pairs = " ".join(f"{name}={_as_word(value)}" for name, value in fields.items())
        line = f"{self.formatTime(record)} {record.levelname.lower():7} {record.getMessage()} {pairs}".rstrip()
        return f"{line}\n{indent(exception, '    ')}" if exception else line


def _as_word(value: object) -> str:
    """A value that cannot be taken for another field or another line: what a client chose may stand in it."""
    text = str(value)
    return text if _WORD.fullmatch(text) else json.dumps(text)


class Throttle:
    """Lets each key through at most once in a while, and counts what it did not let through."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last: dict[object, tuple[float, int]] = {}  # key -> when it was let through, how many were not since

    def due(self, key: object) -> dict[str, int] | None:
        """None if it is too early, else the field that counts what was left out."""
        now = time.monotonic()
        passed_at, left_out = self._last.get(key, (-self._every_s, 0))
        if now - passed_at < self._every_s:
            self._last[key] = (passed_at, left_out + 1)
            return None
        self._last[key] = (now, 0)
        return {"left_out": left_out} if left_out else {}


class Seldom:
    """Logs events that strangers can cause at will: each at most once in a while, with a count."""

    def __init__(self, log: logging.Logger, every_s: float = SELDOM_S) -> None:
        self._log = log
        self._throttle = Throttle(every_s)

    def warning(self, event: str, **fields: Any) -> None:
        left_out = self._throttle.due(event)
        if left_out is not None:
            self._log.warning(event, extra=fields | left_out)


class OutageFilter(logging.Filter):
    """While the store is away, every part of a process says so again and again: once in a while is enough for each."""

    def __init__(self, every_s: float = SELDOM_S) -> None:
        super().__init__()
        self._throttle = Throttle(every_s)

    def filter(self, record: logging.LogRecord) -> bool:
        event = record.getMessage()
        if event not in OUTAGE_EVENTS:
            return True
        left_out = self._throttle.due((event, getattr(record, "worker", ""), getattr(record, "step", "")))
        if left_out is None:
            return False
        vars(record).update(left_out)
        return True


def _hashed(value: object) -> str:
    return blake2s(str(value).encode(), digest_size=6).hexdigest()


def configure(settings: Settings) -> None:
    """Sends every log of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(settings))
    handler.addFilter(OutageFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
