"""Runs one scheduler on one backlog of gangs on a new control plane, and measures it.

Nodes, groups of the native API and their members equal scheduler_perf's gang workload (kubernetes/kubernetes,
``test/integration/scheduler_perf/podgroup/gangscheduling``, pull request 138341: 5,000 nodes of 4 CPUs and 32 GiB;
1,000, 2,000 and 3,000 gangs of 3; members request 100m and 100 MiB), and so does the metric of attempts.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import workloads
from benchmarks.audit_times import AuditTimes
from benchmarks.harness import Metrics
from benchmarks.prepared import connected, create_all
from benchmarks.workloads import NAMESPACE, NODES_PATH, PODS_PATH, SCHEDULER_NAME, Document, encoded
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.probes import LOOPBACK, fetch, free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import BAYPLAN, start_bayplan, start_kube_scheduler
from hack.controlplane.servers import Options

API_VERSION = native_groups().api_version
"""The published workload for 1.37 uses v1beta1; v1alpha2 of 1.36 has the same fields."""

GROUPS_PATH = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/podgroups"


@dataclass(frozen=True, slots=True)
class GangBacklog:
    """A backlog of gangs.

    Attributes:
        size: Number of members per gang, all of which are required.
    """

    nodes: int
    gangs: int
    size: int

    @property
    def pods(self) -> int:
        return self.gangs * self.size


def node(number: int) -> Document:
    """Make a node of scheduler_perf's default size; it has no zone."""
    document = workloads.node(number, cpu="4", memory="32Gi")
    del document["metadata"]["labels"][workloads.ZONE]
    return document


def group(number: int, size: int) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": gang_name(number), "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }


def members(backlog: GangBacklog) -> Iterator[Document]:
    for number in range(backlog.pods):
        name = gang_name(number // backlog.size)
        spec = {"schedulingGroup": {"podGroupName": name}}
        document = workloads.pod(number, spec, cpu_milli=100, memory_mib=100)
        document["metadata"] = {"name": f"{name}-{number % backlog.size}", "namespace": NAMESPACE}
        yield document


def gang_name(number: int) -> str:
    return f"gang-{number}"


def gang_of(pod_name: str) -> str:
    return pod_name.rpartition("-")[0]


def partial_gangs(pods: Iterable[Mapping[str, Any]], size: int) -> list[str]:
    """Return the gangs that have some but not all of their members on nodes."""
    bound = Counter(gang_of(pod["metadata"]["name"]) for pod in pods if pod["spec"].get("nodeName"))
    return sorted(gang for gang, count in bound.items() if count != size)


def longest_partial(names: Iterable[str], times: Iterable[float]) -> float:
    """Return the longest time between the first and the last bind of one gang, in seconds; 0 without binds.

    Args:
        names: Names of pods, each bound once.
        times: Times of their binds in seconds, in the same order.
    """
    spans: dict[str, tuple[float, float]] = {}
    for name, at in zip(names, times, strict=True):
        first, last = spans.get(gang_of(name), (at, at))
        spans[gang_of(name)] = min(first, at), max(last, at)
    return max((last - first for first, last in spans.values()), default=0.0)


GATES = f"--feature-gates={native_groups().scheduler_gates}"

_LIMIT_SECONDS = 600.0
_READY_SECONDS = 600.0
"""A scheduler adds the backlog to its queue before it is ready, which took kube-scheduler more than a minute."""
_QUIET_SECONDS = 10.0
"""Seconds after the last bind after which the remaining gangs count as infeasible."""
_POLL_SECONDS = 0.2
_FIRST_POLL_SECONDS = 0.02
"""Poll interval until the first bindings, so that the CPU time is read soon after them."""


@dataclass(frozen=True, slots=True)
class GangDrain:
    """Result of one backlog.

    Attributes:
        partial: Gangs of which only a part was bound at the end; there must be none.
        seconds: Time from the first binding to the last.
        cpu_seconds: CPU time of the scheduler process, including start and first lists.
        algorithm_ms: Mean milliseconds of the search for nodes in an attempt.
        live: Whether the pods were created while the scheduler ran.
        first_cpu_seconds: ``cpu_seconds`` at the first bindings.
        first_bound: Number of bound pods at that time.
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
        return self.bound / self.seconds

    @property
    def cpu_ms_per_pod(self) -> float:
        return 1000 * self.cpu_seconds / self.bound

    @property
    def later_cpu_ms_per_pod(self) -> float:
        """Return CPU milliseconds per pod after the first bindings, without start and first lists."""
        return 1000 * (self.cpu_seconds - self.first_cpu_seconds) / max(1, self.bound - self.first_bound)


async def fill(plane: ControlPlane, backlog: GangBacklog) -> None:
    async with await connected(plane) as connection:
        nodes = (encoded(node(number)) for number in range(backlog.nodes))
        await create_all(connection, NODES_PATH, nodes)
        groups = (encoded(group(number, backlog.size)) for number in range(backlog.gangs))
        await create_all(connection, GROUPS_PATH, groups)


async def arrive(plane: ControlPlane, backlog: GangBacklog) -> None:
    async with await connected(plane) as connection:
        await create_all(connection, PODS_PATH, map(encoded, members(backlog)))


def start(plane: ControlPlane, scheduler: str, profile_to: Path | None) -> tuple[Process, Callable[[], str]]:
    """Start a scheduler.

    Returns:
        Its process, and a function that scrapes it.
    """
    if scheduler == BAYPLAN:
        port = free_port()
        return start_bayplan(plane, SCHEDULER_NAME, port, profile_to), lambda: fetch(
            f"http://{LOOPBACK}:{port}/metrics"
        )
    process = start_kube_scheduler(plane, SCHEDULER_NAME, [GATES, SCRAPE_FLAG])
    return process, lambda: scrape_kube_scheduler(process)


def drain(
    scheduler: str, backlog: GangBacklog, repetition: int, *, live: bool = False, profile_to: Path | None = None
) -> GangDrain:
    """Bind one backlog on a new control plane.

    Raises:
        TimeoutError: No pod was bound, or the run did not end in time.
    """
    options = Options(
        kubernetes=native_groups().kubernetes,
        feature_gates={"GenericWorkload": True},
        runtime_config={API_VERSION: "true"},
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
        first_bound = log.wait_for_bound(1, _LIMIT_SECONDS, _FIRST_POLL_SECONDS)
        first_cpu = process.cpu_seconds()
        _await_end(scheduler, log, backlog)
        cpu, peak = process.cpu_seconds(), process.peak_rss()
        attempts = group_attempts(scrape())
        pods = json.loads(plane.kubectl("get", "pods", "--namespace", NAMESPACE, "--output", "json"))["items"]
        process.stop(grace=15.0)
    return GangDrain(
        scheduler=scheduler,
        backlog=backlog,
        bound=len(log.bound),
        partial=partial_gangs(pods, backlog.size),
        seconds=log.seconds,
        cpu_seconds=cpu,
        peak_rss_mib=peak / 2**20,
        attempts=attempts.count,
        attempt_ms=attempts.mean_ms,
        algorithm_ms=attempts.algorithm_mean_ms,
        longest_partial_ms=1000 * longest_partial(log.bound.keys(), log.bound.values()),
        repetition=repetition,
        live=live,
        first_cpu_seconds=first_cpu,
        first_bound=first_bound,
    )


def _await_end(scheduler: str, log: AuditTimes, backlog: GangBacklog) -> None:
    """Wait until all pods are bound, or the remaining ones do not fit."""
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
                f"{scheduler} bound {bound} of {backlog.pods} pods in {_LIMIT_SECONDS:.0f} s; use fewer gangs"
            )
        time.sleep(_POLL_SECONDS)


ATTEMPT = "scheduler_podgroup_scheduling_attempt_duration_seconds"
ALGORITHM = "scheduler_podgroup_scheduling_algorithm_duration_seconds"
SCRAPE_FLAG = "--authorization-always-allow-paths=/readyz,/livez,/healthz,/metrics"
"""Flag that allows scrapes of kube-scheduler without authentication."""


@dataclass(frozen=True, slots=True)
class GroupAttempts:
    """Attempts to schedule gangs.

    Attributes:
        mean_ms: Mean milliseconds of an attempt, without binding; None if there are none.
        algorithm_mean_ms: Mean milliseconds of the search for nodes in an attempt.
    """

    count: int
    mean_ms: float | None
    algorithm_mean_ms: float | None


def group_attempts(text: str) -> GroupAttempts:
    total = Metrics(text).total

    def mean_ms(name: str) -> float | None:
        count = total(f"{name}_count")
        return 1000 * total(f"{name}_sum") / count if count else None

    return GroupAttempts(int(total(f"{ATTEMPT}_count")), mean_ms(ATTEMPT), mean_ms(ALGORITHM))


def scrape_kube_scheduler(process: Process) -> str:
    """Read the metrics of kube-scheduler, which must have been started with :data:`SCRAPE_FLAG`."""
    flags = dict(re.findall(r"--([a-z-]+)=(\S*)", " ".join(process.command.argv)))
    trusted = ssl.create_default_context(cafile=str(Path(flags["cert-dir"]) / "kube-scheduler.crt"))
    return fetch(f"https://{LOOPBACK}:{flags['secure-port']}/metrics", trusted)
