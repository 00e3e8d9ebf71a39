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
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.charts import draw_ratios
from benchmarks.device_steady import STEADY_DEVICE_WORKLOADS
from benchmarks.device_workloads import DEVICE_WORKLOADS
from benchmarks.end_to_end_drain import Drain, drain
from benchmarks.end_to_end_report import chart, show, summary, without_events
from benchmarks.harness import ResultLines, add_output, command_line, print_json
from benchmarks.prepared import PreparedCluster
from benchmarks.workloads import WORKLOADS, Workload
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

_WITH_DEVICES = (*DEVICE_WORKLOADS, *STEADY_DEVICE_WORKLOADS)
_SMALLER = ((100, 2000), (1000, 5000))
"""Additional sizes of the basic workload: nodes and pods."""


def _cases(arguments: argparse.Namespace) -> Iterator[tuple[Workload, int, int]]:
    names = None if arguments.only is None else arguments.only.split(",")
    default = _WITH_DEVICES if arguments.devices else WORKLOADS
    for workload in (*WORKLOADS, *_WITH_DEVICES):
        if workload in default if names is None else workload.name in names:
            pods = 1000 if workload.name == "preemption" else arguments.pods
            yield workload, arguments.nodes, min(pods, workload.at_most(arguments.nodes))
    if names is None and not arguments.devices:
        basic = WORKLOADS[0]
        yield from ((basic, nodes, min(pods, arguments.pods)) for nodes, pods in _SMALLER)


def _prepared(workload: Workload, nodes: int, pods: int) -> PreparedCluster:
    first = min(pods, workload.in_flight or pods)
    backlog = itertools.chain(workload.before(nodes, pods), map(workload.pod, range(first)))
    return PreparedCluster(nodes, backlog, workload.others(nodes, pods))


def run(cases: Sequence[tuple[Workload, int, int]], repetitions: int, lines: ResultLines[Drain]) -> list[Drain]:
    for workload, nodes, pods in cases:
        with _prepared(workload, nodes, pods) as cluster:
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
        with _prepared(workload, nodes, pods) as cluster:
            drain(cluster, workload, BAYPLAN, (nodes, pods, 1), arguments.profile)
        return
    if arguments.show is not None:
        drains = ResultLines(arguments.show, Drain).read()
    else:
        drains = run(list(_cases(arguments)), arguments.repetitions, ResultLines(arguments.results, Drain))
    if arguments.chart is not None:
        draw_ratios(chart(drains)).write(arguments.chart)
    if arguments.output == "json":
        print_json({"compared": summary(drains), "drains": drains})
    else:
        show(drains)
    wrong = [f"{each.workload}, {each.scheduler}: {text}" for each in drains for text in each.wrong] + without_events(
        drains
    )
    if wrong:
        sys.exit(f"invalid result: {'; '.join(wrong[:10])}")


if __name__ == "__main__":
    main()
