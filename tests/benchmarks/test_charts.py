"""Charts are readable and say what was measured."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks import line_chart, ratio_chart
from benchmarks.line_chart import LineChart
from benchmarks.ratio_chart import Column, Ratio, RatioChart
from benchmarks.svg_page import Page

_SVG = "{http://www.w3.org/2000/svg}"


def _parsed(page: Page) -> ET.Element:
    return ET.fromstring(page.drawn())  # noqa: S314 - drawn just now


def _texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{_SVG}text")]


def test_lines_are_named_and_axes_too() -> None:
    """A line for each workload, with its name; title, axes with their scale."""
    lines = {"basic": [(100, 9000.0), (5000, 8000.0)], "a<b": [(100, 900.0)]}
    root = _parsed(line_chart.draw(LineChart("Speed", "medians", "nodes", "pods/s", lines)))
    assert {"Speed", "medians", "nodes (log scale)", "pods/s (log scale)", "basic", "a<b", "5,000"} <= set(_texts(root))
    assert len(list(root.iter(f"{_SVG}circle"))) == 3


def test_bars_are_as_long_as_their_ratios() -> None:
    """In one column by one scale; both numbers stand beside."""
    rows = [("5,000 nodes", ()), ("basic", (Ratio(4.0, "40 / 10"),)), ("sizes", (Ratio(2.0, "20 / 10", 1.0),))]
    root = _parsed(ratio_chart.draw(RatioChart("Both", "medians", (Column("rate", "longer is better"),), rows)))
    bars = [float(bar.attrib["width"]) for bar in root.iter(f"{_SVG}rect")][1:]
    assert [bars[0] / bars[1], bars[1] / bars[2]] == [2.0, 2.0]
    assert {"5,000 nodes", "basic", "4.0x", "40 / 10", "kube-scheduler = 1"} <= set(_texts(root))
