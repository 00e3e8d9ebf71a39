"""Measure the latency from the creation of a pod to its bind at a steady rate, for both schedulers.

    make bench-latency
    python -m benchmarks.latency --nodes 5000 --rates 50,200 --seconds 30
    python -m benchmarks.latency --show build/benchmarks/latency.jsonl

Pods are created at a constant rate in a cluster with a running scheduler. The latency of a pod is the time from its
creation to its binding, both from the audit log of the API server. Compare only ratios within one run. Results are
stored line by line, and stored ones are not measured again.
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
    """Result of one run at one rate.

    Attributes:
        p50_ms: Median of the times from created to bound, milliseconds.
        cpu_ms_per_pod: CPU time of the scheduler process per pod while pods were created, milliseconds.
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
"""Reported numbers, in the order of the table."""


async def _come(plane: ControlPlane, first: int, count: int, rate: float) -> None:
    """Create pods at a constant rate, independent of the response time of the API server."""
    make = WORKLOADS[0].pod
    async with await connected(plane) as connection, asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            body = encoded(make(first + number))
            group.create_task(connection.request(ApiRequest("POST", PODS_PATH, body=body, timeout=60.0)))


def measure(cluster: PreparedCluster, scheduler: str, load: tuple[int, int, int], repetition: int) -> Latency:
    """Create pods for one scheduler, and measure their latency.

    Args:
        load: Number of nodes, pods per second, and number of pods.

    Raises:
        TimeoutError: Not all pods were bound.
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
    """Return a percentile: the lowest value that at least this share of the values does not exceed."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def run(arguments: argparse.Namespace, results: ResultLines[Latency]) -> list[Latency]:
    """Run the measurements that are not in the file of results, and add their results."""
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
    """Return medians, spread and ratio of each number, by nodes and rate, if there are results of both schedulers."""
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
    """Print medians over repetitions, and their spread."""
    table = Table(title="Latency from creation to bind: Bayplan / kube-scheduler = ratio, medians")
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rates", default="50,200")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_FOLDER / "latency.jsonl", help="file of JSON lines; results are added"
    )
    parser.add_argument("--show", type=Path, help="show this file of results without a measurement")
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
