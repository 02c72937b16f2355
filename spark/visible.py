"""Visible text: a terminal shows what others wrote, and never obeys it. The same as relay/cli/visible.py."""

import io
import json
import sys
import unicodedata
from functools import lru_cache
from typing import TextIO

UNSEEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs"))
BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")


def visible(text: str) -> str:
    """The same text, with whatever cannot be seen as JSON would escape it: \\u001b, \\n. JSON keeps its value."""
    is_all_seen = text.isprintable() and BLANK_LETTERS.isdisjoint(text)
    return text if is_all_seen else "".join(map(_seen, text))


@lru_cache(8_192)
def _seen(character: str) -> str:
    is_seen = unicodedata.category(character) not in UNSEEN and character not in BLANK_LETTERS
    return character if is_seen else json.dumps(character)[1:-1]


class Guarded(io.TextIOBase):
    """A text stream that lets nothing through but text and line breaks. It has no `buffer` to go around it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        self._stream.write("\n".join(map(visible, text.split("\n"))))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._stream.errors


def guard() -> None:
    """From now on this process prints through the guard."""
    sys.stdout, sys.stderr = Guarded(sys.stdout), Guarded(sys.stderr)
