"""Measure the scheduler core alone, in memory: its speed, and how its cost grows with the cluster.

    make bench-core                                         # all workloads and sizes
    make bench-core QUICK=1
    python -m benchmarks.core --nodes 5000 --only basic,spread
    python -m benchmarks.core --nodes 1000,5000,5000+50000  # the last with 50,000 bound pods
    python -m benchmarks.core --nodes 5000 --only basic --profile basic.prof
    python -m benchmarks.core --show build/benchmarks/core.jsonl --chart docs/benchmarks/core.svg

Pods are received, scheduled, bound and confirmed as in the operator, by a simulated cluster that responds at once: no
request is sent and nothing is decoded. Pods per second include all of this except receiving, which is reported
separately. Times are CPU times; compare ratios within one run rather than absolute times. Times of extension points and
plugins come from the scheduler's own metrics, which are wall-clock times; plugins are timed in few cycles. `--results`
stores the results line by line and does not measure stored ones again.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import logging
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.charts import LineChart, draw_lines
from benchmarks.core_drain import Measured, Memory, Size, measure, memory_of
from benchmarks.device_workloads import CORE_DEVICE_WORKLOADS, DEVICE_WORKLOADS
from benchmarks.harness import ResultLines, add_output, command_line, grouped, report, table, table_of
from benchmarks.workloads import WORKLOADS, Workload

_WITH_DEVICES = (*DEVICE_WORKLOADS, *CORE_DEVICE_WORKLOADS)

MOST_OCCUPIED = 40
"""Maximum number of bound pods per node at the start: workloads need room beside them."""
_PARTS_AT = 5000
"""Number of nodes of the cases whose extension points and plugins are shown."""


def sizes(text: str, occupied: int = 0) -> list[tuple[int, int]]:
    """Return nodes and pods of a command line: numbers of nodes with commas, some with ``+`` and bound pods.

    Raises:
        ValueError: The text has another format, or the pods leave no room.
    """
    found = []
    for each in text.split(","):
        nodes, _, before = each.partition("+")
        size = int(nodes), int(before) if before else occupied
        if size[1] > MOST_OCCUPIED * size[0]:
            raise ValueError(f"{each}: at most {MOST_OCCUPIED} pods per node may be bound beforehand; use more nodes")
        found.append(size)
    return found


def _cases(arguments: argparse.Namespace) -> Iterator[tuple[Workload, Size]]:
    names = None if arguments.only is None else arguments.only.split(",")
    default = _WITH_DEVICES if arguments.devices else WORKLOADS
    for nodes, occupied in sizes(arguments.nodes, arguments.occupied):
        for workload in (*WORKLOADS, *_WITH_DEVICES):
            if workload in default if names is None else workload.name in names:
                pods = min(arguments.pods, workload.at_most(nodes))
                if workload.preempts:
                    pods = min(pods, arguments.preempting)
                for repetition in range(1, arguments.repetitions + 1):
                    yield workload, Size(nodes, pods, occupied, repetition)


_WIDTH = 200
_LEAST_US = 0.5
"""Parts that took less in every workload are left out of the tables of parts."""


@dataclass(frozen=True, slots=True)
class Case:
    workload: str
    nodes: int
    occupied: int
    runs: Sequence[Measured]

    def median(self, of: Callable[[Measured], float]) -> float:
        return statistics.median(map(of, self.runs))

    @property
    def rate(self) -> float:
        return self.median(lambda one: one.rate)


def cases(results: Sequence[Measured]) -> list[Case]:
    return [
        Case(*key, runs)
        for key, runs in grouped(results, lambda each: (each.workload, each.nodes, each.occupied)).items()
    ]


def medians(found: Sequence[Case]) -> Table:
    columns: Mapping[str, Callable[[Case], object]] = {
        "workload": lambda each: each.workload,
        "nodes": lambda each: f"{each.nodes:,}",
        "bound pods": lambda each: f"{each.occupied:,}",
        "tried": lambda each: f"{each.runs[0].pods:,}",
        "bound": lambda each: f"{each.runs[0].bound:,}",
        "take in µs": lambda each: f"{each.median(lambda one: one.taken_in_us):,.0f}",
        "decide µs": lambda each: f"{each.median(lambda one: one.decided_us):,.0f}",
        "bind µs": lambda each: f"{each.median(lambda one: one.bound_us):,.0f}",
        "pods/s": lambda each: f"{each.rate:,.0f}",
        "spread": lambda each: f"{min(one.rate for one in each.runs):,.0f}-{max(one.rate for one in each.runs):,.0f}",
        "n": lambda each: len(each.runs),
    }
    return table_of("The core alone, medians; spread of the rates", found, columns)


def growth(found: Sequence[Case]) -> Table:
    """Return the table of pods per second and µs to decide, workloads by sizes."""
    sizes = sorted({(each.nodes, each.occupied) for each in found})
    heads = [f"{nodes:,} nodes" + (f", {occupied:,} bound" if occupied else "") for nodes, occupied in sizes]
    made = table("By size: pods/s (µs to decide)", ["workload"], heads)
    known = {(each.workload, each.nodes, each.occupied): each for each in found}
    for workload in dict.fromkeys(each.workload for each in found):
        row = []
        for nodes, occupied in sizes:
            each = known.get((workload, nodes, occupied))
            row.append("" if each is None else f"{each.rate:,.0f} ({each.median(lambda one: one.decided_us):,.0f})")
        made.add_row(workload, *row)
    return made


def parts(found: Sequence[Case], title: str, of: Callable[[Measured], Mapping[str, float]]) -> Table:
    made = table(title, [""], ())
    for each in found:
        made.add_column(each.workload, justify="right", overflow="fold")
    names = dict.fromkeys(name for each in found for one in each.runs for name in of(one))
    rows = {name: [_median_of_part(each, name, of) for each in found] for name in names}
    for name, row in sorted(rows.items(), key=lambda each: -max(each[1])):
        if max(row) >= _LEAST_US:
            made.add_row(name, *(f"{us:,.1f}" if us >= _LEAST_US / 10 else "" for us in row))
    return made


def _median_of_part(case: Case, name: str, of: Callable[[Measured], Mapping[str, float]]) -> float:
    return statistics.median(of(one).get(name, 0.0) for one in case.runs)


def memory_table(found: Sequence[Memory]) -> Table:
    columns: Mapping[str, Callable[[Memory], object]] = {
        "nodes": lambda each: f"{each.nodes:,}",
        "bound pods": lambda each: f"{each.pods:,}",
        "KiB a node": lambda each: f"{each.node_kib:.1f}",
        "KiB a bound pod": lambda each: f"{each.pod_kib:.1f}",
        "whole process MiB": lambda each: f"{each.whole_mib:,.0f}",
    }
    return table_of("Memory, each measured in its own process", found, columns, 0)


def show(results: Sequence[Measured], memory: Sequence[Memory]) -> None:
    console, found = Console(width=_WIDTH), cases(results)
    if found:
        console.print(medians(found))
    if len({(each.nodes, each.occupied) for each in found}) > 1:
        console.print(growth(found))
    shown = [each for each in found if each.nodes == _PARTS_AT and not each.occupied] or [
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


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line(__doc__, pods=2000, repetitions=3, occupied=0)
    parser.add_argument("--nodes", default="100,1000,5000", help="sizes with commas: nodes, or nodes+pods beforehand")
    parser.add_argument(
        "--preempting", type=int, default=100, help="maximum number of preempting pods, which take long"
    )
    parser.add_argument(
        "--only", help="workloads with commas: " + ", ".join(each.name for each in (*WORKLOADS, *_WITH_DEVICES))
    )
    parser.add_argument("--devices", action="store_true", help="only the workloads with devices")
    parser.add_argument("--profile", type=Path, help="file for a profile by cProfile")
    parser.add_argument("--memory", help="Sizes as for --nodes whose memory is measured, each in its own process")
    parser.add_argument("--chart", type=Path, help="file for a chart of pods/s by nodes, SVG")
    add_output(parser, "", show=True)
    return parser.parse_args(argv)


def run(
    planned: Iterable[tuple[Workload, Size]], lines: ResultLines[Measured], profiler: cProfile.Profile | None = None
) -> list[Measured]:
    def measured(workload: Workload, size: Size) -> Measured:
        return asyncio.run(measure(workload, size, profiler))

    turns = (
        ((workload.name, size.nodes, size.occupied, size.repetition), partial(measured, workload, size))
        for workload, size in planned
    )
    return lines.complete(
        turns,
        lambda each: (each.workload, each.nodes, each.occupied, each.repetition),
        lambda each: (
            f"{each.workload}, {each.nodes} nodes, {each.occupied} pods beforehand, #{each.repetition}: "
            f"{each.rate:,.0f} pods/s"
        ),
    )


def main() -> None:
    arguments = arguments_of()
    # Preemptions on 50,000 nodes are slow cycles, whose log lines would be mixed with the results.
    logging.disable(logging.WARNING)
    profiler = None if arguments.profile is None else cProfile.Profile()
    lines = ResultLines(arguments.show or (None if profiler else arguments.results), Measured)
    results = run(_cases(arguments), lines, profiler) if arguments.show is None else lines.read()
    if profiler is not None:
        profiler.dump_stats(arguments.profile)
    memory = [] if arguments.memory is None else [memory_of(*size) for size in sizes(arguments.memory)]
    if arguments.chart is not None and results:
        draw_lines(chart(results)).write(arguments.chart)
    report(arguments.output, {"measured": results, "memory": memory}, lambda: show(results, memory))


if __name__ == "__main__":
    main()
