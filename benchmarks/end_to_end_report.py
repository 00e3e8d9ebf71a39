"""What comes of many drains: medians, spread, ratios, as a table and as a chart.

Owns the statistics and how they look. It must not run anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end_drain import Drain
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

_BAR, _GAP, _LEFT, _WIDTH, _TOP = 14, 18, 190, 420, 34


@dataclass(frozen=True, slots=True)
class Comparison:
    """Medians of one workload, Bayplan's and kube-scheduler's."""

    workload: str
    nodes: int
    own: Sequence[Drain]
    other: Sequence[Drain]

    def medians(self, of: Callable[[Drain], float]) -> tuple[float, float]:
        """Bayplan's median and kube-scheduler's."""
        return statistics.median(map(of, self.own)), statistics.median(map(of, self.other))

    def ratio(self, of: Callable[[Drain], float]) -> float:
        """Bayplan's median over kube-scheduler's."""
        own, other = self.medians(of)
        return own / other if other else 0.0


def compared(drains: Sequence[Drain]) -> list[Comparison]:
    """Workloads that both schedulers have drained, in the order in which they were run."""
    found = []
    for workload, nodes in dict.fromkeys((each.workload, each.nodes) for each in drains):
        sides = [
            [each for each in drains if (each.workload, each.nodes, each.scheduler) == (workload, nodes, scheduler)]
            for scheduler in (BAYPLAN, KUBE_SCHEDULER)
        ]
        if all(sides):
            found.append(Comparison(workload, nodes, *sides))
    return found


def show(drains: Sequence[Drain]) -> None:
    """Print the table: Bayplan / kube-scheduler = ratio, and the spread of the rates."""
    table = Table(title="Bayplan / kube-scheduler = ratio, medians")
    table.add_column("workload")
    table.add_column("nodes", justify="right")
    columns = ("pods/s", "with events", "CPU ms/pod", "peak MiB", "requests/pod", "spread of rates", "n")
    for column in columns:
        table.add_column(column, justify="right")
    for each in compared(drains):
        table.add_row(
            each.workload,
            f"{each.nodes:,}",
            _cell(each, lambda one: one.rate, ".0f"),
            _cell(each, lambda one: one.told_rate, ".0f"),
            _cell(each, lambda one: one.cpu_ms_per_pod, ".2f"),
            _cell(each, lambda one: one.peak_rss_mib, ".0f"),
            _cell(each, lambda one: one.requests_per_pod, ".2f"),
            f"{_spread(each.own)} / {_spread(each.other)}",
            f"{len(each.own)}",
        )
    Console(width=150).print(table)


def _cell(each: Comparison, of: Callable[[Drain], float], form: str) -> str:
    own, other = each.medians(of)
    return f"{own:{form}} / {other:{form}} = {each.ratio(of):.2f}x"


def _spread(drains: Sequence[Drain]) -> str:
    rates = [each.rate for each in drains]
    return f"{min(rates):.0f}-{max(rates):.0f}"


def write_chart(drains: Sequence[Drain], path: Path) -> None:
    """Write rates as bars, kube-scheduler's beneath Bayplan's, as an SVG file."""
    rows = compared(drains)
    longest = max((rate for each in rows for rate in each.medians(lambda one: one.rate)), default=1.0)
    height = _TOP + len(rows) * (2 * _BAR + _GAP)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 110} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        (
            f'<text x="{_LEFT}" y="18">pods bound a second: <tspan fill="#2a6f97">Bayplan</tspan>, '
            '<tspan fill="#9a9a9a">kube-scheduler v1.36.3</tspan></text>'
        ),
    ]
    for number, each in enumerate(rows):
        top = _TOP + number * (2 * _BAR + _GAP)
        name = escape(f"{each.workload}, {each.nodes:,} nodes")
        parts.append(f'<text x="{_LEFT - 8}" y="{top + _BAR + 4}" text-anchor="end">{name}</text>')
        rates = each.medians(lambda one: one.rate)
        for place, (rate, colour) in enumerate(zip(rates, ("#2a6f97", "#9a9a9a"), strict=True)):
            y, width = top + place * _BAR, _WIDTH * rate / longest
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" fill="{colour}"/>')
            told = f"{rate:.0f}" + (f" ({each.ratio(lambda one: one.rate):.1f}x)" if place == 0 else "")
            parts.append(f'<text x="{_LEFT + width + 5:.1f}" y="{y + _BAR - 4}">{told}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")
