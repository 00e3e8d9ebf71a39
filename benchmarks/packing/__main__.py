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
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.packing.arrivals import in_order, sampled, typical_pods
from benchmarks.packing.profiles import PROFILES, profile
from benchmarks.packing.replay import Outcome, Replay, replay
from benchmarks.packing.report import show, summary
from benchmarks.packing.trace import NODES_FILE, PODS_FILE, Trace, TraceError, TracePod, read_trace
from benchmarks.result_lines import ResultLines, UnreadableResultsError

_DRAWN, _IN_ORDER = "drawn", "trace"


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Folder with the CSV files of the trace.")
    parser.add_argument("--nodes", default=NODES_FILE, help="File of nodes in the folder.")
    parser.add_argument("--pods", default=PODS_FILE, help="File of pods in the folder.")
    parser.add_argument("--profiles", default=",".join(PROFILES), help="Profiles with commas: " + ", ".join(PROFILES))
    parser.add_argument("--draws", type=int, default=5, help="Number of samples of arrivals; results are their means.")
    parser.add_argument("--first", type=int, default=0, help="Seed of the first sample.")
    parser.add_argument("--load", type=float, default=100.0, help="GPUs that arriving pods request, % of all GPUs.")
    parser.add_argument("--arrivals", choices=(_DRAWN, _IN_ORDER), default=_DRAWN, help="Order of the arrivals.")
    parser.add_argument("--results", type=Path, help="File of JSON lines: store results, and reuse stored ones.")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
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
    """Return the pods that arrive."""
    load = arguments.load / 100
    return in_order(trace, load) if arguments.arrivals == _IN_ORDER else sampled(trace, seed, load)


def run(
    trace: Trace, arguments: argparse.Namespace, known: Sequence[Outcome], keep: Callable[[Outcome], None]
) -> list[Outcome]:
    """Run the replays that are not stored yet.

    Args:
        known: Outcomes of earlier runs; those of other nodes or arrivals are ignored.
    """
    expected = typical_pods(trace.pods)
    done = {(each.profile, each.given): each for each in known}
    outcomes = []
    for seed in range(arguments.first, arguments.first + arguments.draws):
        given = Replay(trace.nodes, arrivals_of(trace, arguments, seed), expected, seed)
        for name in arguments.profiles:
            outcome = done.get((name, given.digest))
            if outcome is None:
                outcome = replay(name, profile(name, expected), given)
                keep(outcome)
                sys.stderr.write(f"{name}, draw {seed}: {outcome.allocated_percent:.1f} % allocated\n")
            outcomes.append(outcome)
    return outcomes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    arguments = arguments_of(argv)
    # Each infeasible pod would log a warning.
    logging.disable(logging.WARNING)
    try:
        trace = read_trace(arguments.folder, arguments.nodes, arguments.pods)
        if arguments.results is None:
            outcomes = run(trace, arguments, (), lambda _: None)
        else:
            lines = ResultLines(arguments.results, Outcome)
            outcomes = run(trace, arguments, lines.read(), lines.add)
    except (TraceError, UnreadableResultsError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    finally:
        logging.disable(logging.NOTSET)
    if arguments.output == "json":
        document = msgspec.json.encode({"outcomes": outcomes, "summary": summary(outcomes)})
        print(msgspec.json.format(document, indent=2).decode())
    else:
        is_published = (arguments.pods, arguments.arrivals, arguments.load) == (PODS_FILE, _DRAWN, 100.0)
        show(outcomes, compare=is_published)
    return 0


if __name__ == "__main__":
    sys.exit(main())
