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

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from bayplan.kube.http.connection import ApiRequest
from rich.console import Console
from rich.table import Table

from benchmarks.audit_times import AuditTimes
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.result_lines import DEFAULT_FOLDER, ResultLines
from benchmarks.workload import PODS_PATH, SCHEDULER_NAME, Document, encoded, node
from benchmarks.workloads import WORKLOADS, placed
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
    table = Table(title="Started in a full cluster, medians (lowest to highest)")
    for column in (
        "scheduler",
        "nodes",
        "bound pods",
        "to first bind, s",
        "CPU s until then",
        "CPU s",
        "peak MiB",
        "n",
    ):
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for scheduler, nodes, pods in dict.fromkeys((each.scheduler, each.nodes, each.pods) for each in results.starts):
        own = [each for each in results.starts if (each.scheduler, each.nodes, each.pods) == (scheduler, nodes, pods)]
        table.add_row(
            scheduler,
            f"{nodes:,}",
            f"{pods:,}",
            _median([each.seconds for each in own]),
            f"{statistics.median(each.first_cpu_seconds for each in own):.1f}",
            f"{statistics.median(each.cpu_seconds for each in own):.1f}",
            f"{statistics.median(each.peak_rss_mib for each in own):.0f}",
            f"{len(own)}",
        )
    console.print(table)
    for by in dict.fromkeys(each.signal for each in results.takeovers):
        gaps = [each.seconds for each in results.takeovers if each.signal == by]
        console.print(f"takeover after {by}: {_median(gaps)} s without a bind, n={len(gaps)}")


def _median(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"


def run(size: tuple[int, int], repetitions: int, folder: Path) -> Results:
    """Run the measurements that are not in the files of results, and add their results.

    Args:
        size: Nodes, and bound pods.
    """
    starts, takeovers = ResultLines(folder / "starts.jsonl", Startup), ResultLines(folder / "takeovers.jsonl", Takeover)
    known = Results(starts.read(), takeovers.read())
    done = {(each.scheduler, each.nodes, each.pods, each.repetition) for each in known.starts}
    done |= {(each.signal, each.nodes, each.pods, each.repetition) for each in known.takeovers}
    turns = [
        (what, repetition)
        for repetition in range(1, repetitions + 1)
        for what in (BAYPLAN, KUBE_SCHEDULER, SIGTERM, SIGKILL)
        if (what, *size, repetition) not in done
    ]
    if not turns:
        return known
    with PreparedCluster(size[0], _objects(*size)) as cluster:
        for what, repetition in turns:
            if what in {SIGTERM, SIGKILL}:
                ended = takeover(cluster, what, size, repetition)
                known.takeovers.append(ended)
                takeovers.add(ended)
                sys.stderr.write(f"{what} #{repetition}: {ended.seconds:.1f} s without a bind\n")
            else:
                started = measure(cluster, what, size, repetition)
                known.starts.append(started)
                starts.add(started)
                sys.stderr.write(f"{what} #{repetition}: {started.seconds:.1f} s to the first bind\n")
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_FOLDER, help="folder of the JSON lines; results are added"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    results = run((arguments.nodes, arguments.pods), arguments.repetitions, arguments.results)
    if arguments.output == "json":
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    else:
        show(results)


if __name__ == "__main__":
    main()
