"""Prints results of end-to-end measurements: medians, spread and ratios, as a table, as JSON and as a chart."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.charts import Column, Ratio, RatioChart
from benchmarks.end_to_end_drain import Drain
from benchmarks.harness import Comparison
from benchmarks.workloads import WORKLOADS

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
