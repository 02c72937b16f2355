"""What the rounds found, as one table."""

from collections.abc import Callable
from math import nan

from rich.table import Table

from bench.peers.rounds import FEW, MANY, PEERS, RATES, Figures

Shown = Callable[[float], str]
Row = tuple[str, str, Shown]  # what, the figure's name, and how it is written


def whole(value: float) -> str:
    return f"{value:,.0f}"


def tenths(value: float) -> str:
    return f"{value:,.1f}"


def kilobytes(value: float) -> str:
    return f"{value / 1_024:,.1f}"


SHAPES = tuple((senders, recipients) for recipients in (FEW, MANY) for senders in ("paired", "random"))


def _of_shapes(what: str, name: str, shown: Shown) -> list[Row]:
    return [(f"{what}, {senders}, {to:,} recipients", f"{name}_{senders}_{to}", shown) for senders, to in SHAPES]


SECTIONS: tuple[list[Row], ...] = (
    _of_shapes("msg/s", "msgs_s", whole),
    _of_shapes("server µs a message", "server_us", tenths),
    [(f"server µs a message at {rate:,}/s", f"server_us_at_{rate}", tenths) for rate in RATES],
    [
        (f"delivered p{share}, ms, at {rate:,}/s", f"p{share}_ms_at_{rate}", tenths)
        for rate in RATES
        for share in (50, 99)
    ],
    [
        (f"KB of an empty mailbox, {MANY:,} of them", "mailbox_bytes", kilobytes),
        ("KB of the same with its recipient connected", "connected_bytes", kilobytes),
    ],
    _of_shapes("load program's µs a message", "load_us", tenths),
)


def table(found: dict[str, Figures]) -> Table:
    made = Table(title="256-byte payloads, 100 senders; load and servers share the machine", show_lines=False)
    made.add_column("what")
    for name in found:
        made.add_column(name, justify="right")
    for rows in SECTIONS:
        for what, name, shown in rows:
            made.add_row(what, *(_cell(figures.get(name, nan), shown) for figures in found.values()))
        made.add_section()
    made.caption = "\n".join(f"{peer.name}: {peer.work}" for peer in PEERS if peer.name in found)
    return made


def _cell(value: float, shown: Shown) -> str:
    return "–" if value != value else shown(value)
