"""A backlog bound by Bayplan and by kube-scheduler, side by side on the same machine.

    python -m benchmarks.drain --nodes 1000 --pods 5000 --repetitions 3

Each repetition gives either scheduler a fresh control plane with the same nodes and pods, created before it starts.
Rates are counted from the API server's audit log, from the first binding to the last; CPU is the scheduler process's
own. Clients are not limited in either; everything else is at its defaults. What can be compared is the ratio within one
run: an absolute time says more about the machine.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from bayplan.kube.cluster_access import open_connection
from bayplan.kube.connection import ApiConnection, ApiRequest, ConnectionOptions
from bayplan.kube.system_clock import SystemClock
from rich.console import Console
from rich.table import Table

from benchmarks import workload
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_bayplan, start_scheduler
from hack.controlplane.servers import Options

_LIMIT_SECONDS = 600.0
_POLL_SECONDS = 0.2
CREATORS = 24
"""Requests under way at once while objects are created."""


@dataclass(frozen=True, slots=True)
class Drain:
    """One backlog bound.

    Attributes:
        scheduler: Which scheduler.
        bound: Pods bound.
        seconds: From the first binding to the last.
        cpu_seconds: CPU time of the scheduler process, start and first lists included.
        peak_rss_mib: Its peak memory.
    """

    scheduler: str
    bound: int
    seconds: float
    cpu_seconds: float
    peak_rss_mib: float

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.bound / self.seconds

    @property
    def cpu_ms_per_pod(self) -> float:
        """CPU milliseconds a pod."""
        return 1000 * self.cpu_seconds / self.bound


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is to be bound."""

    nodes: int
    pods: int
    sizes: int
    seed: int


async def fill(plane: ControlPlane, backlog: Backlog) -> None:
    """Create the nodes and the pods."""
    options = ConnectionOptions(write_connections=CREATORS)
    connection = await open_connection(plane.kubeconfig, None, options, SystemClock())
    async with connection:
        generator = random.Random(backlog.seed)
        nodes = [workload.encoded(workload.node(number)) for number in range(backlog.nodes)]
        await create_all(connection, "/api/v1/nodes", nodes)
        pods = [
            workload.encoded(workload.pod(number, generator, sizes=backlog.sizes)) for number in range(backlog.pods)
        ]
        await create_all(connection, f"/api/v1/namespaces/{workload.NAMESPACE}/pods", pods)


async def create_all(connection: ApiConnection, path: str, bodies: Sequence[bytes]) -> None:
    """Create objects, many at a time.

    Args:
        connection: To the API server.
        path: Of their collection.
        bodies: The objects, in the order of their creation.
    """
    waiting = list(reversed(bodies))

    async def create() -> None:
        while waiting:
            await connection.request(ApiRequest("POST", path, body=waiting.pop(), timeout=60.0))

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(create())


class BindingLog:
    """Bindings in the audit log, read as it grows: to read it whole at each look would disturb what is measured.

    Attributes:
        times: When each was answered, seconds since 1970.
        names: Of the pods, in the same order.
    """

    def __init__(self, path: Path) -> None:
        self.times: list[float] = []
        self.names: list[str] = []
        self._path = path
        self._offset = 0

    def read(self) -> int:
        """Read on.

        Returns:
            How many bindings were answered with success so far.
        """
        with self._path.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])
        for line in lines[:-1]:
            if b'"subresource":"binding"' not in line:
                continue
            event = json.loads(line)
            if event["responseStatus"]["code"] == 201:
                self.names.append(event["objectRef"]["name"])
                self.times.append(datetime.fromisoformat(event["stageTimestamp"]).timestamp())
        return len(self.times)


def drain(scheduler: str, backlog: Backlog, profile_to: Path | None = None) -> Drain:
    """Bind one backlog on a fresh control plane."""
    with ControlPlane(Options(audit=True)) as plane:
        asyncio.run(fill(plane, backlog))
        if profile_to is None:
            process = start_scheduler(plane, scheduler, workload.SCHEDULER_NAME)
        else:
            process = start_bayplan(plane, workload.SCHEDULER_NAME, free_port(), profile_to)
        deadline = time.monotonic() + _LIMIT_SECONDS
        log = BindingLog(plane.audit_log)
        while (bound := log.read()) < backlog.pods:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{scheduler} bound {bound} of {backlog.pods} pods in {_LIMIT_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        cpu, peak = process.cpu_seconds(), process.peak_rss()
        process.stop(grace=15.0)
    return Drain(scheduler, bound, max(log.times) - min(log.times), cpu, peak / 2**20)


def show(drains: Sequence[Drain]) -> None:
    """Print medians, spread and ratios."""
    table = Table(title="Backlog drained, medians (lowest to highest)")
    for column in ("scheduler", "pods/s", "CPU ms/pod", "peak RSS MiB"):
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    medians: dict[str, tuple[float, float]] = {}
    for scheduler in dict.fromkeys(entry.scheduler for entry in drains):
        own = [entry for entry in drains if entry.scheduler == scheduler]
        rates, costs = [entry.rate for entry in own], [entry.cpu_ms_per_pod for entry in own]
        medians[scheduler] = (statistics.median(rates), statistics.median(costs))
        table.add_row(
            scheduler,
            f"{medians[scheduler][0]:.0f} ({min(rates):.0f} to {max(rates):.0f})",
            f"{medians[scheduler][1]:.2f} ({min(costs):.2f} to {max(costs):.2f})",
            f"{statistics.median(entry.peak_rss_mib for entry in own):.0f}",
        )
    console = Console()
    console.print(table)
    if len(medians) == 2:
        (rate, cost), (other_rate, other_cost) = medians[BAYPLAN], medians[KUBE_SCHEDULER]
        console.print(
            f"ratio {BAYPLAN} / {KUBE_SCHEDULER}: {rate / other_rate:.2f} x the rate, {cost / other_cost:.2f} x the CPU"
        )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--sizes", type=int, default=1, help="how many different pod sizes; 1: all alike")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", choices=(BAYPLAN, KUBE_SCHEDULER))
    parser.add_argument("--profile", type=Path, help="run Bayplan once under cProfile and write the profile there")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    backlog = Backlog(arguments.nodes, arguments.pods, arguments.sizes, arguments.seed)
    if arguments.profile is not None:
        show([drain(BAYPLAN, backlog, arguments.profile)])
        return
    schedulers = [arguments.only] if arguments.only else [BAYPLAN, KUBE_SCHEDULER]
    drains: list[Drain] = []
    for repetition in range(arguments.repetitions):
        for scheduler in schedulers:
            result = drain(scheduler, backlog)
            drains.append(result)
            sys.stderr.write(f"{repetition + 1}: {scheduler} {result.rate:.0f} pods/s\n")
    if arguments.output == "json":
        print(json.dumps([asdict(entry) for entry in drains], indent=2))
    else:
        show(drains)


if __name__ == "__main__":
    main()
