"""Measure Bayplan and kube-scheduler with a backlog of gangs on the same machine.

    python -m benchmarks.gangs                                      # 1,000, 2,000 and 3,000 gangs of 3 on 5,000 nodes
    python -m benchmarks.gangs --gangs 300 --nodes 20               # too few nodes: some gangs are not bound, and none
    in part python -m benchmarks.gangs --live --gangs 1000                  # pods are created while the scheduler runs
    python -m benchmarks.gangs --quick

The workload is that of scheduler_perf (``gangs_workload``), with PodGroups of the native API for both schedulers. Each
run has a new control plane that serves this API. Nodes, groups and pods are created before the scheduler starts; with
`--live` the pods are created after it, as in scheduler_perf. kube-scheduler runs with its gates for gangs. Rates are
computed from the API server's audit log, from the first binding to the last. CPU time and memory are those of the
scheduler process, CPU time with and without its start. The time of an attempt is the metric that scheduler_perf reports
for this workload. The benchmark fails if a part of a gang is bound at the end. Client rates are not limited; all other
settings have their defaults. Compare only ratios within one run: absolute times depend on the machine. With
`--results`, results are stored line by line, and stored ones are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.gangs_drain import GangDrain, drain
from benchmarks.gangs_report import show, summary
from benchmarks.gangs_workload import GangBacklog
from benchmarks.result_lines import ResultLines
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

PUBLISHED_GANGS, PUBLISHED_SIZE, PUBLISHED_NODES = (1000, 2000, 3000), 3, 5000


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, nargs="+", help="numbers of gangs, one run for each number")
    parser.add_argument("--size", type=int, default=PUBLISHED_SIZE, help="members of a gang")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--only", choices=(BAYPLAN, KUBE_SCHEDULER))
    parser.add_argument("--live", action="store_true", help="create the pods while the scheduler runs")
    parser.add_argument("--quick", action="store_true", help="100 gangs on 100 nodes, for a quick test")
    parser.add_argument("--profile", type=Path, help="run Bayplan once, and write a profile by cProfile to this file")
    parser.add_argument("--results", type=Path, help="file of JSON lines: store results, and reuse stored ones")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args(argv)
    arguments.gangs = arguments.gangs or ([100] if arguments.quick else list(PUBLISHED_GANGS))
    arguments.nodes = arguments.nodes or (100 if arguments.quick else PUBLISHED_NODES)
    if arguments.profile is not None:
        arguments.only, arguments.repetitions, arguments.gangs = BAYPLAN, 1, arguments.gangs[:1]
    return arguments


def run(
    arguments: argparse.Namespace, known: Sequence[GangDrain], keep: Callable[[GangDrain], None]
) -> list[GangDrain]:
    drains = list(known)
    done = {(each.scheduler, each.backlog, each.live, each.repetition) for each in known}
    schedulers = [arguments.only] if arguments.only else [BAYPLAN, KUBE_SCHEDULER]
    repetitions = range(1, arguments.repetitions + 1)
    for repetition, gangs, scheduler in itertools.product(repetitions, arguments.gangs, schedulers):
        backlog = GangBacklog(arguments.nodes, gangs, arguments.size)
        if (scheduler, backlog, arguments.live, repetition) not in done:
            result = drain(scheduler, backlog, repetition, live=arguments.live, profile_to=arguments.profile)
            drains.append(result)
            keep(result)
            sys.stderr.write(f"{repetition}: {gangs} gangs, {scheduler} {result.rate:.0f} pods/s\n")
    return drains


def wrong(drains: Sequence[GangDrain]) -> list[str]:
    """Return a message for each run with gangs that are bound in part, or without attempts of gangs."""
    sentences = [
        f"{each.scheduler}: only some members are on nodes of {', '.join(each.partial)}"
        for each in drains
        if each.partial
    ]
    sentences += [
        f"{each.scheduler}: {each.bound} pods were bound and no gang was attempted; check whether PodGroups are served"
        for each in drains
        if each.bound and not each.attempts
    ]
    return sentences


def main() -> None:
    arguments = arguments_of()
    if arguments.results is not None and arguments.profile is None:
        lines = ResultLines(arguments.results, GangDrain)
        drains = run(arguments, lines.read(), lines.add)
    else:
        drains = run(arguments, (), lambda _: None)
    if arguments.output == "json":
        document = msgspec.json.encode({"compared": summary(drains), "drains": drains})
        print(msgspec.json.format(document, indent=2).decode())
    else:
        show(drains)
    broken = wrong(drains)
    if broken:
        sys.exit(f"invalid result: {'; '.join(broken)}")


if __name__ == "__main__":
    main()
