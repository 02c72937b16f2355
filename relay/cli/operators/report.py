"""Output of operators' commands: tables and colours on a terminal, complete JSON lines in a pipe."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import orjson
from rich.table import Table
from rich.text import Text

from relay.cli.visible import Console, words

STATE_STYLES = {
    "queued": "cyan",
    "held": "yellow",
    "delayed": "magenta",
    "acked": "green",
    "dead": "red",
    "expired": "red",
    "cancelled": "dim",
    "refused": "red",
    "error": "bold red",
    "warning": "yellow",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its title and its value for a row."""

    title: str
    show: Callable[[dict[str, Any]], Any]
    right: bool = False


class Report:
    """Standard output."""

    def __init__(self, as_json: bool | None) -> None:
        self.pretty = sys.stdout.isatty() if as_json is None else not as_json
        self.console = Console()

    def rows(self, columns: Sequence[Column], rows: Iterable[dict[str, Any]], nothing: str) -> None:
        """A table, or one line of JSON for each row with everything that is known of it."""
        listed = list(rows)
        if not self.pretty:
            for row in listed:
                self.json(row)
        elif listed:
            self.console.print(table(columns, listed))
        else:
            self.console.print(words((nothing, "dim")))

    def say(self, text: Text, **fields: Any) -> None:
        """A sentence for a person, its facts for a program."""
        if self.pretty:
            self.tell(text)
        else:
            self.json(fields)

    def tell(self, text: Text) -> None:
        """More for a person."""
        self.console.print(text, soft_wrap=True)

    def json(self, value: Any) -> None:
        click.echo(orjson.dumps(value).decode())


def table(columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        drawn.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(_cell(column.show(row)) for column in columns))
    return drawn


def _cell(value: Any) -> Text:
    text = "" if value is None else str(value)
    return words((text, STATE_STYLES.get(text, "")))


def field(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda row: row.get(name)


def count(name: str) -> Callable[[dict[str, Any]], Any]:
    """A number; nothing where it is 0, so that the eye finds the others."""
    return lambda row: row.get(name) or ""


def span(seconds: float) -> str:
    """A length of time in the largest unit that fits: 5 s, 12 min, 3 h, 2 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def age(at_ms: int | None) -> str:
    return "" if at_ms is None else span(time.time() - at_ms / 1_000)


def clock(at_ms: int) -> str:
    fraction = f"{at_ms % 1_000:03d}"
    return time.strftime("%Y-%m-%d %H:%M:%S.", time.localtime(at_ms / 1_000)) + fraction


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    words = "[pretty on a terminal, JSON lines elsewhere]"
    return click.option("--json/--pretty", "as_json", default=None, help=words)(command)
