"""Measure the cost of a shadow profile: Bayplan with and without a shadow on a real API server, alternating.

    make bench-shadow                                       # 1,000 nodes, 5,000 pods, three repetitions
    make bench-shadow QUICK=1
    python -m benchmarks.shadow --nodes 5000 --pods 5000 --budgets 10,100

Each run has a new control plane with the same nodes and the same backlog, as in `benchmarks.end_to_end`. The shadow
prefers full nodes, so nearly all of its decisions differ and are explained. All decisions are in its sample; the number
of compared decisions depends on its budget. Compare ratios within one run rather than absolute times.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import prepared
from benchmarks.end_to_end_drain import Drain, drain
from benchmarks.harness import DEFAULT_FOLDER, ResultLines, command_line, grouped
from benchmarks.workloads import SCHEDULER_NAME, WORKLOADS
from hack.controlplane.api_client import status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import BAYPLAN, install_crds, start_scheduler

_SHADOW = "bench-shadow"


class Result(msgspec.Struct, frozen=True):
    """Result of one backlog.

    Attributes:
        budget: Budget of the shadow in percent; 0 for no shadow.
        compared: Decisions that the shadow made.
        seconds: Time that the shadow used.
    """

    budget: int
    drain: Drain
    compared: int = 0
    seconds: float = 0.0


class _Shadowed:
    """Starts Bayplan with a shadow, and reads the results of the shadow."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.status: dict[str, object] = {}

    def start(self, plane: ControlPlane) -> Process:
        if self._budget:
            strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
            spec = {
                "shadowOf": SCHEDULER_NAME,
                "shadowBudgetPercent": self._budget,
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}],
            }
            kind = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": _SHADOW}}
            install_crds(plane)
            plane.kubectl("apply", "-f", "-", input=json.dumps({**kind, "spec": spec}))
        return start_scheduler(plane, BAYPLAN, SCHEDULER_NAME)

    def stopped(self, plane: ControlPlane) -> None:
        """Read the status, which is written in full when the process stops."""
        if self._budget:
            found = json.loads(plane.kubectl("get", "schedulerprofile", _SHADOW, "--output=json"))
            self.status = status_of(found).get("shadow", {})


def run(nodes: int, pods: int, budgets: Sequence[int], repetitions: int, results: ResultLines[Result]) -> list[Result]:
    workload, found = WORKLOADS[0], list[Result]()
    with prepared(workload, nodes, pods) as cluster:
        for repetition, budget in itertools.product(range(1, repetitions + 1), (0, *budgets)):
            shadowed = _Shadowed(budget)
            size = (nodes, pods, repetition)
            drained = drain(cluster, workload, BAYPLAN, size, start=shadowed.start, stopped=shadowed.stopped)
            status = shadowed.status
            result = Result(
                budget, drained, int(str(status.get("compared", 0))), float(str(status.get("seconds", 0.0)))
            )
            found.append(result)
            results.add(result)
            line = (
                f"{drained.rate:.0f} pods/s, {drained.later_cpu_ms_per_pod:.2f} CPU ms/pod, {result.compared} compared"
            )
            sys.stderr.write(f"budget {budget} % #{repetition}: {line} {'; '.join(drained.wrong)}\n")
    return found


def show(results: Sequence[Result]) -> None:
    table = Table("shadow", "pods/s", "CPU ms/pod", "compared", "shadow ms/decision", box=None)
    for budget, chosen in grouped(results, lambda each: each.budget).items():
        compared = sum(each.compared for each in chosen)
        each_ms = 1000 * sum(each.seconds for each in chosen) / compared if compared else 0.0
        table.add_row(
            f"budget {budget} %" if budget else "none",
            f"{statistics.median(each.drain.rate for each in chosen):.0f}",
            f"{statistics.median(each.drain.later_cpu_ms_per_pod for each in chosen):.2f}",
            f"{compared / sum(each.drain.pods for each in chosen):.0%}" if budget else "",
            f"{each_ms:.2f}" if budget else "",
        )
    Console().print(table)


def main() -> None:
    parser = command_line(__doc__, nodes=1000, pods=5000, repetitions=3)
    parser.add_argument("--budgets", default="10,100", help="budgets in percent, with commas")
    parser.add_argument("--quick", action="store_true", help="one repetition of 5,000 pods on 500 nodes")
    parser.add_argument("--results", type=Path, default=DEFAULT_FOLDER / "shadow.jsonl", help="results are added")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.nodes, arguments.pods, arguments.repetitions = 500, 5000, 1
    budgets = [int(each) for each in arguments.budgets.split(",")]
    lines = ResultLines(arguments.results, Result)
    show(run(arguments.nodes, arguments.pods, budgets, arguments.repetitions, lines))


if __name__ == "__main__":
    main()
