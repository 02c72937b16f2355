"""What the rounds found, as one picture: a panel for each figure, a bar for each peer."""

from dataclasses import dataclass
from html import escape
from math import isfinite, nan

from bench.peers.report import Shown, kilobytes, tenths, whole
from bench.peers.rounds import FEW, MANY, Figures

PANEL_WIDTH, ROW, HEAD, GAP = 500, 24, 34, 26
NAMES, VALUES = 110, 70  # what the names on the left and the numbers on the right need
COLUMNS = 2
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.bar { fill: #8c959f }
.own { fill: #0969da }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .bar { fill: #6e7681 } .own { fill: #58a6ff } }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    figure: str
    shown: Shown


PANELS = (
    Panel(f"Messages a second, {FEW} recipients, paired (more is better)", f"msgs_s_paired_{FEW}", whole),
    Panel(f"Messages a second, {MANY:,} recipients, random", f"msgs_s_random_{MANY}", whole),
    Panel("Server µs a message, flat out, paired (less is better)", f"server_us_paired_{FEW}", tenths),
    Panel("Server µs a message at 2,000/s", "server_us_at_2000", tenths),
    Panel("Delivered p99 in ms at 2,000/s", "p99_ms_at_2000", tenths),
    Panel("KB of a mailbox with its recipient connected", "connected_bytes", kilobytes),
)


def chart(found: dict[str, Figures], own: str) -> str:
    """An SVG that follows the reader's light or dark; `own` is the peer that stands out."""
    height = HEAD + ROW * len(found) + GAP
    rows = -(-len(PANELS) // COLUMNS)
    panels = [
        f'<g transform="translate({n % COLUMNS * PANEL_WIDTH} {n // COLUMNS * height})">{_panel(one, found, own)}</g>'
        for n, one in enumerate(PANELS)
    ]
    size = f'viewBox="0 0 {COLUMNS * PANEL_WIDTH} {rows * height}"'
    label = "This relay and its peers, the same work on the same machine"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
        f"<style>{STYLE}</style>{''.join(panels)}</svg>\n"
    )


def _panel(panel: Panel, found: dict[str, Figures], own: str) -> str:
    values = {name: figures.get(panel.figure, nan) for name, figures in found.items()}
    most = max((value for value in values.values() if isfinite(value)), default=0) or 1
    bars = [_bar(n, name, value, most, panel.shown, name == own) for n, (name, value) in enumerate(values.items())]
    return f'<text class="title" x="8" y="22">{escape(panel.title)}</text>{"".join(bars)}'


def _bar(number: int, name: str, value: float, most: float, shown: Shown, is_own: bool) -> str:
    y = HEAD + number * ROW
    wide = max(1.0, value / most * (PANEL_WIDTH - NAMES - VALUES)) if isfinite(value) else 0.0
    words = shown(value) if isfinite(value) else "–"
    return (
        f'<text x="{NAMES - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{"own" if is_own else "bar"}" x="{NAMES}" y="{y}" width="{wide:.1f}" height="{ROW - 6}" rx="2"/>'
        f'<text x="{NAMES + wide + 6:.1f}" y="{y + 14}">{words}</text>'
    )
