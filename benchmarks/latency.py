"""How long a pod waits for its node at a steady rate, for both schedulers.

    make bench-latency
    python -m benchmarks.latency --nodes 5000 --rates 50,200 --seconds 30
    python -m benchmarks.latency --show build/benchmarks/latency.jsonl

Pods come at an even pace to a cluster whose scheduler runs already. Their time is from when the API server has created
one to when it has taken its binding, both from the audit log. Ratios within one run are what can be compared. Results
are kept line by line, and what a file of results holds already is not run again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from bayplan.kube.http.connection import ApiRequest
from rich.console import Console
from rich.table import Table

from benchmarks.audit_times import AuditTimes
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.result_lines import DEFAULT_FOLDER, ResultLines
from benchmarks.workload import PODS_PATH, SCHEDULER_NAME, encoded
from benchmarks.workloads import WORKLOADS
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_scheduler

_WARM_PODS = 50
_LIMIT_SECONDS = 60.0
_TABLE_WIDTH = 140


@dataclass(frozen=True, slots=True)
class Latency:
    """One run at one rate.

    Attributes:
        scheduler: Which scheduler.
        rate: Pods a second that came.
        pods: Pods that were counted.
        p50_ms: Median of the times from created to bound, milliseconds.
        p99_ms: Of a hundred, one takes longer than this.
        cpu_ms_per_pod: CPU time of the scheduler process a pod while pods came, milliseconds.
        nodes: How many nodes.
        repetition: Which repetition, from 1.
    """

    scheduler: str
    rate: int
    pods: int
    p50_ms: float
    p99_ms: float
    cpu_ms_per_pod: float
    nodes: int
    repetition: int


COUNTED: Mapping[str, Callable[[Latency], float]] = {
    "p50 ms": lambda one: one.p50_ms,
    "p99 ms": lambda one: one.p99_ms,
    "CPU ms/pod": lambda one: one.cpu_ms_per_pod,
}
"""What is line, in the order of the table."""


async def _come(plane: ControlPlane, first: int, count: int, rate: float) -> None:
    """Create pods at an even pace, whatever the API server takes for each."""
    make = WORKLOADS[0].pod
    async with await connected(plane) as connection, asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            body = encoded(make(first + number))
            group.create_task(connection.request(ApiRequest("POST", PODS_PATH, body=body, timeout=60.0)))


def measure(cluster: PreparedCluster, scheduler: str, load: tuple[int, int, int], repetition: int) -> Latency:
    """Let pods come to one scheduler for a while.

    Args:
        cluster: Where to.
        scheduler: Which scheduler.
        load: Nodes that the cluster has, pods a second, and pods.
        repetition: Which repetition this is.

    Raises:
        TimeoutError: Not all of them were bound.
    """
    nodes, rate, count = load
    with cluster.started() as plane:
        process = start_scheduler(plane, scheduler, SCHEDULER_NAME)
        times = AuditTimes(plane.audit_log)
        asyncio.run(_come(plane, 0, _WARM_PODS, rate))
        times.wait_for_bound(_WARM_PODS, _LIMIT_SECONDS)
        cpu = process.cpu_seconds()
        asyncio.run(_come(plane, _WARM_PODS, count, rate))
        times.wait_for_bound(_WARM_PODS + count, _LIMIT_SECONDS)
        cpu = process.cpu_seconds() - cpu
        process.stop(grace=20.0)
    warm = set(list(times.created)[:_WARM_PODS])
    waits = sorted(1000 * (at - times.created[name]) for name, at in times.bound.items() if name not in warm)
    cpu_ms = 1000 * cpu / count
    return Latency(scheduler, rate, count, statistics.median(waits), percentile(waits, 0.99), cpu_ms, nodes, repetition)


def percentile(ascending: Sequence[float], share: float) -> float:
    """The lowest of these values which at least such a share of them does not exceed; there must be one."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def run(arguments: argparse.Namespace, results: ResultLines[Latency]) -> list[Latency]:
    """Run what is not in the file of results yet, and add it there."""
    known = results.read()
    done = {(each.nodes, each.rate, each.pods, each.scheduler, each.repetition) for each in known}
    rates = [int(text) for text in arguments.rates.split(",")]
    turns = [
        (scheduler, (arguments.nodes, rate, int(rate * arguments.seconds)), repetition)
        for rate, repetition in itertools.product(rates, range(1, arguments.repetitions + 1))
        for scheduler in (BAYPLAN, KUBE_SCHEDULER)
    ]
    turns = [turn for turn in turns if (*turn[1], turn[0], turn[2]) not in done]
    if not turns:
        return known
    with PreparedCluster(arguments.nodes, ()) as cluster:
        for turn in turns:
            result = measure(cluster, *turn)
            known.append(result)
            results.add(result)
            line = f"p50 {result.p50_ms:.1f} ms, p99 {result.p99_ms:.1f} ms"
            sys.stderr.write(f"{result.scheduler} {result.rate}/s #{result.repetition}: {line}\n")
    return known


def summary(results: Sequence[Latency]) -> list[dict[str, Any]]:
    """Medians, spread and ratio of each number, by nodes and rate, where there are runs of both schedulers."""
    found = []
    for nodes, rate in dict.fromkeys((each.nodes, each.rate) for each in results):
        sides = [
            [each for each in results if (each.nodes, each.rate, each.scheduler) == (nodes, rate, scheduler)]
            for scheduler in (BAYPLAN, KUBE_SCHEDULER)
        ]
        if all(sides):
            counted = {name: _counted(sides, of) for name, of in COUNTED.items()}
            runs = [len(side) for side in sides]
            found.append({"nodes": nodes, "rate": rate, "repetitions": runs, "counted": counted})
    return found


def _counted(sides: Sequence[Sequence[Latency]], of: Callable[[Latency], float]) -> dict[str, Any]:
    own, other = (statistics.median(map(of, side)) for side in sides)
    return {
        "medians": [own, other],
        "lowest": [min(map(of, side)) for side in sides],
        "highest": [max(map(of, side)) for side in sides],
        "ratio": own / other if other else 0.0,
    }


def show(results: Sequence[Latency]) -> None:
    """Print medians over repetitions, and how far these lie apart."""
    table = Table(title="From created to bound: Bayplan / kube-scheduler = ratio, medians")
    for column in ("nodes", "pods/s", *COUNTED, "spread of p99 ms", "n"):
        table.add_column(column, justify="right")
    for each in summary(results):
        cells = []
        for counted in each["counted"].values():
            own, other = counted["medians"]
            cells.append(f"{own:.2f} / {other:.2f} = {counted['ratio']:.2f}x")
        p99 = each["counted"]["p99 ms"]
        cells.append(
            " / ".join(f"{low:.1f}-{high:.1f}" for low, high in zip(p99["lowest"], p99["highest"], strict=True))
        )
        runs = " / ".join(map(str, each["repetitions"]))
        table.add_row(f"{each['nodes']:,}", f"{each['rate']}", *cells, runs)
    Console(width=_TABLE_WIDTH).print(table)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rates", default="50,200")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--results", type=Path, default=DEFAULT_FOLDER / "latency.jsonl", help="JSON lines, added to")
    parser.add_argument("--show", type=Path, help="run nothing, show this file of results")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    if arguments.show is not None:
        results = ResultLines(arguments.show, Latency).read()
    else:
        results = run(arguments, ResultLines(arguments.results, Latency))
    if arguments.output == "json":
        document = msgspec.json.encode({"compared": summary(results), "runs": results})
        print(msgspec.json.format(document, indent=2).decode())
    else:
        show(results)


if __name__ == "__main__":
    main()
