"""How long a pod waits for its node at a steady rate, for both schedulers.

    python -m benchmarks.latency --nodes 5000 --rates 50,200 --seconds 30

Pods come at an even pace to a cluster whose scheduler runs already. Their time is from when the API server has created
one to when it has taken its binding, both from the audit log. Ratios within one run are what can be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bayplan.kube.connection import ApiRequest
from rich.console import Console
from rich.table import Table

from benchmarks.audit_times import AuditTimes
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.workload import PODS_PATH, SCHEDULER_NAME, encoded
from benchmarks.workloads import WORKLOADS
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_scheduler

_WARM_PODS = 50
_LIMIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Latency:
    """One run at one rate.

    Attributes:
        scheduler: Which scheduler.
        rate: Pods a second that came.
        pods: Pods that were counted.
        p50_ms: Median of the times from created to bound, milliseconds.
        p99_ms: Of a hundred, one takes longer than this.
        cpu_ms_per_pod: CPU time of the scheduler process a pod, milliseconds.
    """

    scheduler: str
    rate: int
    pods: int
    p50_ms: float
    p99_ms: float
    cpu_ms_per_pod: float


async def _come(plane: ControlPlane, first: int, count: int, rate: float) -> None:
    """Create pods at an even pace, whatever the API server takes for each."""
    make = WORKLOADS[0].pod
    async with await connected(plane) as connection, asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            body = encoded(make(first + number))
            group.create_task(connection.request(ApiRequest("POST", PODS_PATH, body=body, timeout=60.0)))


def measure(cluster: PreparedCluster, scheduler: str, rate: int, seconds: float) -> Latency:
    """Let pods come to one scheduler for a while.

    Raises:
        TimeoutError: Not all of them were bound.
    """
    count = int(rate * seconds)
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
    names = list(times.bound)[_WARM_PODS:]
    waits = sorted(1000 * (times.bound[name] - times.created[name]) for name in names)
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    return Latency(scheduler, rate, count, statistics.median(waits), p99, 1000 * cpu / count)


def show(results: Sequence[Latency]) -> None:
    """Print medians over repetitions."""
    table = Table(title="From created to bound, medians of repetitions")
    for column in ("pods/s", "scheduler", "p50 ms", "p99 ms", "CPU ms/pod"):
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for rate, scheduler in dict.fromkeys((each.rate, each.scheduler) for each in results):
        own = [each for each in results if (each.rate, each.scheduler) == (rate, scheduler)]
        medians = (
            statistics.median(each.p50_ms for each in own),
            statistics.median(each.p99_ms for each in own),
            statistics.median(each.cpu_ms_per_pod for each in own),
        )
        table.add_row(f"{rate}", scheduler, f"{medians[0]:.1f}", f"{medians[1]:.1f}", f"{medians[2]:.2f}")
    Console().print(table)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rates", default="50,200")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    results: list[Latency] = []
    with PreparedCluster(arguments.nodes, ()) as cluster:
        for rate in (int(text) for text in arguments.rates.split(",")):
            for _ in range(arguments.repetitions):
                for scheduler in (BAYPLAN, KUBE_SCHEDULER):
                    result = measure(cluster, scheduler, rate, arguments.seconds)
                    results.append(result)
                    sys.stderr.write(f"{scheduler} {rate}/s: p50 {result.p50_ms:.1f} ms, p99 {result.p99_ms:.1f} ms\n")
    if arguments.output == "json":
        print(json.dumps([asdict(each) for each in results], indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
