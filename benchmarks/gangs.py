"""Measure Bayplan and kube-scheduler with a backlog of gangs on the same machine.

    python -m benchmarks.gangs                                      # 1,000, 2,000 and 3,000 gangs of 3 on 5,000 nodes
    python -m benchmarks.gangs --gangs 300 --nodes 20               # too few nodes: some gangs are not bound, and none
    in part python -m benchmarks.gangs --live --gangs 1000                  # pods are created while the scheduler runs
    python -m benchmarks.gangs --quick

The workload is that of scheduler_perf (``gangs_drain``), with PodGroups of the native API for both schedulers. Each
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
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich import box

from benchmarks.gangs_drain import GangBacklog, GangDrain, drain
from benchmarks.harness import ResultLines, add_output, command_line, grouped, report, table, wide_console
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

PUBLISHED_GANGS, PUBLISHED_SIZE, PUBLISHED_NODES = (1000, 2000, 3000), 3, 5000


COUNTED: Mapping[str, tuple[str, Callable[[GangDrain], float]]] = {
    "pods/s": (".0f", lambda one: one.rate),
    "CPU ms/pod": (".2f", lambda one: one.cpu_ms_per_pod),
    "after the first bind": (".2f", lambda one: one.later_cpu_ms_per_pod),
    "attempts": (".0f", lambda one: one.attempts),
    "attempt ms": (".2f", lambda one: _or_nan(one.attempt_ms)),
    "search ms": (".2f", lambda one: _or_nan(one.algorithm_ms)),
    "peak MiB": (".0f", lambda one: one.peak_rss_mib),
    "in part ms": (".0f", lambda one: one.longest_partial_ms),
}
"""Reported numbers, in the order of the table; "after the first bind" refers to CPU ms/pod."""
_COMPARED = {
    "pods/s": "the rate",
    "CPU ms/pod": "the CPU",
    "after the first bind": "the CPU after the first bind",
    "attempt ms": "the time of an attempt",
    "peak MiB": "the memory",
}


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def summary(drains: Sequence[GangDrain]) -> list[dict[str, Any]]:
    found = []
    for (backlog, live), runs in grouped(drains, lambda each: (each.backlog, each.live)).items():
        sides = grouped(runs, lambda each: each.scheduler)
        medians = {
            scheduler: {name: statistics.median(map(of, own)) for name, (_, of) in COUNTED.items()}
            for scheduler, own in sides.items()
        }
        ratios = {}
        if len(medians) == 2:
            ours, theirs = medians[BAYPLAN], medians[KUBE_SCHEDULER]
            ratios = {name: ours[name] / theirs[name] if theirs[name] else 0.0 for name in _COMPARED}
        found.append(
            {
                "backlog": backlog,
                "live": live,
                "bound": {scheduler: min(each.bound for each in own) for scheduler, own in sides.items()},
                "medians": medians,
                "rates": {scheduler: [each.rate for each in own] for scheduler, own in sides.items()},
                "ratios": ratios,
            }
        )
    return found


def show(drains: Sequence[GangDrain]) -> None:
    """Print medians, and ratios below them.

    An attempt is that of a whole gang, and includes the search for nodes. A gang is bound in part from its first bind
    to its last.
    """
    made = table(
        "Gangs, medians",
        (),
        ("gangs", "of", "nodes", "scheduler", "bound", *COUNTED, "spread of pods/s", "n"),
        box=box.SIMPLE,
        pad_edge=False,
    )
    ratios = []
    for each in summary(drains):
        backlog = each["backlog"]
        of = f"{backlog.gangs} gangs" + (", live" if each["live"] else "")
        for scheduler, medians in each["medians"].items():
            rates = each["rates"][scheduler]
            made.add_row(
                str(backlog.gangs), str(backlog.size), str(backlog.nodes), scheduler, str(each["bound"][scheduler]),
                *(f"{medians[name]:{form}}" for name, (form, _) in COUNTED.items()),
                f"{min(rates):.0f}-{max(rates):.0f}", str(len(rates)),
            )  # fmt: skip
        if each["ratios"]:
            ratio_text = ", ".join(f"{each['ratios'][name]:.2f} x {words}" for name, words in _COMPARED.items())
            ratios.append(f"{of}, {BAYPLAN} / {KUBE_SCHEDULER}: {ratio_text}")
    console = wide_console(140)
    console.print(made)
    for line in ratios:
        console.print(line, highlight=False, soft_wrap=True)


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line(__doc__, repetitions=1)
    parser.add_argument("--gangs", type=int, nargs="+", help="numbers of gangs, one run for each number")
    parser.add_argument("--size", type=int, default=PUBLISHED_SIZE, help="members of a gang")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--only", choices=(BAYPLAN, KUBE_SCHEDULER))
    parser.add_argument("--live", action="store_true", help="create the pods while the scheduler runs")
    parser.add_argument("--quick", action="store_true", help="100 gangs on 100 nodes, for a quick test")
    parser.add_argument("--profile", type=Path, help="run Bayplan once, and write a profile by cProfile to this file")
    add_output(parser, "")
    arguments = parser.parse_args(argv)
    arguments.gangs = arguments.gangs or ([100] if arguments.quick else list(PUBLISHED_GANGS))
    arguments.nodes = arguments.nodes or (100 if arguments.quick else PUBLISHED_NODES)
    if arguments.profile is not None:
        arguments.only, arguments.repetitions, arguments.gangs = BAYPLAN, 1, arguments.gangs[:1]
        arguments.results = None
    return arguments


def run(arguments: argparse.Namespace) -> list[GangDrain]:
    schedulers = [arguments.only] if arguments.only else [BAYPLAN, KUBE_SCHEDULER]
    repetitions = range(1, arguments.repetitions + 1)
    turns = []
    for repetition, gangs, scheduler in itertools.product(repetitions, arguments.gangs, schedulers):
        backlog = GangBacklog(arguments.nodes, gangs, arguments.size)
        measure = partial(drain, scheduler, backlog, repetition, live=arguments.live, profile_to=arguments.profile)
        turns.append(((scheduler, backlog, arguments.live, repetition), measure))
    return ResultLines(arguments.results, GangDrain).complete(
        turns,
        lambda each: (each.scheduler, each.backlog, each.live, each.repetition),
        lambda each: f"{each.repetition}: {each.backlog.gangs} gangs, {each.scheduler} {each.rate:.0f} pods/s",
    )


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
    drains = run(arguments)
    report(arguments.output, {"compared": summary(drains), "drains": drains}, lambda: show(drains))
    broken = wrong(drains)
    if broken:
        sys.exit(f"invalid result: {'; '.join(broken)}")


if __name__ == "__main__":
    main()
