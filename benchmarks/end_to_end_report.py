"""Prints results of end-to-end measurements: medians, spread and ratios, as a table, as JSON and as a chart."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end_drain import Drain
from benchmarks.ratio_chart import Column, Ratio, RatioChart
from benchmarks.workloads import WORKLOADS
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

_TABLE_WIDTH = 160
_SERVERS = ("kube-apiserver", "etcd", "kube-controller-manager")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Medians of one workload for Bayplan and kube-scheduler."""

    workload: str
    nodes: int
    pods: int
    own: Sequence[Drain]
    other: Sequence[Drain]

    def medians(self, of: Callable[[Drain], float]) -> tuple[float, float]:
        """Return Bayplan's median and kube-scheduler's."""
        return statistics.median(map(of, self.own)), statistics.median(map(of, self.other))

    def ratio(self, of: Callable[[Drain], float]) -> float:
        """Return the ratio of Bayplan's median to kube-scheduler's."""
        own, other = self.medians(of)
        return own / other if other else 0.0


def compared(drains: Sequence[Drain]) -> list[Comparison]:
    """Return the workloads with results of both schedulers, in the order of the runs."""
    found = []
    for key in dict.fromkeys((each.workload, each.nodes, each.pods) for each in drains):
        sides = [
            [each for each in drains if (each.workload, each.nodes, each.pods, each.scheduler) == (*key, scheduler)]
            for scheduler in (BAYPLAN, KUBE_SCHEDULER)
        ]
        if all(sides):
            found.append(Comparison(*key, *sides))
    return found


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
        counted = [_cell(each, of, form) for form, of in COUNTED.values()]
        events = "as many" if not without_events([*each.own, *each.other]) else "not as many"
        runs = f"{len(each.own)} / {len(each.other)}"
        rates.add_row(
            each.workload, f"{each.nodes:,}", f"{each.pods:,}", *counted[:2], _spreads(each, _RATE, ".0f"), events, runs
        )
        costs.add_row(each.workload, f"{each.nodes:,}", f"{each.pods:,}", *counted[2:], _spreads(each, _CPU, ".2f"))
    console = Console(width=_TABLE_WIDTH)
    console.print(rates)
    console.print(costs)
    if any(one.busy for one in drains):
        console.print(_load_table(found))
    for sentence in without_events(drains):
        console.print(sentence, highlight=False, soft_wrap=True)


def _table(of: str, columns: Sequence[str]) -> Table:
    table = Table(title=f"Bayplan / kube-scheduler = ratio, medians: {of}")
    table.add_column("workload")
    for column in ("nodes", "pods", *columns):
        table.add_column(column, justify="right")
    return table


def _load_table(found: Sequence[Comparison]) -> Table:
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
        table.add_row(each.workload, f"{each.nodes:,}", f"{each.pods:,}", *cells, f"{busy[0]:.2f} / {busy[1]:.2f}")
    return table


def summary(drains: Sequence[Drain]) -> list[dict[str, Any]]:
    """Return the JSON document: for each number both medians, both spreads and the ratio."""
    return [
        {
            "workload": each.workload,
            "nodes": each.nodes,
            "pods": each.pods,
            "repetitions": [len(each.own), len(each.other)],
            "counted": {
                name: {
                    "medians": each.medians(of),
                    "lowest": [min(map(of, side)) for side in (each.own, each.other)],
                    "highest": [max(map(of, side)) for side in (each.own, each.other)],
                    "ratio": each.ratio(of),
                }
                for name, (_, of) in COUNTED.items()
            },
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


def _cell(each: Comparison, of: Callable[[Drain], float], form: str) -> str:
    own, other = each.medians(of)
    return f"{own:{form}} / {other:{form}} = {each.ratio(of):.2f}x"


def _spreads(each: Comparison, of: Callable[[Drain], float], form: str) -> str:
    spreads = [f"{min(map(of, side)):{form}}-{max(map(of, side)):{form}}" for side in (each.own, each.other)]
    return " / ".join(spreads)


def chart(drains: Sequence[Drain]) -> RatioChart:
    """Return the chart of rates and CPU as ratios, workload by workload, the larger clusters first."""
    found = compared(drains)
    rows: list[tuple[str, Sequence[Ratio]]] = []
    for nodes in sorted({each.nodes for each in found}, reverse=True):
        rows.append((f"{nodes:,} nodes", ()))
        rows += [(_name(each), _ratios(each)) for each in found if each.nodes == nodes]
    counts = sorted({len(side) for each in found for side in (each.own, each.other)}) or [0]
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


def _name(each: Comparison) -> str:
    return {known.name: known.description for known in WORKLOADS}.get(each.workload, each.workload)


def _ratios(each: Comparison) -> tuple[Ratio, Ratio]:
    rates, costs = each.medians(_RATE), each.medians(_CPU)
    return (
        Ratio(each.ratio(_RATE), f"{rates[0]:,.0f} / {rates[1]:,.0f} pods/s", each.ratio(_TOLD)),
        Ratio(each.ratio(_CPU), f"{costs[0]:.2f} / {costs[1]:.2f} ms", each.ratio(_LATER)),
    )
