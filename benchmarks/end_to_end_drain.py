"""One backlog bound by one scheduler on a real API server, and what that took.

Owns a single measurement, from starting the scheduler to the check of every placement. It must not know how many there
will be or what is made of them.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from bayplan.kube.connection import ApiConnection, ApiRequest

from benchmarks.audit_times import AuditTimes
from benchmarks.placements import violations
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.workload import NODES_PATH, PODS_PATH, SCHEDULER_NAME
from benchmarks.workloads import Workload
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.schedulers import start_bayplan, start_scheduler

_LIMIT_SECONDS = 900.0
_POLL_SECONDS = 0.2
_SETTLED_SECONDS = 5.0
"""So long without a bind a drain is over, where not all pods fit."""
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Drain:
    """One backlog bound.

    Attributes:
        workload: Which workload.
        nodes: How many nodes.
        pods: How many pods the backlog had.
        scheduler: Which scheduler.
        repetition: Which repetition, from 1.
        bound: Pods bound.
        seconds: From the first binding to the last.
        told_seconds: From the first binding to when as many events as bindings were written.
        events: Events that were written in the end.
        cpu_seconds: CPU time of the scheduler process, start and first lists included.
        peak_rss_mib: Its largest resident set.
        requests: Requests that the API server answered meanwhile, watches not counted.
        wrong: What the check of all placements found.
    """

    workload: str
    nodes: int
    pods: int
    scheduler: str
    repetition: int
    bound: int
    seconds: float
    told_seconds: float
    events: int
    cpu_seconds: float
    peak_rss_mib: float
    requests: int
    wrong: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Pods a second, from the first binding to the last."""
        return self.bound / self.seconds if self.seconds else 0.0

    @property
    def told_rate(self) -> float:
        """Pods a second, until all their events were written too."""
        return self.bound / self.told_seconds if self.told_seconds else 0.0

    @property
    def cpu_ms_per_pod(self) -> float:
        """CPU milliseconds a pod of the backlog."""
        return 1000 * self.cpu_seconds / self.pods

    @property
    def requests_per_pod(self) -> float:
        """Requests a pod of the backlog."""
        return self.requests / self.pods


def drain(
    cluster: PreparedCluster,
    workload: Workload,
    scheduler: str,
    size: tuple[int, int, int],
    profile_to: Path | None = None,
) -> Drain:
    """Bind a backlog.

    Args:
        cluster: What it is bound on.
        workload: What it is.
        scheduler: Which scheduler.
        size: Nodes, pods of the backlog, and which repetition this is.
        profile_to: Where Bayplan's own profile (cProfile) is written; None for none.

    Raises:
        TimeoutError: It was not bound in time.
    """
    nodes, pods, repetition = size
    with cluster.started() as plane:
        asked_before = _requests(plane)
        if profile_to is None:
            process = start_scheduler(plane, scheduler, SCHEDULER_NAME)
        else:
            process = start_bayplan(plane, SCHEDULER_NAME, free_port(), profile_to)
        times = asyncio.run(_watched(plane, workload, pods))
        cpu, peak = process.cpu_seconds(), process.peak_rss()
        asked = _requests(plane) - asked_before
        found = asyncio.run(_checked(plane, workload, pods))
        process.stop(grace=20.0)
    first, last = min(times.bound.values()), max(times.bound.values())
    told = sorted(times.told)
    told_at = told[min(len(told), len(times.bound)) - 1] if told else last
    return Drain(
        workload.name,
        nodes,
        pods,
        scheduler,
        repetition,
        len(times.bound),
        times.seconds,
        max(told_at, last) - first,
        len(told),
        cpu,
        peak / 2**20,
        asked,
        tuple(found),
    )


async def _watched(plane: ControlPlane, workload: Workload, pods: int) -> AuditTimes:
    """Wait until all is bound and told; for churn, delete what is bound meanwhile."""
    times, expected = AuditTimes(plane.audit_log), workload.bound_of(pods)
    deadline, deleted = time.monotonic() + _LIMIT_SECONDS, 0
    last, changed_at = (-1, -1), time.monotonic()
    async with await connected(plane) as connection:
        while True:
            times.read()
            seen = (len(times.bound), len(times.told))
            if seen != last:
                last, changed_at = seen, time.monotonic()
            is_told = len(times.told) >= len(times.bound)
            if len(times.bound) >= expected and (is_told or time.monotonic() - changed_at > _SETTLED_SECONDS):
                return times
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(times.bound)} of {expected} pods were bound in {_LIMIT_SECONDS:.0f} s")
            if workload.churn:
                names = list(times.bound)[deleted : len(times.bound) // 2]
                deleted += len(names)
                await asyncio.gather(*(_delete(connection, name) for name in names))
            await asyncio.sleep(_POLL_SECONDS)


async def _delete(connection: ApiConnection, name: str) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}).encode()
    await connection.request(ApiRequest("DELETE", f"{PODS_PATH}/{name}", body=body, timeout=60.0))


def _requests(plane: ControlPlane) -> int:
    """Requests that were answered so far, watches not counted."""
    text = plane.kubectl("get", "--raw=/metrics")
    return sum(int(float(count)) for labels, count in _REQUESTS.findall(text) if 'verb="WATCH"' not in labels)


async def _checked(plane: ControlPlane, workload: Workload, pods: int) -> list[str]:
    async with await connected(plane) as connection:
        nodes, placed = [
            json.loads(await connection.request(ApiRequest("GET", path, timeout=120.0)))["items"]
            for path in (NODES_PATH, PODS_PATH)
        ]
    return violations(workload, nodes, placed, pods)
