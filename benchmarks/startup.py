"""From the start of the process to the first bind in a cluster that is full already, and how long a takeover is.

    make bench-startup
    python -m benchmarks.startup --nodes 5000 --pods 50000 --repetitions 3

Both schedulers are started in turn on the same control plane, in which a few pods wait. Told are the time to the first
binding, the CPU time until then, and the largest resident set a while later. A takeover is two Bayplan processes with
the default times of leader election, of which the leader is killed: the time is from the kill to the first bind of the
other, while pods keep coming.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from bayplan.kube.connection import ApiRequest
from rich.console import Console
from rich.table import Table

from benchmarks.audit_times import AuditTimes
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.workload import PODS_PATH, SCHEDULER_NAME, Document, encoded, node
from benchmarks.workloads import WORKLOADS, placed
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_bayplan, start_scheduler

_WAITING_PODS = 20
_SETTLE_SECONDS = 5.0
_LIMIT_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Startup:
    """One start.

    Attributes:
        scheduler: Which scheduler.
        seconds: From the start of the process to the first binding.
        cpu_seconds: CPU time until a few seconds later.
        peak_rss_mib: Largest resident set until then.
    """

    scheduler: str
    seconds: float
    cpu_seconds: float
    peak_rss_mib: float


def _objects(nodes: int, pods: int) -> Iterator[Document]:
    for number in range(pods):
        yield placed(number, node(number % nodes)["metadata"]["name"], cpu_milli=10, memory_mib=10)
    for number in range(_WAITING_PODS):
        yield WORKLOADS[0].pod(number)


def measure(cluster: PreparedCluster, scheduler: str) -> Startup:
    """Start one scheduler.

    Raises:
        TimeoutError: It bound nothing.
    """
    with cluster.started() as plane:
        times = AuditTimes(plane.audit_log)
        process = start_scheduler(plane, scheduler, SCHEDULER_NAME)
        times.wait_for_bound(1, _LIMIT_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        result = Startup(
            scheduler,
            min(times.bound.values()) - _started_at(process),
            process.cpu_seconds(),
            process.peak_rss() / 2**20,
        )
        process.stop(grace=20.0)
    return result


def _started_at(process: Process) -> float:
    """When a process was started, seconds since 1970: what is applied before is no part of its start."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.record.started / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def takeover(cluster: PreparedCluster) -> float:
    """Kill the leader of two Bayplan processes; seconds until the other has bound a pod.

    Raises:
        TimeoutError: It has not.
    """
    with cluster.started() as plane:
        times = AuditTimes(plane.audit_log)
        leader = start_bayplan(plane, SCHEDULER_NAME, free_port(), flags=("--leader-elect",))
        times.wait_for_bound(_WAITING_PODS, _LIMIT_SECONDS)
        start_bayplan(plane, SCHEDULER_NAME, free_port(), flags=("--leader-elect",), program="bayplan-standby")
        killed_at = time.time()
        leader.kill()
        asyncio.run(_one_more(plane))
        times.wait_for_bound(_WAITING_PODS + 1, _LIMIT_SECONDS)
    return max(times.bound.values()) - killed_at


async def _one_more(plane: ControlPlane) -> None:
    body = encoded(WORKLOADS[0].pod(_WAITING_PODS))
    async with await connected(plane) as connection:
        await connection.request(ApiRequest("POST", PODS_PATH, body=body, timeout=60.0))


def show(starts: Sequence[Startup], takeovers: Sequence[float]) -> None:
    """Print medians."""
    table = Table(title="Started in a full cluster, medians (lowest to highest)")
    for column in ("scheduler", "to first bind, s", "CPU s", "peak MiB"):
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for scheduler in dict.fromkeys(each.scheduler for each in starts):
        own = [each for each in starts if each.scheduler == scheduler]
        seconds = [each.seconds for each in own]
        table.add_row(
            scheduler,
            f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})",
            f"{statistics.median(each.cpu_seconds for each in own):.1f}",
            f"{statistics.median(each.peak_rss_mib for each in own):.0f}",
        )
    console = Console()
    console.print(table)
    if takeovers:
        median = statistics.median(takeovers)
        console.print(f"takeover after SIGKILL: {median:.1f} s ({min(takeovers):.1f} to {max(takeovers):.1f})")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    starts: list[Startup] = []
    takeovers: list[float] = []
    with PreparedCluster(arguments.nodes, _objects(arguments.nodes, arguments.pods)) as cluster:
        for _ in range(arguments.repetitions):
            for scheduler in (BAYPLAN, KUBE_SCHEDULER):
                starts.append(measure(cluster, scheduler))
                sys.stderr.write(f"{scheduler}: {starts[-1].seconds:.1f} s to the first bind\n")
            takeovers.append(takeover(cluster))
            sys.stderr.write(f"takeover: {takeovers[-1]:.1f} s\n")
    if arguments.output == "json":
        print(json.dumps({"starts": [asdict(each) for each in starts], "takeovers": takeovers}, indent=2))
    else:
        show(starts, takeovers)


if __name__ == "__main__":
    main()
