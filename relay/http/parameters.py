"""Query parameters: each is read and described from the same line."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from relay.errors import Malformed

MAX_PAGE = 1_000
_DECIMAL = re.compile(r"-?\d{1,18}(\.\d{1,18})?([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


class Parameter(Protocol):
    """What a description needs of a parameter."""

    @property
    def name(self) -> str: ...
    @property
    def doc(self) -> str: ...
    def schema(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Number:
    """A number between two others; None when it is left out and has no default."""

    name: str
    low: float
    high: float
    doc: str

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}

    def of(self, request: web.Request) -> float | None:
        """Raises Malformed."""
        text = request.query.get(self.name)
        if text is None:
            return None
        value = float(text) if _DECIMAL.fullmatch(text) else math.nan
        if not self.low <= value <= self.high:
            raise Malformed(f"{self.name}: expected a number from {self.low:g} to {self.high:g}")
        return value


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number between two others."""

    name: str
    low: int
    high: int
    default: int
    doc: str

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high, "default": self.default}

    def of(self, request: web.Request) -> int:
        """Raises Malformed."""
        text = request.query.get(self.name)
        if text is None:
            return self.default
        value = int(text) if _INTEGER.fullmatch(text) else self.low - 1
        if not self.low <= value <= self.high:
            raise Malformed(f"{self.name}: expected a whole number from {self.low} to {self.high}")
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false; false when it is left out."""

    name: str
    doc: str

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean", "default": False}

    def of(self, request: web.Request) -> bool:
        """Raises Malformed."""
        text = request.query.get(self.name, "false")
        if text not in ("true", "false"):
            raise Malformed(f"{self.name}: expected true or false")
        return text == "true"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words, or None."""

    name: str
    words: Iterable[str]
    doc: str

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": sorted(self.words)}

    def of(self, request: web.Request) -> str | None:
        """Raises Malformed."""
        text = request.query.get(self.name)
        if text is not None and text not in self.words:
            raise Malformed(f"{self.name}: expected one of {', '.join(sorted(self.words))}")
        return text


@dataclass(frozen=True, slots=True)
class Text:
    """Any text up to a length, or None."""

    name: str
    doc: str
    longest: int = 129

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.longest}

    def of(self, request: web.Request) -> str | None:
        """Raises Malformed."""
        text = request.query.get(self.name)
        if text is not None and len(text) > self.longest:
            raise Malformed(f"{self.name}: expected at most {self.longest} characters")
        return text


LIMIT = Integer("limit", 1, MAX_PAGE, 100, "How many at most on one page.")
CURSOR = Text("cursor", "Where to go on: the `cursor` of the page before.", 300)
TENANT = Text("tenant", "Another tenant than the token's; for an admin.", 64)
FROM = Text("from", "Another sender than the token's own; for an admin.")
