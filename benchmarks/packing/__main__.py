"""Replays the arrivals of a GPU trace, and reports allocated and fragmented GPUs by profile.

    python -m benchmarks.packing FOLDER                        # all profiles, five samples: some minutes
    python -m benchmarks.packing FOLDER --profiles Fragmentation,BestFit --draws 1
    python -m benchmarks.packing FOLDER --pods openb_pod_list_gpuspec33.csv
    python -m benchmarks.packing FOLDER --arrivals trace       # every pod once, in the order of creation
    python -m benchmarks.packing FOLDER --results runs.jsonl   # continues an interrupted run

FOLDER has the CSV files of Alibaba's cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata). Pods are sampled from
the trace with replacement until they request as many GPUs as the nodes have, and none ends. They are scheduled by the
core in memory, as by `bayplan simulate`. Times are CPU times. The program exits with status 2 if the trace cannot be
read.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bayplan_example_plugins.gpu_shares import GpuShares
from bayplan_example_plugins.gpu_shares.args import GpuSharesArgs, Policy, TypicalPod
from rich import box

from benchmarks.harness import (
    ResultLines,
    UnreadableResultsError,
    add_output,
    command_line,
    grouped,
    report,
    table,
    wide_console,
)
from benchmarks.packing.replay import Outcome, Replay, replay
from benchmarks.packing.trace import (
    NODES_FILE,
    PODS_FILE,
    Trace,
    TraceError,
    TracePod,
    in_order,
    read_trace,
    sampled,
    typical_pods,
)

_DRAWN, _IN_ORDER = "drawn", "trace"

PUBLISHED = {
    Policy.RANDOM.value: 86.3,
    Policy.DOT_PRODUCT.value: 90.6,
    Policy.CLUSTERING.value: 91.7,
    Policy.PACKING.value: 91.8,
    Policy.BEST_FIT.value: 92.9,
    Policy.FRAGMENTATION.value: 95.2,
}
"""Allocated GPUs in percent by policy: Weng et al. (USENIX ATC 2023), default trace, 100 % arrived load."""

_SPREAD, _MOST_ALLOCATED = "default", "most-allocated"
PROFILES = (_SPREAD, _MOST_ALLOCATED, *PUBLISHED)


def profile(name: str, expected: Sequence[TypicalPod]) -> Mapping[str, Any]:
    """Return the spec of a SchedulerProfile.

    Args:
        name: One of :data:`PROFILES`.

    Returns:
        ``default``: the default scores of Bayplan. ``most-allocated``: NodeResourcesFit alone, MostAllocated over CPU,
        memory and GPUs. In both, GpuShares filters and assigns GPUs. Else the score of GpuShares alone.
    """
    policy = Policy.UNSCORED if name in (_SPREAD, _MOST_ALLOCATED) else Policy(name)
    args = GpuSharesArgs(policy=policy, workload=tuple(expected) if policy is Policy.FRAGMENTATION else ())
    plugins: dict[str, Any] = {"multiPoint": {"enabled": [{"name": GpuShares.name}]}}
    configs = [{"name": GpuShares.name, "args": args.document()}]
    if name == _MOST_ALLOCATED:
        resources = [{"name": each, "weight": 1} for each in ("cpu", "memory", args.resource)]
        strategy = {"type": "MostAllocated", "resources": resources}
        configs.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}})
    if name != _SPREAD:
        scored = "NodeResourcesFit" if name == _MOST_ALLOCATED else GpuShares.name
        plugins["score"] = {"enabled": [{"name": scored}], "disabled": [{"name": "*"}]}
    return {"plugins": plugins, "pluginConfig": configs}


def summary(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return means over the samples of each profile, the most allocated first."""
    found = []
    for name, own in grouped(outcomes, lambda each: each.profile).items():

        def mean(of: Callable[[Outcome], float], own: Sequence[Outcome] = own) -> float:
            return statistics.fmean(map(of, own))

        allocated = [each.allocated_percent for each in own]
        found.append(
            {
                "profile": name,
                "draws": len(own),
                "allocated_percent": statistics.fmean(allocated),
                "lowest_percent": min(allocated),
                "highest_percent": max(allocated),
                "free_gpus": mean(lambda one: one.capacity_gpus - one.allocated_gpus),
                "fragmented_gpus": mean(lambda one: one.fragmented_gpus),
                "arrived": mean(lambda one: one.arrived),
                "pending": mean(lambda one: one.pending),
                "pending_gpus": mean(lambda one: one.arrived_gpus - one.allocated_gpus),
                "decided_us": mean(lambda one: one.decided_us),
                "bound_us": mean(lambda one: one.bound_us),
            }
        )
    return sorted(found, key=lambda row: -row["allocated_percent"])


def show(outcomes: Sequence[Outcome], *, compare: bool) -> None:
    """Print the table; ``compare`` adds the published figures."""
    columns = ["allocated %", "range", *(["published"] if compare else [])]
    columns += ["GPUs free", "fragments", "pods pending", "GPUs pending", "µs to decide", "µs to bind"]
    made = table("", ["profile"], columns, box=box.SIMPLE_HEAD)
    for row in summary(outcomes):
        published = PUBLISHED.get(row["profile"])
        cells = [f"{row['allocated_percent']:.1f}", f"{row['lowest_percent']:.1f}-{row['highest_percent']:.1f}"]
        if compare:
            cells.append("" if published is None else f"{published:.1f}")
        cells += [f"{row['free_gpus']:.0f}", f"{row['fragmented_gpus']:.0f}", f"{row['pending']:.0f}"]
        cells += [f"{row['pending_gpus']:.0f}", f"{row['decided_us']:.0f}", f"{row['bound_us']:.0f}"]
        made.add_row(row["profile"], *cells)
    console = wide_console(140)
    console.print(made)
    console.print(
        f"{outcomes[0].capacity_gpus:.0f} GPUs. Fragments: expected fragmentation of the free GPUs, in GPUs. "
        "Means over samples of arrivals, which are the same for each profile."
    )


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("folder", type=Path, help="Folder with the CSV files of the trace.")
    parser.add_argument("--nodes", default=NODES_FILE, help="File of nodes in the folder.")
    parser.add_argument("--pods", default=PODS_FILE, help="File of pods in the folder.")
    parser.add_argument("--profiles", default=",".join(PROFILES), help="Profiles with commas: " + ", ".join(PROFILES))
    parser.add_argument("--draws", type=int, default=5, help="Number of samples of arrivals; results are their means.")
    parser.add_argument("--first", type=int, default=0, help="Seed of the first sample.")
    parser.add_argument("--load", type=float, default=100.0, help="GPUs that arriving pods request, %% of all GPUs.")
    parser.add_argument("--arrivals", choices=(_DRAWN, _IN_ORDER), default=_DRAWN, help="Order of the arrivals.")
    add_output(parser, "")
    arguments = parser.parse_args(argv)
    arguments.profiles = arguments.profiles.split(",")
    unknown = [name for name in arguments.profiles if name not in PROFILES]
    if unknown:
        parser.error(f'--profiles: unknown profile "{unknown[0]}"; known profiles: {", ".join(PROFILES)}')
    if arguments.draws < 1:
        parser.error(f"--draws: {arguments.draws}: must be at least 1")
    if not 0 < arguments.load <= 1000:
        parser.error(f"--load: {arguments.load:g}: must be more than 0 and at most 1000")
    return arguments


def arrivals_of(trace: Trace, arguments: argparse.Namespace, seed: int) -> list[TracePod]:
    load = arguments.load / 100
    return in_order(trace, load) if arguments.arrivals == _IN_ORDER else sampled(trace, seed, load)


def run(trace: Trace, arguments: argparse.Namespace) -> list[Outcome]:
    """Run the replays that are not stored yet; return the outcomes of the requested profiles and arrivals."""
    expected = typical_pods(trace.pods)
    turns = []
    for seed in range(arguments.first, arguments.first + arguments.draws):
        given = Replay(trace.nodes, arrivals_of(trace, arguments, seed), expected, seed)
        turns += [
            ((name, given.digest), partial(replay, name, profile(name, expected), given)) for name in arguments.profiles
        ]
    outcomes = ResultLines(arguments.results, Outcome).complete(
        turns,
        lambda each: (each.profile, each.given),
        lambda each: f"{each.profile}, draw {each.seed}: {each.allocated_percent:.1f} % allocated",
    )
    by_turn = {(each.profile, each.given): each for each in outcomes}
    return [by_turn[turn] for turn, _ in turns]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = arguments_of(argv)
    # Each infeasible pod would log a warning.
    logging.disable(logging.WARNING)
    try:
        trace = read_trace(arguments.folder, arguments.nodes, arguments.pods)
        outcomes = run(trace, arguments)
    except (TraceError, UnreadableResultsError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    finally:
        logging.disable(logging.NOTSET)
    is_published = (arguments.pods, arguments.arrivals, arguments.load) == (PODS_FILE, _DRAWN, 100.0)
    document = {"outcomes": outcomes, "summary": summary(outcomes)}
    report(arguments.output, document, lambda: show(outcomes, compare=is_published))
    return 0


if __name__ == "__main__":
    sys.exit(main())
