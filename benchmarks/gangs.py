"""A backlog of gangs bound by Bayplan and by kube-scheduler, side by side on the same machine.

    python -m benchmarks.gangs                                      # 1,000, 2,000 and 3,000 gangs of 3 on 5,000 nodes
    python -m benchmarks.gangs --gangs 300 --nodes 20               # too few nodes: gangs are left, but none in part
    python -m benchmarks.gangs --live --gangs 1000                  # pods are created while the scheduler runs
    python -m benchmarks.gangs --quick

The workload is scheduler_perf's (``gangs_workload``), with PodGroups of the native API, the same for both. Each drain
has a fresh control plane that serves that API, with nodes, groups and pods created before the scheduler starts, or with
`--live` the pods after it, as scheduler_perf does; kube-scheduler has the gates GenericWorkload and GangScheduling on.
Rates are counted from the API server's audit log, from the first binding to the last; CPU and memory are the scheduler
process's own, its start included; the time of an attempt is what either tells in the metric by which scheduler_perf
judges this workload. After each drain no gang may have some of its members on nodes and not all. Clients are not
limited in either; everything else is at its defaults. What can be compared is the ratio within one run: an absolute
time says more about the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import gangs_workload
from benchmarks.audit_times import AuditTimes
from benchmarks.gangs_metrics import SCRAPE_FLAG, group_attempts, scrape_bayplan, scrape_kube_scheduler
from benchmarks.gangs_workload import GangBacklog
from benchmarks.prepared import connected, create_all
from benchmarks.workload import NAMESPACE, NODES_PATH, PODS_PATH, SCHEDULER_NAME, encoded
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_bayplan, start_kube_scheduler
from hack.controlplane.servers import Options

PUBLISHED_GANGS, PUBLISHED_SIZE, PUBLISHED_NODES = (1000, 2000, 3000), 3, 5000
GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"

_LIMIT_SECONDS = 600.0
_READY_SECONDS = 600.0
"""A backlog is taken in before a scheduler is ready, for which kube-scheduler was seen to need more than a minute."""
_QUIET_SECONDS = 10.0
"""So long after the last bind, what is left does not fit."""
_POLL_SECONDS = 0.2
_WIDTH = 110
"""Columns of the table where nobody says how wide it may be."""


@dataclass(frozen=True, slots=True)
class GangDrain:
    """One backlog bound.

    Attributes:
        scheduler: Which scheduler.
        backlog: What was to be bound.
        bound: Pods bound.
        partial: Gangs of which some members were bound and some not, at the end; there must be none.
        seconds: From the first binding to the last.
        cpu_seconds: CPU time of the scheduler process, start and first lists included.
        peak_rss_mib: Its peak memory.
        attempts: Attempts to place gangs.
        attempt_ms: Mean milliseconds of one.
        algorithm_ms: Mean milliseconds of its search for nodes.
        longest_partial_ms: The longest time between the first and the last bind of one gang.
    """

    scheduler: str
    backlog: GangBacklog
    bound: int
    partial: list[str]
    seconds: float
    cpu_seconds: float
    peak_rss_mib: float
    attempts: int
    attempt_ms: float | None
    algorithm_ms: float | None
    longest_partial_ms: float

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.bound / self.seconds

    @property
    def cpu_ms_per_pod(self) -> float:
        """CPU milliseconds a pod."""
        return 1000 * self.cpu_seconds / self.bound


async def fill(plane: ControlPlane, backlog: GangBacklog) -> None:
    """Create the nodes and the groups."""
    async with await connected(plane) as connection:
        nodes = (encoded(gangs_workload.node(number)) for number in range(backlog.nodes))
        await create_all(connection, NODES_PATH, nodes)
        groups = (encoded(gangs_workload.group(number, backlog.size)) for number in range(backlog.gangs))
        await create_all(connection, gangs_workload.GROUPS_PATH, groups)


async def arrive(plane: ControlPlane, backlog: GangBacklog) -> None:
    """Create the pods."""
    async with await connected(plane) as connection:
        await create_all(connection, PODS_PATH, map(encoded, gangs_workload.members(backlog)))


def start(plane: ControlPlane, scheduler: str, profile_to: Path | None) -> tuple[Process, Callable[[], str]]:
    """Start either scheduler.

    Returns:
        Its process, and what scrapes it.
    """
    if scheduler == BAYPLAN:
        port = free_port()
        return start_bayplan(plane, SCHEDULER_NAME, port, profile_to), lambda: scrape_bayplan(port)
    process = start_kube_scheduler(plane, SCHEDULER_NAME, [GATES, SCRAPE_FLAG])
    return process, lambda: scrape_kube_scheduler(process)


def drain(scheduler: str, backlog: GangBacklog, *, live: bool = False, profile_to: Path | None = None) -> GangDrain:
    """Bind one backlog on a fresh control plane.

    Args:
        scheduler: Which scheduler.
        backlog: What is to be bound.
        live: Whether pods are created while the scheduler runs, not before.
        profile_to: Where Bayplan's own profile (cProfile) is written; None for none.

    Raises:
        TimeoutError: Nothing was bound, or binding had no end.
    """
    options = Options(
        feature_gates={"GenericWorkload": True},
        runtime_config={gangs_workload.API_VERSION: "true"},
        audit=True,
        ready_seconds=_READY_SECONDS,
    )
    with ControlPlane(options) as plane:
        asyncio.run(fill(plane, backlog))
        if not live:
            asyncio.run(arrive(plane, backlog))
        process, scrape = start(plane, scheduler, profile_to)
        if live:
            asyncio.run(arrive(plane, backlog))
        log = AuditTimes(plane.audit_log)
        _await_end(scheduler, log, backlog)
        cpu, peak = process.cpu_seconds(), process.peak_rss()
        told = group_attempts(scrape())
        pods = json.loads(plane.kubectl("get", "pods", "--namespace", NAMESPACE, "--output", "json"))["items"]
        process.stop(grace=15.0)
    return GangDrain(
        scheduler=scheduler,
        backlog=backlog,
        bound=len(log.bound),
        partial=gangs_workload.partial_gangs(pods, backlog.size),
        seconds=log.seconds,
        cpu_seconds=cpu,
        peak_rss_mib=peak / 2**20,
        attempts=told.count,
        attempt_ms=told.mean_ms,
        algorithm_ms=told.algorithm_mean_ms,
        longest_partial_ms=1000 * gangs_workload.longest_partial(log.bound.keys(), log.bound.values()),
    )


def _await_end(scheduler: str, log: AuditTimes, backlog: GangBacklog) -> None:
    """Wait until all is bound, or what is left does not fit."""
    began = changed = time.monotonic()
    bound = 0
    while bound < backlog.pods:
        now, before = time.monotonic(), bound
        bound = log.read()
        if bound != before:
            changed = now
        elif bound and now - changed > _QUIET_SECONDS:
            return
        if now - began > _LIMIT_SECONDS:
            raise TimeoutError(
                f"{scheduler} bound {bound} of {backlog.pods} pods in {_LIMIT_SECONDS:.0f} s; give it fewer gangs"
            )
        time.sleep(_POLL_SECONDS)


def show(drains: Sequence[GangDrain]) -> None:
    """Print medians, and ratios below them.

    An attempt is one of a whole gang, of which the search for nodes is a part; a gang is bound in part from the first
    of its binds to the last.
    """
    first = drains[0].backlog
    table = Table(title=f"Gangs of {first.size} on {first.nodes} nodes, medians", box=box.SIMPLE, pad_edge=False)
    table.add_column("gangs", justify="right")
    table.add_column("scheduler", no_wrap=True)
    for column in ("bound", "pods/s", "CPU ms/pod", "attempts", "attempt ms", "search ms", "peak MiB", "in part ms"):
        table.add_column(column, justify="right")
    ratios = []
    for gangs in dict.fromkeys(entry.backlog.gangs for entry in drains):
        medians: dict[str, tuple[float, ...]] = {}
        for scheduler in dict.fromkeys(entry.scheduler for entry in drains):
            own = [entry for entry in drains if (entry.scheduler, entry.backlog.gangs) == (scheduler, gangs)]
            rate, cost, attempt, search, memory, part, count = medians[scheduler] = _medians(own)
            table.add_row(
                str(gangs), scheduler, f"{min(entry.bound for entry in own)}", f"{rate:.0f}", f"{cost:.2f}",
                f"{count:.0f}", f"{attempt:.2f}", f"{search:.2f}", f"{memory:.0f}", f"{part:.0f}",
            )  # fmt: skip
        if len(medians) == 2:
            rate, cost, attempt, _, memory, *_ = (
                ours / theirs for ours, theirs in zip(medians[BAYPLAN], medians[KUBE_SCHEDULER], strict=True)
            )
            ratios.append(
                f"{gangs} gangs, {BAYPLAN} / {KUBE_SCHEDULER}: {rate:.2f} x the rate, {cost:.2f} x the CPU, "
                f"{attempt:.2f} x the time of an attempt, {memory:.2f} x the memory"
            )
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(table)
    for line in ratios:
        console.print(line, highlight=False, soft_wrap=True)


def _medians(own: Sequence[GangDrain]) -> tuple[float, ...]:
    """Pods/s, CPU ms a pod, ms an attempt, ms of its search, MiB, ms of a gang in part, attempts."""
    rows = [
        (
            entry.rate,
            entry.cpu_ms_per_pod,
            entry.attempt_ms or float("nan"),
            entry.algorithm_ms or float("nan"),
            entry.peak_rss_mib,
            entry.longest_partial_ms,
            entry.attempts,
        )
        for entry in own
    ]
    return tuple(statistics.median(column) for column in zip(*rows, strict=True))


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, nargs="+", help="how many gangs, one drain for each number")
    parser.add_argument("--size", type=int, default=PUBLISHED_SIZE, help="members of a gang")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--only", choices=(BAYPLAN, KUBE_SCHEDULER))
    parser.add_argument("--live", action="store_true", help="create the pods while the scheduler runs")
    parser.add_argument("--quick", action="store_true", help="100 gangs on 100 nodes, to see whether it works")
    parser.add_argument("--profile", type=Path, help="run Bayplan once under cProfile and write the profile there")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args(argv)
    arguments.gangs = arguments.gangs or ([100] if arguments.quick else list(PUBLISHED_GANGS))
    arguments.nodes = arguments.nodes or (100 if arguments.quick else PUBLISHED_NODES)
    if arguments.profile is not None:
        arguments.only, arguments.repetitions, arguments.gangs = BAYPLAN, 1, arguments.gangs[:1]
    return arguments


def main() -> None:
    """Run the benchmark."""
    arguments = arguments_of()
    drains: list[GangDrain] = []
    for repetition in range(arguments.repetitions):
        for gangs in arguments.gangs:
            backlog = GangBacklog(arguments.nodes, gangs, arguments.size)
            for scheduler in [arguments.only] if arguments.only else [BAYPLAN, KUBE_SCHEDULER]:
                result = drain(scheduler, backlog, live=arguments.live, profile_to=arguments.profile)
                drains.append(result)
                sys.stderr.write(f"{repetition + 1}: {gangs} gangs, {scheduler} {result.rate:.0f} pods/s\n")
    if arguments.output == "json":
        print(json.dumps([asdict(entry) for entry in drains], indent=2))
    else:
        show(drains)
    broken = [f"{entry.scheduler}: {', '.join(entry.partial)}" for entry in drains if entry.partial]
    if broken:
        sys.exit(f"gangs with only some of their members on nodes: {'; '.join(broken)}")


if __name__ == "__main__":
    main()
