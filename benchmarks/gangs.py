"""A backlog of gangs bound by Bayplan and by kube-scheduler, side by side on the same machine.

    python -m benchmarks.gangs                                      # 1,000, 2,000 and 3,000 gangs of 3 on 5,000 nodes
    python -m benchmarks.gangs --gangs 300 --nodes 20               # too few nodes: gangs are left, but none in part
    python -m benchmarks.gangs --live --gangs 1000                  # pods are created while the scheduler runs
    python -m benchmarks.gangs --quick

The workload is scheduler_perf's (``gangs_workload``), with PodGroups of the native API, the same for both. Each drain
has a fresh control plane that serves that API, with nodes, groups and pods created before the scheduler starts, or with
`--live` the pods after it, as scheduler_perf does; kube-scheduler has its gates for gangs on.
Rates are counted from the API server's audit log, from the first binding to the last; CPU and memory are the scheduler
process's own, CPU once with its start and once from the first bindings on; the time of an attempt comes from the metric
by which scheduler_perf judges this workload. After each drain no gang may have some of its members on
nodes and not all. Clients are not limited in either; everything else is at its defaults. What can be compared is the
ratio within one run: an absolute time says more about the machine. With `--results`, what was measured is kept line by
line, and what the file holds already is not run again.
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
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, nargs="+", help="how many gangs, one drain for each number")
    parser.add_argument("--size", type=int, default=PUBLISHED_SIZE, help="members of a gang")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--only", choices=(BAYPLAN, KUBE_SCHEDULER))
    parser.add_argument("--live", action="store_true", help="create the pods while the scheduler runs")
    parser.add_argument("--quick", action="store_true", help="100 gangs on 100 nodes, to see whether it works")
    parser.add_argument("--profile", type=Path, help="run Bayplan once under cProfile and write the profile there")
    parser.add_argument("--results", type=Path, help="keep results there as JSON lines, and take up what is there")
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
    """Run what is not known yet.

    Args:
        arguments: Of the command line.
        known: What was measured before.
        keep: Called with each new result.

    Returns:
        Both.
    """
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
    """Drains after which a gang was on nodes in part, or that bound pods without trying gangs; a sentence each."""
    sentences = [
        f"{each.scheduler}: only some members are on nodes of {', '.join(each.partial)}"
        for each in drains
        if each.partial
    ]
    sentences += [
        f"{each.scheduler}: {each.bound} pods were bound and no gang was tried; look whether PodGroups are served"
        for each in drains
        if each.bound and not each.attempts
    ]
    return sentences


def main() -> None:
    """Run the benchmark."""
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
        sys.exit(f"found wrong after a drain: {'; '.join(broken)}")


if __name__ == "__main__":
    main()
