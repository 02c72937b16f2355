"""Line charts over time as inline SVG. Colours are classes, so that the page's style decides about light and dark."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from spark.report import words

WIDTH, HEIGHT = 1_080, 230
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 26
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ROUND_SPANS_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, HOUR_MS, 10 * HOUR_MS, 4 * DAY_MS, 40 * DAY_MS)
TIME_STEPS_MS = (HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS, 2 * DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 90 * DAY_MS)
MOST_POINTS = 750
MOST_LABELS = 9

Point = tuple[int, float | None]  # time in ms, and a value or a gap


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[Point]
    is_filled: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values to heights."""

    ticks: list[float]
    is_logarithmic: bool = False

    def height(self, value: float) -> float:
        low, high = self._scaled(self.ticks[0]), self._scaled(self.ticks[-1])
        share = (self._scaled(value) - low) / (high - low)
        return HEIGHT - BOTTOM - max(0.0, min(1.0, share)) * (HEIGHT - TOP - BOTTOM)

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-9)) if self.is_logarithmic else value


def linear(most: float) -> Axis:
    """From 0 to a round number, with three to six steps."""
    rough = max(most, 1) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = max(next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough), 1)
    return Axis([step * n for n in range(math.ceil(max(most, 1) / step) + 1)])


def logarithmic(least_ms: float, most_ms: float) -> Axis:
    """Round spans of time around the values, each about ten times the one before."""
    low = max((n for n, tick in enumerate(ROUND_SPANS_MS) if tick <= least_ms), default=0)
    high = next((n for n, tick in enumerate(ROUND_SPANS_MS) if tick >= most_ms), len(ROUND_SPANS_MS) - 1)
    return Axis([float(tick) for tick in ROUND_SPANS_MS[low : max(high, low + 1) + 1]], is_logarithmic=True)


def spans_of_time(most_ms: float) -> Axis:
    """From 0 in round seconds, minutes, hours or days."""
    unit = next((size for size in (DAY_MS, HOUR_MS, 60_000, 1_000) if most_ms >= 2 * size), 1)
    return Axis([tick * unit for tick in linear(most_ms / unit).ticks])


def chart(title: str, lines: Sequence[Line], axis: Axis, shown_as: Callable[[float], str]) -> str:
    """One figure with a legend. All lines share the times; a long period is thinned to what the eye can tell apart."""
    times = [at_ms for line in lines for at_ms, _ in line.points]
    first, last = min(times), max(max(times), min(times) + HOUR_MS)

    def across(at_ms: float) -> float:
        return LEFT + (at_ms - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    drawn = "".join(_line(number, line, across, axis, shown_as) for number, line in enumerate(lines))
    legend = "".join(f'<span class="c{number}">{escape(line.name)}</span>' for number, line in enumerate(lines))
    return (
        f'<figure><figcaption><b>{escape(title)}</b><span class="legend">{legend}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_grid(axis, shown_as)}{_times(first, last, across)}{drawn}</svg></figure>"
    )


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS, each the highest of its stretch."""
    step = math.ceil(len(points) / MOST_POINTS)
    stretches = [points[n : n + step] for n in range(0, len(points), step)]
    return [max(stretch, key=lambda point: -1 if point[1] is None else point[1]) for stretch in stretches]


def _line(
    number: int, line: Line, across: Callable[[float], float], axis: Axis, shown_as: Callable[[float], str]
) -> str:
    drawn = []
    for run in _runs(thinned(line.points)):
        places = [(across(at_ms), axis.height(value)) for at_ms, value in run]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        if line.is_filled:
            left, right, floor = places[0][0], places[-1][0], HEIGHT - BOTTOM
            drawn.append(f'<polygon class="f{number}" points="{left:.1f},{floor} {path} {right:.1f},{floor}"/>')
        if len(places) == 1:
            drawn.append(f'<circle class="c{number}" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="2"/>')
        else:
            drawn.append(f'<polyline class="c{number}" points="{path}"/>')
    return "".join(drawn) + _peak(number, line, across, axis, shown_as)


def _runs(points: Sequence[Point]) -> list[list[tuple[int, float]]]:
    """The stretches between gaps."""
    runs: list[list[tuple[int, float]]] = [[]]
    for at_ms, value in points:
        if value is not None:
            runs[-1].append((at_ms, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _peak(
    number: int, line: Line, across: Callable[[float], float], axis: Axis, shown_as: Callable[[float], str]
) -> str:
    """A dot on the highest value that tells it under the pointer."""
    known = [(value, at_ms) for at_ms, value in line.points if value]
    if not known:
        return ""
    value, at_ms = max(known)
    told = escape(f"{line.name}: at most {shown_as(value)}, {words.moment(at_ms)}")
    place = f'cx="{across(at_ms):.1f}" cy="{axis.height(value):.1f}"'
    return f'<circle class="d{number}" {place} r="4"><title>{told}</title></circle>'


def _grid(axis: Axis, shown_as: Callable[[float], str]) -> str:
    rows = []
    for tick in axis.ticks:
        y = axis.height(tick)
        rows.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        rows.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(shown_as(tick))}</text>')
    return "".join(rows)


def _times(first: int, last: int, across: Callable[[float], float]) -> str:
    step = next((step for step in TIME_STEPS_MS if (last - first) / step <= MOST_LABELS), 365 * DAY_MS)
    shown_as = words.day if step >= DAY_MS else words.clock
    places = [(across(at_ms), shown_as(at_ms)) for at_ms in range(-(-first // step) * step, last + 1, step)]
    return "".join(
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{_anchor(x)}">{label}</text>'
        for x, label in places
    )


def _anchor(x: float) -> str:
    """Labels at the edges stay inside."""
    if x < LEFT + 20:
        return "start"
    return "end" if x > WIDTH - RIGHT - 20 else "middle"
