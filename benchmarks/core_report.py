"""Prints the results of core measurements: tables of medians, of growth and of parts, and a chart."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.core_drain import Measured
from benchmarks.core_memory import Memory
from benchmarks.line_chart import LineChart

_WIDTH = 200
_LEAST_US = 0.5
"""Parts that took less in every workload are left out of the tables of parts."""


@dataclass(frozen=True, slots=True)
class Case:
    """Repetitions of one measurement."""

    workload: str
    nodes: int
    occupied: int
    runs: Sequence[Measured]

    def median(self, of: Callable[[Measured], float]) -> float:
        """Return the median of ``of`` over the repetitions."""
        return statistics.median(map(of, self.runs))

    @property
    def rate(self) -> float:
        """Return the median of pods per second."""
        return self.median(lambda one: one.rate)


def cases(results: Sequence[Measured]) -> list[Case]:
    """Return results by case, in the order of their first measurement."""
    keys = dict.fromkeys((each.workload, each.nodes, each.occupied) for each in results)
    return [Case(*key, [each for each in results if (each.workload, each.nodes, each.occupied) == key]) for key in keys]


def medians(found: Sequence[Case]) -> Table:
    """Return the table of all cases with the cost of their pods."""
    table = Table(title="The core alone, medians; spread of the rates")
    table.add_column("workload")
    columns = ("nodes", "bound pods", "tried", "bound", "take in µs", "decide µs", "bind µs", "pods/s", "spread", "n")
    for column in columns:
        table.add_column(column, justify="right")
    for each in found:
        rates = [one.rate for one in each.runs]
        table.add_row(
            each.workload,
            f"{each.nodes:,}",
            f"{each.occupied:,}",
            f"{each.runs[0].pods:,}",
            f"{each.runs[0].bound:,}",
            f"{each.median(lambda one: one.taken_in_us):,.0f}",
            f"{each.median(lambda one: one.decided_us):,.0f}",
            f"{each.median(lambda one: one.bound_us):,.0f}",
            f"{each.rate:,.0f}",
            f"{min(rates):,.0f}-{max(rates):,.0f}",
            f"{len(rates)}",
        )
    return table


def growth(found: Sequence[Case]) -> Table:
    """Return the table of pods per second and µs to decide, workloads by sizes."""
    sizes = sorted({(each.nodes, each.occupied) for each in found})
    table = Table(title="By size: pods/s (µs to decide)")
    table.add_column("workload")
    for nodes, occupied in sizes:
        table.add_column(f"{nodes:,} nodes" + (f", {occupied:,} bound" if occupied else ""), justify="right")
    known = {(each.workload, each.nodes, each.occupied): each for each in found}
    for workload in dict.fromkeys(each.workload for each in found):
        row = []
        for nodes, occupied in sizes:
            each = known.get((workload, nodes, occupied))
            row.append("" if each is None else f"{each.rate:,.0f} ({each.median(lambda one: one.decided_us):,.0f})")
        table.add_row(workload, *row)
    return table


def parts(found: Sequence[Case], title: str, of: Callable[[Measured], Mapping[str, float]]) -> Table:
    """Return the table of the times of extension points or plugins, by workload."""
    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for each in found:
        table.add_column(each.workload, justify="right", overflow="fold")
    names = dict.fromkeys(name for each in found for one in each.runs for name in of(one))
    rows = {name: [_median_of_part(each, name, of) for each in found] for name in names}
    for name, row in sorted(rows.items(), key=lambda each: -max(each[1])):
        if max(row) >= _LEAST_US:
            table.add_row(name, *(f"{us:,.1f}" if us >= _LEAST_US / 10 else "" for us in row))
    return table


def _median_of_part(case: Case, name: str, of: Callable[[Measured], Mapping[str, float]]) -> float:
    return statistics.median(of(one).get(name, 0.0) for one in case.runs)


def memory_table(found: Sequence[Memory]) -> Table:
    table = Table(title="Memory, each measured in its own process")
    for column in ("nodes", "bound pods", "KiB a node", "KiB a bound pod", "whole process MiB"):
        table.add_column(column, justify="right")
    for each in found:
        numbers = (f"{each.node_kib:.1f}", f"{each.pod_kib:.1f}", f"{each.whole_mib:,.0f}")
        table.add_row(f"{each.nodes:,}", f"{each.pods:,}", *numbers)
    return table


def show(results: Sequence[Measured], memory: Sequence[Memory], parts_at: int) -> None:
    """Print all tables that have results.

    Args:
        parts_at: Number of nodes of the cases whose extension points and plugins are shown.
    """
    console, found = Console(width=_WIDTH), cases(results)
    if found:
        console.print(medians(found))
    if len({(each.nodes, each.occupied) for each in found}) > 1:
        console.print(growth(found))
    shown = [each for each in found if each.nodes == parts_at and not each.occupied] or [
        each for each in found if (each.nodes, each.occupied) == (found[-1].nodes, found[-1].occupied)
    ]
    if shown:
        where = f"{shown[0].nodes:,} nodes" + (f", {shown[0].occupied:,} bound pods" if shown[0].occupied else "")
        console.print(parts(shown, f"Extension points, µs a pod, {where}", lambda one: one.points))
        console.print(parts(shown, f"Plugins, µs per run, {where}", lambda one: one.plugins))
    if memory:
        console.print(memory_table(memory))


def chart(results: Sequence[Measured]) -> LineChart:
    """Return the chart of pods per second by the number of nodes, one line per workload, without bound pods."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in sorted(cases(results), key=lambda one: one.nodes):
        if not each.occupied:
            lines.setdefault(each.workload, []).append((each.nodes, each.rate))
    ordered = {each.workload: lines[each.workload] for each in results if each.workload in lines}
    return LineChart(
        title="The core alone: pods decided and bound per CPU second",
        description="in memory, no API server; every node is scored; medians, higher is better",
        across="nodes",
        up="pods/s",
        lines=ordered,
    )
