"""Findings of the doctor."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """An error loses, delays or refuses messages. A warning will, or costs more than it must."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: what was seen, what it means, and how to repair it."""

    check: str
    severity: Severity
    what: str
    fix: str


def error(check: str, what: str, fix: str) -> Finding:
    return Finding(check, Severity.ERROR, what, fix)


def warning(check: str, what: str, fix: str) -> Finding:
    return Finding(check, Severity.WARNING, what, fix)
