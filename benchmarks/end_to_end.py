"""Measure Bayplan and kube-scheduler on a real API server, workload by workload.

    make bench-e2e                                          # all workloads, five repetitions: takes hours
    make bench-e2e QUICK=1                                  # one repetition of smaller backlogs
    python -m benchmarks.end_to_end --only basic,spread --nodes 5000 --repetitions 3 --results runs.jsonl
    python -m benchmarks.end_to_end --only basic --nodes 1000 --profile basic.prof
    python -m benchmarks.end_to_end --show runs.jsonl --chart docs/benchmarks/end-to-end.svg

Each scheduler starts on a new control plane with the same nodes and the same backlog. Rates are computed from the API
server's audit log. CPU time is that of the scheduler process, with and without its start and first lists. Client rates
are not limited; all other settings have their defaults. After each run every placement is checked, and the number of
Scheduled events is compared with the number of bound pods. Compare only ratios within one run: absolute times depend on
the machine. Results are stored line by line, and stored ones are not measured again: remove the file after a change of
either scheduler.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.charts import Column, Ratio, RatioChart, draw_ratios
from benchmarks.device_workloads import DEVICE_WORKLOADS, STEADY_DEVICE_WORKLOADS
from benchmarks.end_to_end_drain import Drain, drain
from benchmarks.harness import Comparison, ResultLines, add_output, command_line, report
from benchmarks.prepared import PreparedCluster
from benchmarks.workloads import WORKLOADS, Workload
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

_WITH_DEVICES = (*DEVICE_WORKLOADS, *STEADY_DEVICE_WORKLOADS)
_SMALLER = ((100, 2000), (1000, 5000))
"""Additional sizes of the basic workload: nodes and pods."""


_TABLE_WIDTH = 160
_SERVERS = ("kube-apiserver", "etcd", "kube-controller-manager")


def compared(drains: Sequence[Drain]) -> list[Comparison[Drain]]:
    return harness.compared(drains, lambda each: (each.workload, each.nodes, each.pods), lambda each: each.scheduler)


COUNTED: Mapping[str, tuple[str, Callable[[Drain], float]]] = {
    "pods/s": (".0f", lambda one: one.rate),
    "with events": (".0f", lambda one: one.reported_rate),
    "CPU ms/pod": (".2f", lambda one: one.cpu_ms_per_pod),
    "after the first bind": (".2f", lambda one: one.later_cpu_ms_per_pod),
    "peak MiB": (".0f", lambda one: one.peak_rss_mib),
    "requests/pod": (".2f", lambda one: one.requests_per_pod),
}
"""Reported numbers, in the order of the table; "after the first bind" refers to CPU ms/pod."""
_RATE, _TOLD, _CPU, _LATER = (COUNTED[name][1] for name in list(COUNTED)[:4])


def show(drains: Sequence[Drain]) -> None:
    """Print tables of rates, costs and load: Bayplan / kube-scheduler = ratio, and the spread of the runs."""
    found, names = compared(drains), list(COUNTED)
    rates = _table("rates", [*names[:2], "spread of pods/s", "Scheduled events", "n"])
    costs = _table("costs", [*names[2:], "spread of CPU ms/pod"])
    for each in found:
        counted = [each.cell(of, form) for form, of in COUNTED.values()]
        events = "as many" if not without_events([*each.own, *each.other]) else "not as many"
        runs = " / ".join(map(str, each.repetitions))
        rates.add_row(*_situation(each), *counted[:2], each.spreads(_RATE, ".0f"), events, runs)
        costs.add_row(*_situation(each), *counted[2:], each.spreads(_CPU, ".2f"))
    console = Console(width=_TABLE_WIDTH)
    console.print(rates)
    console.print(costs)
    if any(one.busy for one in drains):
        console.print(_load_table(found))
    for sentence in without_events(drains):
        console.print(sentence, highlight=False, soft_wrap=True)


def _situation(each: Comparison[Drain]) -> tuple[str, str, str]:
    workload, nodes, pods = each.key
    return workload, f"{nodes:,}", f"{pods:,}"


def _table(of: str, columns: Sequence[str]) -> Table:
    title = f"Bayplan / kube-scheduler = ratio, medians: {of}"
    return harness.table(title, ["workload"], ("nodes", "pods", *columns))


def _load_table(found: Sequence[Comparison[Drain]]) -> Table:
    """Return CPU time by process after the first bindings, and the number of busy processors.

    If all processors are busy, the CPU time of all processes per pod limits the rate.
    """
    names = ["scheduler", *_SERVERS]
    table = _table("CPU ms per pod by process", [*names, "processors busy"])
    for each in found:
        cells = []
        for name in names:
            sides = [
                statistics.median(one.busy_ms_per_pod(one.scheduler if name == "scheduler" else name) for one in side)
                for side in (each.own, each.other)
            ]
            cells.append(f"{sides[0]:.2f} / {sides[1]:.2f}")
        busy = each.medians(lambda one: one.busy_processors)
        table.add_row(*_situation(each), *cells, f"{busy[0]:.2f} / {busy[1]:.2f}")
    return table


def summary(drains: Sequence[Drain]) -> list[dict[str, Any]]:
    """Return the JSON document: for each number both medians, both spreads and the ratio."""
    return [
        {
            **dict(zip(("workload", "nodes", "pods"), each.key, strict=True)),
            "repetitions": each.repetitions,
            "counted": each.counted(COUNTED),
            "without_events": without_events([*each.own, *each.other]),
        }
        for each in compared(drains)
    ]


def without_events(drains: Sequence[Drain]) -> list[str]:
    """Return a message for each run with fewer Scheduled events than bound pods.

    Both schedulers have to write one event for each pod.
    """
    return [
        f"{each.workload}, {each.nodes:,} nodes, #{each.repetition}: {each.scheduler} bound {each.bound:,} pods "
        f"and wrote {each.events:,} events of reason Scheduled"
        for each in drains
        if each.events != each.bound
    ]


def chart(drains: Sequence[Drain]) -> RatioChart:
    found = compared(drains)
    rows: list[tuple[str, Sequence[Ratio]]] = []
    for nodes in sorted({each.key[1] for each in found}, reverse=True):
        rows.append((f"{nodes:,} nodes", ()))
        rows += [(_name(each), _ratios(each)) for each in found if each.key[1] == nodes]
    counts = sorted({count for each in found for count in each.repetitions}) or [0]
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return RatioChart(
        title="Bayplan compared with kube-scheduler v1.36.3",
        description=f"same machine, same API server, a backlog on a new control plane; medians of {runs} runs each",
        columns=(
            Column("Pods bound per second", "longer is faster; thin: until all events are written too"),
            Column("Scheduler CPU per pod", "shorter is cheaper; thin: after the first bind, without the start"),
        ),
        rows=rows,
    )


def _name(each: Comparison[Drain]) -> str:
    workload: str = each.key[0]
    return {known.name: known.description for known in WORKLOADS}.get(workload, workload)


def _ratios(each: Comparison[Drain]) -> tuple[Ratio, Ratio]:
    rates, costs = each.medians(_RATE), each.medians(_CPU)
    return (
        Ratio(each.ratio(_RATE), f"{rates[0]:,.0f} / {rates[1]:,.0f} pods/s", each.ratio(_TOLD)),
        Ratio(each.ratio(_CPU), f"{costs[0]:.2f} / {costs[1]:.2f} ms", each.ratio(_LATER)),
    )


def _cases(arguments: argparse.Namespace) -> Iterator[tuple[Workload, int, int]]:
    names = None if arguments.only is None else arguments.only.split(",")
    default = _WITH_DEVICES if arguments.devices else WORKLOADS
    for workload in (*WORKLOADS, *_WITH_DEVICES):
        if workload in default if names is None else workload.name in names:
            pods = 1000 if workload.preempts else arguments.pods
            yield workload, arguments.nodes, min(pods, workload.at_most(arguments.nodes))
    if names is None and not arguments.devices:
        basic = WORKLOADS[0]
        yield from ((basic, nodes, min(pods, arguments.pods)) for nodes, pods in _SMALLER)


def prepared(workload: Workload, nodes: int, pods: int) -> PreparedCluster:
    first = min(pods, workload.in_flight or pods)
    backlog = itertools.chain(workload.before(nodes, pods), map(workload.pod, range(first)))
    return PreparedCluster(nodes, backlog, workload.others(nodes, pods))


def run(cases: Sequence[tuple[Workload, int, int]], repetitions: int, lines: ResultLines[Drain]) -> list[Drain]:
    for workload, nodes, pods in cases:
        with prepared(workload, nodes, pods) as cluster:
            lines.complete(
                (
                    (
                        (workload.name, nodes, pods, scheduler, repetition),
                        partial(drain, cluster, workload, scheduler, (nodes, pods, repetition)),
                    )
                    for repetition, scheduler in itertools.product(range(1, repetitions + 1), (BAYPLAN, KUBE_SCHEDULER))
                ),
                lambda each: (each.workload, each.nodes, each.pods, each.scheduler, each.repetition),
                lambda each: (
                    f"{each.workload} {each.nodes} #{each.repetition} {each.scheduler}: {each.rate:.0f} pods/s, "
                    f"{each.cpu_ms_per_pod:.2f} CPU ms/pod {'; '.join(each.wrong)}"
                ),
            )
    return lines.read()


def main() -> None:
    parser = command_line(__doc__, nodes=5000, pods=5000, repetitions=5)
    parser.add_argument(
        "--only", help="workloads with commas: " + ", ".join(each.name for each in (*WORKLOADS, *_WITH_DEVICES))
    )
    parser.add_argument("--devices", action="store_true", help="only the workloads with devices")
    parser.add_argument("--quick", action="store_true", help="one repetition of 1,000 pods on 1,000 nodes")
    parser.add_argument("--profile", type=Path, help="run Bayplan once, and write a profile by cProfile to this file")
    parser.add_argument("--chart", type=Path, help="file for a chart of the ratios, SVG")
    add_output(parser, "end-to-end.jsonl", show=True)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.nodes, arguments.pods, arguments.repetitions = 1000, 1000, 1
    if arguments.profile is not None:
        workload, nodes, pods = next(_cases(arguments))
        with prepared(workload, nodes, pods) as cluster:
            drain(cluster, workload, BAYPLAN, (nodes, pods, 1), arguments.profile)
        return
    lines = ResultLines(arguments.show or arguments.results, Drain)
    drains = run(list(_cases(arguments)), arguments.repetitions, lines) if arguments.show is None else lines.read()
    if arguments.chart is not None:
        draw_ratios(chart(drains)).write(arguments.chart)
    report(arguments.output, {"compared": summary(drains), "drains": drains}, lambda: show(drains))
    wrong = [f"{each.workload}, {each.scheduler}: {text}" for each in drains for text in each.wrong] + without_events(
        drains
    )
    if wrong:
        sys.exit(f"invalid result: {'; '.join(wrong[:10])}")


if __name__ == "__main__":
    main()
