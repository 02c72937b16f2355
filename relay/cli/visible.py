"""Visible text: a terminal shows what others wrote, and never obeys it.

Everything that a command prints goes through one of two doors: `Console`, for tables and colours, and `Guarded`, which
stands in for standard output and error, for everything else: lines, errors, logs and tracebacks.
"""

import io
import json
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import TextIO

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# Controls, formats (which reorder, join or hide text), line and paragraph separators, halves of characters.
UNSEEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs"))
BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # letters and marks that show nothing


def visible(text: str) -> str:
    """The same text, with whatever cannot be seen as JSON would escape it: \\u001b, \\n. JSON keeps its value."""
    is_all_seen = text.isprintable() and BLANK_LETTERS.isdisjoint(text)
    return text if is_all_seen else "".join(map(_seen, text))


def visible_lines(text: str) -> str:
    """The same of lines that the program itself has made."""
    return "\n".join(map(visible, text.split("\n")))


@lru_cache(8_192)
def _seen(character: str) -> str:
    is_seen = unicodedata.category(character) not in UNSEEN and character not in BLANK_LETTERS
    return character if is_seen else json.dumps(character)[1:-1]


def words(*parts: str | tuple[str, str]) -> Text:
    """One line of a terminal: parts with a style or without. Whoever wrote them, they are shown as they are."""
    return Text.assemble(*(visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts))


class Console(rich.console.Console):
    """Standard output or error, for a person. Text is never read as markup unless it is the program's own."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False, markup: bool = False) -> None:
        file = unguarded(sys.stderr if stderr else sys.stdout)
        super().__init__(file=file, soft_wrap=soft_wrap, markup=markup, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible_lines(segment.text))


class Guarded(io.TextIOBase):
    """A text stream that lets nothing through but text and line breaks. It has no `buffer` to go around it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str, /) -> int:
        self.stream.write(visible_lines(text))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors


def guard() -> None:
    """From now on this process prints through the guard."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def _guarded(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, Guarded) else Guarded(stream)  # type: ignore[return-value]


def unguarded(stream: TextIO) -> TextIO:
    """The stream itself, for those who make what they write visible by themselves."""
    return stream.stream if isinstance(stream, Guarded) else stream
