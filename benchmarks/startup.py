"""Measures the time from the start of the process to the first bind in a full cluster, and the time of a takeover.

    make bench-startup
    make bench-startup QUICK=1
    python -m benchmarks.startup --nodes 5000 --pods 50000 --repetitions 3

Both schedulers are started one after the other on the same control plane, in which a few pods wait. The results are the
time to the first binding, the CPU time until then, and the largest resident set some seconds later. For a takeover, two
Bayplan processes run with the default durations of leader election, and the leader is ended by SIGTERM or SIGKILL while
pods are created; the result is the longest time without a bind. Results are stored line by line, and stored ones are
not measured again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bayplan.kube.http.connection import ApiRequest
from rich.console import Console

from benchmarks.audit_times import AuditTimes
from benchmarks.harness import (
    DEFAULT_FOLDER,
    ResultLines,
    add_output,
    command_line,
    grouped,
    median_of,
    report,
    table,
)
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.workloads import PODS_PATH, SCHEDULER_NAME, WORKLOADS, Document, encoded, node, placed
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_bayplan, start_scheduler

_WAITING_PODS = 20
_SETTLE_SECONDS = 5.0
_LIMIT_SECONDS = 180.0
_PACE_SECONDS = 0.05
"""Interval between two pods that are created while a leader is ended: shorter times cannot be measured."""
_STEADY_PODS = 20
_TABLE_WIDTH = 120
SIGTERM, SIGKILL = "SIGTERM", "SIGKILL"


@dataclass(frozen=True, slots=True)
class Startup:
    """Result of one start.

    Attributes:
        seconds: Time from the start of the process to the first binding.
        cpu_seconds: CPU time until a few seconds after the first binding.
        peak_rss_mib: Largest resident set until then.
    """

    scheduler: str
    seconds: float
    cpu_seconds: float
    peak_rss_mib: float
    nodes: int
    pods: int
    repetition: int
    first_cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Takeover:
    """Result of one takeover.

    Attributes:
        seconds: Longest time without a bind after the signal.
    """

    signal: str
    seconds: float
    nodes: int
    pods: int
    repetition: int


@dataclass(frozen=True, slots=True)
class Results:
    starts: list[Startup]
    takeovers: list[Takeover]


def _objects(nodes: int, pods: int) -> Iterator[Document]:
    for number in range(pods):
        yield placed(number, node(number % nodes)["metadata"]["name"], cpu_milli=10, memory_mib=10)
    for number in range(_WAITING_PODS):
        yield WORKLOADS[0].pod(number)


def measure(cluster: PreparedCluster, scheduler: str, size: tuple[int, int], repetition: int) -> Startup:
    """Start one scheduler.

    Args:
        size: Nodes and pods of the cluster.

    Raises:
        TimeoutError: The scheduler bound no pod.
    """
    with cluster.started() as plane:
        times = AuditTimes(plane.audit_log)
        process = start_scheduler(plane, scheduler, SCHEDULER_NAME)
        times.wait_for_bound(1, _LIMIT_SECONDS)
        first_cpu = process.cpu_seconds()
        time.sleep(_SETTLE_SECONDS)
        seconds = min(times.bound.values()) - _started_at(process)
        cpu, peak = process.cpu_seconds(), process.peak_rss() / 2**20
        process.stop(grace=20.0)
    return Startup(scheduler, seconds, cpu, peak, *size, repetition, first_cpu)


def _started_at(process: Process) -> float:
    """Return the start time of a process, seconds since 1970, without the preparations before it."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.record.started / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def takeover(cluster: PreparedCluster, by: str, size: tuple[int, int], repetition: int) -> Takeover:
    """End the leader of two Bayplan processes.

    Args:
        by: SIGTERM or SIGKILL.
        size: Nodes and pods of the cluster.

    Raises:
        TimeoutError: The standby bound no pod.
    """
    with cluster.started() as plane:
        times = AuditTimes(plane.audit_log)
        leader = start_bayplan(plane, SCHEDULER_NAME, free_port(), flags=("--leader-elect",))
        times.wait_for_bound(_WAITING_PODS, _LIMIT_SECONDS)
        start_bayplan(plane, SCHEDULER_NAME, free_port(), flags=("--leader-elect",), program="bayplan-standby")
        ended_at = asyncio.run(_end_while_pods_come(plane, leader, by, times))
    return Takeover(by, longest_gap(times.bound.values(), ended_at), *size, repetition)


async def _end_while_pods_come(plane: ControlPlane, leader: Process, by: str, times: AuditTimes) -> float:
    """Create pods at a constant rate until the standby has bound some; return the time of the signal."""
    ending: asyncio.Task[None] | None = None
    ended_at = gone_at = float("inf")
    deadline = time.monotonic() + _LIMIT_SECONDS
    async with await connected(plane) as connection:
        for number in itertools.count(_WAITING_PODS):
            body = encoded(WORKLOADS[0].pod(number))
            await connection.request(ApiRequest("POST", PODS_PATH, body=body, timeout=60.0))
            await asyncio.sleep(_PACE_SECONDS)
            times.read()
            if ending is None and len(times.bound) >= _WAITING_PODS + _STEADY_PODS:
                ended_at = time.time()
                ending = asyncio.create_task(asyncio.to_thread(leader.kill if by == SIGKILL else leader.stop))
            elif ending is not None and ending.done() and gone_at == float("inf"):
                await ending
                gone_at = time.time()
            if max(times.bound.values()) > gone_at:
                return ended_at
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing was bound in {_LIMIT_SECONDS:.0f} s after {by}; see the standby's log")
    raise AssertionError("pods never end")


def longest_gap(bound: Iterable[float], since: float) -> float:
    """Return the longest time in seconds between two successive bindings of which the later one is after ``since``."""
    ordered = sorted(bound)
    return max(later - earlier for earlier, later in itertools.pairwise(ordered) if later > since)


def show(results: Results) -> None:
    console = Console(width=_TABLE_WIDTH)
    made = table(
        "Started in a full cluster, medians (lowest to highest)",
        ["scheduler"],
        ("nodes", "bound pods", "to first bind, s", "CPU s until then", "CPU s", "peak MiB", "n"),
    )
    starts = grouped(results.starts, lambda each: (each.scheduler, each.nodes, each.pods))
    for (scheduler, nodes, pods), own in starts.items():
        made.add_row(
            scheduler,
            f"{nodes:,}",
            f"{pods:,}",
            median_of([each.seconds for each in own], ".1f"),
            f"{statistics.median(each.first_cpu_seconds for each in own):.1f}",
            f"{statistics.median(each.cpu_seconds for each in own):.1f}",
            f"{statistics.median(each.peak_rss_mib for each in own):.0f}",
            f"{len(own)}",
        )
    console.print(made)
    for by, ends in grouped(results.takeovers, lambda each: each.signal).items():
        gaps = median_of([each.seconds for each in ends], ".1f")
        console.print(f"takeover after {by}: {gaps} s without a bind, n={len(ends)}")


def run(size: tuple[int, int], repetitions: int, folder: Path) -> Results:
    """Run the measurements that are not in the two files of results; return stored and new results.

    Args:
        size: Nodes, and bound pods.
    """
    starts, takeovers = ResultLines(folder / "starts.jsonl", Startup), ResultLines(folder / "takeovers.jsonl", Takeover)
    with PreparedCluster(size[0], _objects(*size)) as cluster:
        for repetition in range(1, repetitions + 1):
            starts.complete(
                (
                    ((scheduler, *size, repetition), partial(measure, cluster, scheduler, size, repetition))
                    for scheduler in (BAYPLAN, KUBE_SCHEDULER)
                ),
                lambda each: (each.scheduler, each.nodes, each.pods, each.repetition),
                lambda each: f"{each.scheduler} #{each.repetition}: {each.seconds:.1f} s to the first bind",
            )
            takeovers.complete(
                (
                    ((by, *size, repetition), partial(takeover, cluster, by, size, repetition))
                    for by in (SIGTERM, SIGKILL)
                ),
                lambda each: (each.signal, each.nodes, each.pods, each.repetition),
                lambda each: f"{each.signal} #{each.repetition}: {each.seconds:.1f} s without a bind",
            )
    return Results(starts.read(), takeovers.read())


def main() -> None:
    parser = command_line(__doc__, nodes=5000, pods=50_000, repetitions=3)
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_FOLDER, help="folder of the JSON lines; results are added"
    )
    add_output(parser)
    arguments = parser.parse_args()
    results = run((arguments.nodes, arguments.pods), arguments.repetitions, arguments.results)
    report(arguments.output, results, lambda: show(results))


if __name__ == "__main__":
    main()
