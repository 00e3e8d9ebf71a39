"""Measure the scheduler core alone, in memory: its speed, and how its cost grows with the cluster.

    make bench-core                                         # all workloads and sizes
    make bench-core QUICK=1
    python -m benchmarks.core --nodes 5000 --only basic,spread
    python -m benchmarks.core --nodes 1000,5000,5000+50000  # the last with 50,000 bound pods
    python -m benchmarks.core --nodes 5000 --only basic --profile basic.prof
    python -m benchmarks.core --show build/benchmarks/core.jsonl --chart docs/benchmarks/core.svg

Pods are received, scheduled, bound and confirmed as in the operator, by a simulated cluster that responds at once: no
request is sent and nothing is decoded. Pods per second include all of this except receiving, which is reported
separately. Times are CPU times; compare ratios within one run rather than absolute times. Times of extension points and
plugins come from the scheduler's own metrics, which are wall-clock times; plugins are timed in few cycles. `--results`
stores the results line by line and does not measure stored ones again.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import line_chart
from benchmarks.core_drain import Measured, Size, measure
from benchmarks.core_memory import Memory, in_own_process
from benchmarks.core_report import chart, show
from benchmarks.device_workloads import CORE_DEVICE_WORKLOADS, DEVICE_WORKLOADS
from benchmarks.result_lines import ResultLines
from benchmarks.workloads import WORKLOADS, Workload

_WITH_DEVICES = (*DEVICE_WORKLOADS, *CORE_DEVICE_WORKLOADS)

MOST_OCCUPIED = 40
"""Maximum number of bound pods per node at the start: workloads need room beside them."""
_PARTS_AT = 5000


def sizes(text: str, occupied: int = 0) -> list[tuple[int, int]]:
    """Read the sizes of a command line.

    Args:
        text: Numbers of nodes with commas, each optionally with ``+`` and the number of bound pods.

    Returns:
        Nodes and pods.

    Raises:
        ValueError: The text has another format, or the pods leave no room.
    """
    found = []
    for each in text.split(","):
        nodes, _, before = each.partition("+")
        size = int(nodes), int(before) if before else occupied
        if size[1] > MOST_OCCUPIED * size[0]:
            raise ValueError(f"{each}: at most {MOST_OCCUPIED} pods per node may be bound beforehand; use more nodes")
        found.append(size)
    return found


def _cases(arguments: argparse.Namespace) -> Iterator[tuple[Workload, Size]]:
    names = None if arguments.only is None else arguments.only.split(",")
    default = _WITH_DEVICES if arguments.devices else WORKLOADS
    for nodes, occupied in sizes(arguments.nodes, arguments.occupied):
        for workload in (*WORKLOADS, *_WITH_DEVICES):
            if workload in default if names is None else workload.name in names:
                pods = min(arguments.pods, workload.at_most(nodes))
                if workload.name == "preemption":
                    pods = min(pods, arguments.preempting)
                for repetition in range(1, arguments.repetitions + 1):
                    yield workload, Size(nodes, pods, occupied, repetition)


def run(
    planned: Iterator[tuple[Workload, Size]], known: Sequence[Measured], keep: Callable[[Measured], None]
) -> list[Measured]:
    results = list(known)
    done = {(each.workload, each.nodes, each.occupied, each.repetition) for each in known}
    for workload, size in planned:
        if (workload.name, size.nodes, size.occupied, size.repetition) not in done:
            result = asyncio.run(measure(workload, size))
            results.append(result)
            keep(result)
            sys.stderr.write(
                f"{workload.name}, {size.nodes} nodes, {size.occupied} pods beforehand, #{size.repetition}: "
                f"{result.rate:,.0f} pods/s\n"
            )
    return results


def _profiled(arguments: argparse.Namespace) -> list[Measured]:
    profiler = cProfile.Profile()
    results = [asyncio.run(measure(workload, size, profiler)) for workload, size in _cases(arguments)]
    profiler.dump_stats(arguments.profile)
    return results


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="100,1000,5000", help="sizes with commas: nodes, or nodes+pods beforehand")
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument(
        "--preempting", type=int, default=100, help="maximum number of preempting pods, which take long"
    )
    parser.add_argument("--occupied", type=int, default=0, help="bound pods at the start for sizes without a number")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--only", help="workloads with commas: " + ", ".join(each.name for each in (*WORKLOADS, *_WITH_DEVICES))
    )
    parser.add_argument("--devices", action="store_true", help="only the workloads with devices")
    parser.add_argument("--results", type=Path, help="file of JSON lines: store results, and reuse stored ones")
    parser.add_argument("--show", type=Path, help="show this file of results without a measurement")
    parser.add_argument("--profile", type=Path, help="file for a profile by cProfile")
    parser.add_argument("--memory", help="Sizes as for --nodes whose memory is measured, each in its own process")
    parser.add_argument("--chart", type=Path, help="file for a chart of pods/s by nodes, SVG")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


def main() -> None:
    arguments = arguments_of()
    # Preemptions on 50,000 nodes are slow cycles, whose log lines would be mixed with the results.
    logging.disable(logging.WARNING)
    memory: list[Memory] = []
    if arguments.profile is not None:
        results = _profiled(arguments)
    elif arguments.show is not None:
        results = ResultLines(arguments.show, Measured).read()
    elif arguments.results is not None:
        lines = ResultLines(arguments.results, Measured)
        results = run(_cases(arguments), lines.read(), lines.add)
    else:
        results = run(_cases(arguments), (), lambda _: None)
    if arguments.memory is not None:
        memory = [in_own_process(*size) for size in sizes(arguments.memory)]
    if arguments.chart is not None and results:
        line_chart.draw(chart(results)).write(arguments.chart)
    if arguments.output == "json":
        document = msgspec.json.encode({"measured": results, "memory": memory})
        print(msgspec.json.format(document, indent=2).decode())
    else:
        show(results, memory, _PARTS_AT)


if __name__ == "__main__":
    main()
