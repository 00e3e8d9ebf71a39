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
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bayplan.kube.http.connection import ApiRequest
from rich.console import Console

from benchmarks.audit_times import AuditTimes
from benchmarks.harness import Comparison, ResultLines, add_output, command_line, compared, percentile, report, table
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.workloads import PODS_PATH, SCHEDULER_NAME, WORKLOADS, encoded
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


COUNTED: Mapping[str, tuple[str, Callable[[Latency], float]]] = {
    "p50 ms": (".2f", lambda one: one.p50_ms),
    "p99 ms": (".2f", lambda one: one.p99_ms),
    "CPU ms/pod": (".2f", lambda one: one.cpu_ms_per_pod),
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


def run(arguments: argparse.Namespace) -> list[Latency]:
    rates = [int(text) for text in arguments.rates.split(",")]
    with PreparedCluster(arguments.nodes, ()) as cluster:
        turns = [
            ((*load, scheduler, repetition), partial(measure, cluster, scheduler, load, repetition))
            for rate, repetition in itertools.product(rates, range(1, arguments.repetitions + 1))
            for load in [(arguments.nodes, rate, int(rate * arguments.seconds))]
            for scheduler in (BAYPLAN, KUBE_SCHEDULER)
        ]
        return ResultLines(arguments.results, Latency).complete(
            turns,
            lambda each: (each.nodes, each.rate, each.pods, each.scheduler, each.repetition),
            lambda each: (
                f"{each.scheduler} {each.rate}/s #{each.repetition}: p50 {each.p50_ms:.1f} ms, p99 {each.p99_ms:.1f} ms"
            ),
        )


def by_rate(results: Sequence[Latency]) -> list[Comparison[Latency]]:
    return compared(results, lambda each: (each.nodes, each.rate), lambda each: each.scheduler)


def summary(results: Sequence[Latency]) -> list[dict[str, Any]]:
    return [
        {
            "nodes": each.key[0],
            "rate": each.key[1],
            "repetitions": each.repetitions,
            "counted": each.counted(COUNTED),
        }
        for each in by_rate(results)
    ]


def show(results: Sequence[Latency]) -> None:
    made = table(
        "Latency from creation to bind: Bayplan / kube-scheduler = ratio, medians",
        (),
        ("nodes", "pods/s", *COUNTED, "spread of p99 ms", "n"),
    )
    for each in by_rate(results):
        cells = [each.cell(of, form) for form, of in COUNTED.values()]
        runs = " / ".join(map(str, each.repetitions))
        made.add_row(f"{each.key[0]:,}", f"{each.key[1]}", *cells, each.spreads(COUNTED["p99 ms"][1], ".1f"), runs)
    Console(width=_TABLE_WIDTH).print(made)


def main() -> None:
    parser = command_line(__doc__, nodes=5000, seconds=20.0, repetitions=3)
    parser.add_argument("--rates", default="50,200")
    add_output(parser, "latency.jsonl", show=True)
    arguments = parser.parse_args()
    results = run(arguments) if arguments.show is None else ResultLines(arguments.show, Latency).read()
    report(arguments.output, {"compared": summary(results), "runs": results}, lambda: show(results))


if __name__ == "__main__":
    main()
