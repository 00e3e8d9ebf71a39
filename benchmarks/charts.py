"""SVG charts of the benchmarks: lines over two logarithmic axes, and bars for ratios of the results of two schedulers.

Colours occur twice, in attributes and in a style sheet: a reader without style sheets then shows the light form. A page
has its own background, because an image cannot use the colour of the surrounding page. Names are next to the lines and
not in a legend, because a dozen colours are hard to distinguish there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "dim": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "own": ("#2a6fdb", "#6aa5ff"),
    "pale": ("#a9c7f5", "#2b4f86"),
    "hue-0": ("#2a6fdb", "#6aa5ff"),
    "hue-1": ("#bf5b0b", "#f0883e"),
    "hue-2": ("#1a7f4b", "#4cc38a"),
    "hue-3": ("#7b4bc4", "#b48cf2"),
    "hue-4": ("#bf3989", "#f47ab8"),
    "hue-5": ("#0b7a8a", "#4cc5d6"),
}
"""Colours by name, for the light and the dark theme."""
HUES = tuple(name for name in COLOURS if name.startswith("hue-"))


@dataclass(frozen=True, slots=True)
class Font:
    """Style of text.

    Attributes:
        size: Size in pixels.
        anchor: Alignment at the position: start, middle or end.
        colour: One of :data:`COLOURS`.
    """

    size: int = 12
    anchor: str = "start"
    colour: str = "ink"
    weight: str = "normal"


PLAIN = Font()


@dataclass(slots=True)
class Page:
    """A drawing to which elements are added; screen readers read its title."""

    width: int
    height: int
    title: str
    _parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, font: Font = PLAIN) -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{font.size}" text-anchor="{font.anchor}" '
            f'font-weight="{font.weight}" {_filled(font.colour)}>{escape(words)}</text>'
        )

    def bar(self, corner: tuple[float, float], width: float, height: float, colour: str) -> None:
        """Draw a filled rectangle from its upper left corner."""
        x, y = corner
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5" {_filled(colour)}/>'
        )

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1.0, dashes: str = "none") -> None:
        coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{coordinates}" fill="none" stroke-width="{width}" stroke-dasharray="{dashes}" '
            f'stroke-linejoin="round" class="s-{colour}" stroke="{COLOURS[colour][0]}"/>'
        )

    def dot(self, x: float, y: float, colour: str) -> None:
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {_filled(colour)}/>')

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.drawn(), encoding="utf-8")

    def drawn(self) -> str:
        dark = "".join(
            f".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}" for name, (_, colour) in COLOURS.items()
        )
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                    f'width="{self.width}" height="{self.height}" role="img" aria-label={quoteattr(self.title)} '
                    'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
                ),
                f"<title>{escape(self.title)}</title>",
                f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
                f'<rect width="{self.width}" height="{self.height}" {_filled("paper")}/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )


def _filled(colour: str) -> str:
    return f'class="f-{colour}" fill="{COLOURS[colour][0]}"'


_WIDTH, _HEIGHT = 920, 540
_LEFT, _LINE_TOP, _RIGHT, _BOTTOM = 74, 84, 720, 482
_LINE_ROW = 15.0
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
    """A logarithmic axis: the value ``low`` is at the pixel ``start``, ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
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
    """Return positions in the order of the wanted, ascending ones, moved apart to the minimum distance, in pixels."""
    found: list[float] = []
    for place in wanted:
        found.append(max(place, found[-1] + least) if found else place)
    for number in range(len(found) - 1, -1, -1):
        limit = lowest if number == len(found) - 1 else found[number + 1] - least
        found[number] = min(found[number], limit)
    return found


def draw_lines(chart: LineChart) -> Page:
    """Draw a chart; it needs at least one line with one point."""
    xs = [x for points in chart.lines.values() for x, _ in points]
    ys = [y for points in chart.lines.values() for _, y in points]
    across = LogScale(min(xs) / 1.15, max(xs) * 1.15, _LEFT, _RIGHT)
    up = LogScale(outward(min(ys), up=False), outward(max(ys) * 1.01, up=True), _BOTTOM, _LINE_TOP)
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
    page.text(20, _LINE_TOP - 12, f"{chart.up} (log scale)", Font(12))
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
    for name, y in zip(names, apart([placed[name][-1][1] for name in names], _LINE_ROW, _BOTTOM), strict=True):
        colour, dashes = looks[name]
        end = placed[name][-1]
        page.line([(end[0] + 5, end[1]), (_RIGHT + 22, y), (_RIGHT + 40, y)], colour, 1.2, dashes)
        page.text(_RIGHT + 45, y + 4, name, Font(12, colour=colour))


_NAMES, _GAP, _LABEL = 310, 26, 176
_RATIO_ROW, _BAR, _RATIO_TOP, _FOOT = 34, 12, 104, 34
_SPAN = 210
_SPACE = 16


@dataclass(frozen=True, slots=True)
class Ratio:
    """One bar.

    Attributes:
        ratio: Ratio of Bayplan's result to kube-scheduler's.
        second: Second ratio, drawn as a thin bar below; 0 for none.
    """

    ratio: float
    label: str
    second: float = 0.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of bars; the description has the better direction and the meaning of the thin bars."""

    title: str
    description: str


@dataclass(frozen=True, slots=True)
class RatioChart:
    """Content of a chart.

    Attributes:
        rows: Names with a bar for each column; a row without bars is a heading.
    """

    title: str
    description: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[Ratio]]]


def draw_ratios(chart: RatioChart) -> Page:
    pitch = _SPAN + _LABEL + _GAP
    bottom = _RATIO_TOP + _RATIO_ROW * len(chart.rows)
    page = Page(_NAMES + pitch * len(chart.columns), bottom + _FOOT, f"{chart.title}: {chart.description}")
    page.text(20, 28, chart.title, Font(16, weight="bold"))
    page.text(20, 47, chart.description, Font(12, colour="dim"))
    for number, column in enumerate(chart.columns):
        left = _NAMES + number * pitch
        bars = [ratios[number] for _, ratios in chart.rows if ratios]
        most = max((max(bar.ratio, bar.second) for bar in bars), default=1.0)
        scale = _SPAN / max(1.0, most)
        page.text(left, _RATIO_TOP - 30, column.title, Font(13, weight="bold"))
        page.text(left, _RATIO_TOP - 14, column.description, Font(11, colour="dim"))
        page.line([(left, _RATIO_TOP), (left, bottom)], "dim")
        for row, (_, ratios) in enumerate(chart.rows):
            if ratios:
                _bar(page, ratios[number], (left, _RATIO_TOP + row * _RATIO_ROW), scale)
        one = left + scale
        page.line([(one, _RATIO_TOP - 4), (one, bottom + 4)], "ink", 1.0, "4 3")
        page.text(one, bottom + _SPACE + 2, "kube-scheduler = 1", Font(11, "middle", "dim"))
    for row, (name, ratios) in enumerate(chart.rows):
        font = Font(12, "end") if ratios else Font(12, "end", "dim", "bold")
        page.text(_NAMES - 10, _RATIO_TOP + row * _RATIO_ROW + 19, name, font)
    return page


def _bar(page: Page, bar: Ratio, corner: tuple[float, float], scale: float) -> None:
    left, top = corner
    width = scale * bar.ratio
    page.bar((left, top + 7), width, _BAR, "own")
    if bar.second:
        page.bar((left, top + 7 + _BAR + 1), scale * bar.second, 5, "pale")
    # To the right of the line at one, so that the line does not cross the text.
    end = left + max(width, scale * bar.second)
    if end < left + scale < end + _LABEL:
        end = left + scale
    page.text(end + 6, top + 18, f"{bar.ratio:.{1 if bar.ratio >= 1 else 2}f}x", Font(12, weight="bold"))
    page.text(end + 50, top + 18, bar.label, Font(11, colour="dim"))
