"""Logs: events with fields, as JSON or readable text; addresses can be hashed, payloads never come here."""

import logging
import sys
from hashlib import blake2s
from typing import Any

import orjson

from relay.settings import Settings

LIFE = logging.getLogger("relay.life")  # each step of each message, at level debug
ADDRESS_FIELDS = ("agent", "to", "sender", "address")
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
            "at_ms": int(record.created * 1_000),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **fields,
        }
        return orjson.dumps(line, default=str).decode()

    def _as_text(self, record: logging.LogRecord, fields: dict[str, Any]) -> str:
        exception = fields.pop("exception", None)
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        line = f"{self.formatTime(record)} {record.levelname.lower():7} {record.getMessage()} {told}".rstrip()
        return f"{line}\n{exception}" if exception else line


def _hashed(value: object) -> str:
    return blake2s(str(value).encode(), digest_size=6).hexdigest()


def configure(settings: Settings) -> None:
    """Sends every log of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(settings))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
