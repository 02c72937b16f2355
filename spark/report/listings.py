"""Tables of the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from spark.report.findings import Best, Row


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and what a row has under it. Numbers stand on the right; `look` is a class for some values."""

    heading: str
    shown: Callable[[Row], str]
    is_text: bool = False
    look: Callable[[Row], str] = lambda _: ""


def text(heading: str, shown: Callable[[Row], str]) -> Column:
    return Column(heading, shown, is_text=True)


def listing(columns: Sequence[Column], best: Best, empty: str) -> str:
    """All text is escaped here. Says how many rows were left out."""
    if not best.rows:
        return f'<div class="scroll"><div class="more">{escape(empty)}</div></div>'
    head = "".join(f"<th{_class(column, '')}>{escape(column.heading)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(_cell(column, row) for column in columns)}</tr>" for row in best.rows)
    more = f'<div class="more">… and {best.more:,} more</div>' if best.more > 0 else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>'


def _cell(column: Column, row: Row) -> str:
    return f"<td{_class(column, column.look(row))}>{escape(column.shown(row))}</td>"


def _class(column: Column, look: str) -> str:
    names = " ".join(name for name in ("text" if column.is_text else "", look) if name)
    return f' class="{names}"' if names else ""
