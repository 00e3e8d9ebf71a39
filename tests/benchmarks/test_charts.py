"""Charts are readable and say what was measured."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import line_chart, ratio_chart
from benchmarks.line_chart import LineChart, LogScale, apart, outward, ticks
from benchmarks.ratio_chart import Column, Ratio, RatioChart
from benchmarks.svg_page import COLOURS, Page

_SVG = "{http://www.w3.org/2000/svg}"


def _parsed(page: Page) -> ET.Element:
    return ET.fromstring(page.drawn())  # noqa: S314 - drawn just now


def _texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{_SVG}text")]


def test_a_logarithmic_axis_has_equal_steps() -> None:
    """Ten times as much is as far from one as a hundred times from ten times."""
    scale = LogScale(1, 100, 0, 200)
    assert [scale.place(value) for value in (1, 10, 100)] == pytest.approx([0, 100, 200])


def test_ticks_are_round() -> None:
    """1, 2 and 5 and their tenfolds, within the axis."""
    assert ticks(100, 2000) == [100, 200, 500, 1000, 2000]


@pytest.mark.parametrize(
    ("value", "up", "expected"),
    [
        pytest.param(130.0, True, 200.0, id="up"),
        pytest.param(130.0, False, 100.0, id="down"),
        pytest.param(700.0, True, 1000.0, id="over-a-power"),
        pytest.param(200.0, False, 200.0, id="round-already"),
    ],
)
def test_an_axis_ends_at_a_round_number(value: float, expected: float, *, up: bool) -> None:
    """The next one."""
    assert outward(value, up=up) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param([10.0, 50.0], [10.0, 50.0], id="far-apart"),
        pytest.param([10.0, 11.0, 12.0], [10.0, 20.0, 30.0], id="pushed-down"),
        pytest.param([95.0, 99.0], [90.0, 100.0], id="pushed-up-at-the-end"),
    ],
)
def test_names_do_not_lie_upon_one_another(wanted: list[float], expected: list[float]) -> None:
    """Each is ten away from the next, and none is beyond the end."""
    assert apart(wanted, 10.0, 100.0) == expected


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


def test_a_page_is_for_light_and_dark(tmp_path: Path) -> None:
    """Whoever knows no style sheet sees the light form; colours that are used have a dark one; no font is fetched."""
    page = Page(100, 50, 'Of "one" & two')
    page.text(1, 1, "words")
    page.bar((1, 1), 5, 5, "own")
    page.line([(0, 0), (1, 1)], "hue-1")
    page.write(tmp_path / "deep" / "page.svg")
    text = (tmp_path / "deep" / "page.svg").read_text()
    assert _parsed(page).attrib["aria-label"] == 'Of "one" & two'
    assert f'fill="{COLOURS["own"][0]}"' in text
    assert f".f-own{{fill:{COLOURS['own'][1]}}}" in text
    assert f".s-hue-1{{stroke:{COLOURS['hue-1'][1]}}}" in text
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg")
