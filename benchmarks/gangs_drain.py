"""Lets one scheduler bind one backlog of gangs on a fresh control plane, and measures it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import gangs_workload
from benchmarks.audit_times import AuditTimes
from benchmarks.gangs_metrics import SCRAPE_FLAG, group_attempts, scrape_bayplan, scrape_kube_scheduler
from benchmarks.gangs_workload import GangBacklog
from benchmarks.prepared import connected, create_all
from benchmarks.workload import NAMESPACE, NODES_PATH, PODS_PATH, SCHEDULER_NAME, encoded
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.probes import free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import BAYPLAN, start_bayplan, start_kube_scheduler
from hack.controlplane.servers import Options

GATES = f"--feature-gates={native_groups().scheduler_gates}"

_LIMIT_SECONDS = 600.0
_READY_SECONDS = 600.0
"""A backlog is taken in before a scheduler is ready, for which kube-scheduler was seen to need more than a minute."""
_QUIET_SECONDS = 10.0
"""So long after the last bind, what is left does not fit."""
_POLL_SECONDS = 0.2
_FIRST_POLL_SECONDS = 0.02
"""Until the first bindings, so that the CPU time until then is read when they are there."""


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
        repetition: Which repetition, from 1.
        live: Whether the pods were created while the scheduler ran.
        first_cpu_seconds: Of ``cpu_seconds``, what was taken when the first bindings were seen.
        first_bound: Pods that were bound when that was read.
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
    repetition: int = 1
    live: bool = False
    first_cpu_seconds: float = 0.0
    first_bound: int = 0

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.bound / self.seconds

    @property
    def cpu_ms_per_pod(self) -> float:
        """CPU milliseconds a pod."""
        return 1000 * self.cpu_seconds / self.bound

    @property
    def later_cpu_ms_per_pod(self) -> float:
        """CPU milliseconds a pod after the first bindings: neither start nor first lists are in it."""
        return 1000 * (self.cpu_seconds - self.first_cpu_seconds) / max(1, self.bound - self.first_bound)


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


def drain(
    scheduler: str, backlog: GangBacklog, repetition: int, *, live: bool = False, profile_to: Path | None = None
) -> GangDrain:
    """Bind one backlog on a fresh control plane.

    Args:
        scheduler: Which scheduler.
        backlog: What is to be bound.
        repetition: Which repetition this is.
        live: Whether pods are created while the scheduler runs, not before.
        profile_to: Where Bayplan's own profile (cProfile) is written; None for none.

    Raises:
        TimeoutError: Nothing was bound, or binding had no end.
    """
    options = Options(
        kubernetes=native_groups().kubernetes,
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
        first_bound, first_cpu = _await_first(scheduler, log, process)
        _await_end(scheduler, log, backlog)
        cpu, peak = process.cpu_seconds(), process.peak_rss()
        attempts = group_attempts(scrape())
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
        attempts=attempts.count,
        attempt_ms=attempts.mean_ms,
        algorithm_ms=attempts.algorithm_mean_ms,
        longest_partial_ms=1000 * gangs_workload.longest_partial(log.bound.keys(), log.bound.values()),
        repetition=repetition,
        live=live,
        first_cpu_seconds=first_cpu,
        first_bound=first_bound,
    )


def _await_first(scheduler: str, log: AuditTimes, process: Process) -> tuple[int, float]:
    """Wait for the first bindings; how many are seen, and the CPU time until then."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not (bound := log.read()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{scheduler} bound nothing in {_LIMIT_SECONDS:.0f} s; look at its log")
        time.sleep(_FIRST_POLL_SECONDS)
    return bound, process.cpu_seconds()


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
