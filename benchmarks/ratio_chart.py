"""Draws bars for ratios of the results of two schedulers, in columns.

In every column the other scheduler is a line at one: the length of a bar is the ratio, so columns with different units
are comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.svg_page import Font, Page

_NAMES, _GAP, _LABEL = 310, 26, 176
_ROW, _BAR, _TOP, _FOOT = 34, 12, 104, 34
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
    """A column of bars.

    Attributes:
        description: Which direction is better, and the meaning of the thin bars.
    """

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


def draw(chart: RatioChart) -> Page:
    pitch = _SPAN + _LABEL + _GAP
    bottom = _TOP + _ROW * len(chart.rows)
    page = Page(_NAMES + pitch * len(chart.columns), bottom + _FOOT, f"{chart.title}: {chart.description}")
    page.text(20, 28, chart.title, Font(16, weight="bold"))
    page.text(20, 47, chart.description, Font(12, colour="dim"))
    for number, column in enumerate(chart.columns):
        left = _NAMES + number * pitch
        bars = [ratios[number] for _, ratios in chart.rows if ratios]
        most = max((max(bar.ratio, bar.second) for bar in bars), default=1.0)
        scale = _SPAN / max(1.0, most)
        page.text(left, _TOP - 30, column.title, Font(13, weight="bold"))
        page.text(left, _TOP - 14, column.description, Font(11, colour="dim"))
        page.line([(left, _TOP), (left, bottom)], "dim")
        for row, (_, ratios) in enumerate(chart.rows):
            if ratios:
                _bar(page, ratios[number], (left, _TOP + row * _ROW), scale)
        one = left + scale
        page.line([(one, _TOP - 4), (one, bottom + 4)], "ink", 1.0, "4 3")
        page.text(one, bottom + _SPACE + 2, "kube-scheduler = 1", Font(11, "middle", "dim"))
    for row, (name, ratios) in enumerate(chart.rows):
        font = Font(12, "end") if ratios else Font(12, "end", "dim", "bold")
        page.text(_NAMES - 10, _TOP + row * _ROW + 19, name, font)
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
