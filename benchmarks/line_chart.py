"""Draws lines over two logarithmic axes, each with its name at its end.

Names are next to the lines and not in a legend, because a dozen colours are hard to distinguish in a legend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.svg_page import HUES, Font, Page

_WIDTH, _HEIGHT = 920, 540
_LEFT, _TOP, _RIGHT, _BOTTOM = 74, 84, 720, 482
_ROW = 15.0
"""Minimum distance of two names in pixels."""
_DASHES = ("none", "5 3", "1.5 3")
_TICK = Font(11, "middle", "dim")
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class LineChart:
    """Content of a chart.

    Attributes:
        lines: Points (horizontal, vertical), all above zero, ascending, by the line's name.
    """

    title: str
    description: str
    across: str
    up: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class LogScale:
    """A logarithmic axis.

    Attributes:
        low: The value at ``start``.
        high: The value at ``end``.
        start: Pixels.
        end: Pixels.
    """

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return the position of a value in pixels."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float) -> list[float]:
    """Return the round numbers (1, 2 or 5 times a power of ten) from ``low`` to ``high``, inclusive."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in _STEPS if low <= step * 10.0**power <= high]


def outward(value: float, *, up: bool) -> float:
    """Return the next round number above or below; the number itself if it is round."""
    power = 10.0 ** math.floor(math.log10(value))
    rounds = [step * power for step in (*_STEPS, 10)]
    if up:
        return next(each for each in rounds if each >= value)
    return next(each for each in reversed(rounds) if each <= value)


def apart(wanted: Sequence[float], least: float, lowest: float) -> list[float]:
    """Return positions in the order of the wanted ones, moved apart by a simple rule to the minimum distance.

    Args:
        wanted: Wanted positions, ascending, pixels.
        lowest: Maximum position, pixels.
    """
    found: list[float] = []
    for place in wanted:
        found.append(max(place, found[-1] + least) if found else place)
    for number in range(len(found) - 1, -1, -1):
        limit = lowest if number == len(found) - 1 else found[number + 1] - least
        found[number] = min(found[number], limit)
    return found


def draw(chart: LineChart) -> Page:
    """Draw a chart; it needs at least one line with one point."""
    xs = [x for points in chart.lines.values() for x, _ in points]
    ys = [y for points in chart.lines.values() for _, y in points]
    across = LogScale(min(xs) / 1.15, max(xs) * 1.15, _LEFT, _RIGHT)
    up = LogScale(outward(min(ys), up=False), outward(max(ys) * 1.01, up=True), _BOTTOM, _TOP)
    page = Page(_WIDTH, _HEIGHT, f"{chart.title}: {chart.description}")
    page.text(20, 28, chart.title, Font(16, weight="bold"))
    page.text(20, 47, chart.description, Font(12, colour="dim"))
    for value in ticks(up.low, up.high):
        y = up.place(value)
        page.line([(_LEFT, y), (_RIGHT, y)], "grid")
        page.text(_LEFT - 8, y + 4, f"{value:,.0f}", Font(11, "end", "dim"))
    for value in sorted(set(xs)):
        x = across.place(value)
        page.line([(x, _BOTTOM), (x, _BOTTOM + 5)], "dim")
        page.text(x, _BOTTOM + 19, f"{value:,.0f}", _TICK)
    page.line([(_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)], "dim")
    page.text((_LEFT + _RIGHT) / 2, _BOTTOM + 42, f"{chart.across} (log scale)", Font(12, "middle"))
    page.text(20, _TOP - 12, f"{chart.up} (log scale)", Font(12))
    _lines(page, chart, across, up)
    return page


def _lines(page: Page, chart: LineChart, across: LogScale, up: LogScale) -> None:
    placed = {
        name: [(across.place(x), up.place(y)) for x, y in points] for name, points in chart.lines.items() if points
    }
    looks = {name: (HUES[n % len(HUES)], _DASHES[n // len(HUES) % len(_DASHES)]) for n, name in enumerate(placed)}
    for name, points in placed.items():
        page.line(points, looks[name][0], 2.0, looks[name][1])
        for x, y in points:
            page.dot(x, y, looks[name][0])
    names = sorted(placed, key=lambda name: placed[name][-1][1])
    for name, y in zip(names, apart([placed[name][-1][1] for name in names], _ROW, _BOTTOM), strict=True):
        colour, dashes = looks[name]
        end = placed[name][-1]
        page.line([(end[0] + 5, end[1]), (_RIGHT + 22, y), (_RIGHT + 40, y)], colour, 1.2, dashes)
        page.text(_RIGHT + 45, y + 4, name, Font(12, colour=colour))
