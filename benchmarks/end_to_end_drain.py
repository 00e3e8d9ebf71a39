"""Runs one scheduler on one backlog on a real API server, measures it, and checks every placement.

The load is that of all processes: if they together use all processors, the rate depends on all of them, not on the
scheduler alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from bayplan.kube.http.connection import MERGE_PATCH, ApiConnection, ApiRequest
from msgspec.structs import replace

from benchmarks.audit_times import AuditTimes
from benchmarks.device_hardware import CLAIMS_PATH
from benchmarks.device_workloads import shared_devices
from benchmarks.placements import violations
from benchmarks.prepared import PreparedCluster, connected
from benchmarks.workloads import NAMESPACE, NODES_PATH, PODS_PATH, SCHEDULER_NAME, Document, Workload, encoded
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import start_bayplan, start_scheduler

_LIMIT_SECONDS = 900.0
_POLL_SECONDS = 0.2
_FIRST_POLL_SECONDS = 0.02
"""Poll interval until the first binding, so that the CPU time is read soon after it."""
_STEADY_POLL_SECONDS = 0.005
"""Poll interval while each bound pod is replaced: the scheduler must not wait for the next pods."""
_LIST_SECONDS = 1.0
"""Interval between two lists of all events, which are large."""
_SETTLED_SECONDS = 5.0
"""Seconds without a bind after which a run ends, if not all pods fit."""
_CONTROLLERS = ("--controllers=resourceclaim-controller,garbage-collector-controller",)
_SCHEDULED_EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=reason%3DScheduled"

MACHINE, BENCHMARK, WALL = "machine", "benchmark", "seconds"
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Fields in the first line of /proc/stat: user, nice, system, irq and softirq, without idle and iowait."""
_REQUEST_SECONDS = 60.0
_NOW = json.dumps(
    {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
).encode()


class _EventMeta(msgspec.Struct, gc=False):
    name: str


class _Event(msgspec.Struct, gc=False):
    metadata: _EventMeta


class _Events(msgspec.Struct):
    items: list[_Event]


@dataclass(frozen=True, slots=True)
class Drain:
    """Result of one backlog.

    Attributes:
        told_seconds: Time from the first binding until as many Scheduled events as bindings were written.
        cpu_seconds: CPU time of the scheduler process, including start and first lists.
        requests: Requests that the API server handled in this time, without watches and requests of this process; with
            claims of templates, including those of kube-controller-manager.
        first_cpu_seconds: ``cpu_seconds`` at the first bindings.
        first_bound: Number of bound pods at that time.
        busy: CPU seconds from the first bindings to the last, by process, and the elapsed time.
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
    first_cpu_seconds: float = 0.0
    first_bound: int = 0
    busy: Mapping[str, float] = field(default_factory=dict)
    requests_by_kind: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.bound / self.seconds if self.seconds else 0.0

    @property
    def reported_rate(self) -> float:
        """Return pods per second until all their events were written."""
        return self.bound / self.told_seconds if self.told_seconds else 0.0

    @property
    def cpu_ms_per_pod(self) -> float:
        return 1000 * self.cpu_seconds / self.pods

    @property
    def later_cpu_ms_per_pod(self) -> float:
        """Return CPU milliseconds per pod after the first bindings, without start and first lists."""
        return 1000 * (self.cpu_seconds - self.first_cpu_seconds) / max(1, self.pods - self.first_bound)

    def busy_ms_per_pod(self, process: str) -> float:
        """Return CPU milliseconds of a process per pod bound after the first bindings; 0 if it did not run."""
        return 1000 * self.busy.get(process, 0.0) / max(1, self.bound - self.first_bound)

    @property
    def busy_processors(self) -> float:
        """Return the average number of busy processors from the first bindings to the last, for all processes."""
        return self.busy[MACHINE] / self.busy[WALL] if self.busy.get(WALL) else 0.0

    @property
    def requests_per_pod(self) -> float:
        return self.requests / self.pods


def drain(
    cluster: PreparedCluster,
    workload: Workload,
    scheduler: str,
    size: tuple[int, int, int],
    profile_to: Path | None = None,
    *,
    start: Callable[[ControlPlane], Process] | None = None,
    stopped: Callable[[ControlPlane], None] | None = None,
) -> Drain:
    """Bind a backlog.

    Args:
        size: Nodes, pods of the backlog, and number of the repetition.

    Raises:
        TimeoutError: The pods were not bound in time.
    """
    nodes, pods, repetition = size
    with cluster.started() as plane:
        requests_before = answered_requests(plane)
        if start is not None:
            process = start(plane)
        elif profile_to is None:
            process = start_scheduler(plane, scheduler, SCHEDULER_NAME)
        else:
            process = start_bayplan(plane, SCHEDULER_NAME, free_port(), profile_to)
        controllers = [plane.start_kube_controller_manager(_CONTROLLERS)] if workload.has_templates else []
        turnover = PodTurnover(workload, pods) if workload.churn or workload.in_flight else None
        watch = _Watch(plane, (process, *controllers), turnover)
        asyncio.run(watch.until_reported(workload.bound_of(pods)))
        times, scheduled = watch.times, watch.scheduled
        cpu, peak = process.cpu_seconds(), process.peak_rss()
        requests = answered_requests(plane) - requests_before - watch.requests
        found = asyncio.run(_checked(plane, workload, pods))
        process.stop(grace=20.0)
        if stopped is not None:
            stopped(plane)
    first, last = min(times.bound.values()), max(times.bound.values())
    reported = sorted(times.events[name] for name in scheduled)
    reported_at = reported[min(len(reported), len(times.bound)) - 1] if reported else last
    return Drain(
        workload.name,
        nodes,
        pods,
        scheduler,
        repetition,
        len(times.bound),
        times.seconds,
        max(reported_at, last) - first,
        len(reported),
        cpu,
        peak / 2**20,
        requests.total(),
        tuple(found),
        watch.first_cpu_seconds,
        watch.first_bound,
        difference(watch.busy_last, watch.busy_first),
        dict(requests.most_common()),
    )


class _Watch:
    """State of a run.

    Args:
        processes: The scheduler, and other processes beside the servers whose load is measured.
    """

    def __init__(self, plane: ControlPlane, processes: Sequence[Process], turnover: PodTurnover | None) -> None:
        self.times = AuditTimes(plane.audit_log)
        self.scheduled: list[str] = []
        self.requests: Counter[str] = Counter() if turnover is None else turnover.requests
        self.busy_first: dict[str, float] = {}
        self.busy_last: dict[str, float] = {}
        self.first_cpu_seconds = 0.0
        self.first_bound = 0
        self._process = processes[0]
        self._processes = (*processes, plane.apiserver, plane.etcd)
        self._plane = plane
        self._turnover = turnover
        self._listed_at = -_LIST_SECONDS

    async def until_reported(self, expected: int) -> None:
        """Wait until this many pods are bound and each has an event, or until there is no bind for some time.

        Raises:
            TimeoutError: They are not bound in time.
        """
        times, began = self.times, time.monotonic()
        last, changed_at = (-1, -1), began
        async with await connected(self._plane) as connection:
            while True:
                self._read()
                seen, now = (len(times.bound), len(times.events)), time.monotonic()
                if seen != last:
                    last, changed_at = seen, now
                if seen[0] >= expected:
                    has_settled = now - changed_at > _SETTLED_SECONDS
                    if has_settled or (len(times.events) >= len(times.bound) and now - self._listed_at > _LIST_SECONDS):
                        await self._list_events(connection)
                        if has_settled or len(self.scheduled) >= len(times.bound):
                            return
                if now - began > _LIMIT_SECONDS:
                    raise TimeoutError(f"{seen[0]} of {expected} pods were bound in {_LIMIT_SECONDS:.0f} s")
                if self._turnover is not None:
                    await self._turnover.replace(connection, list(self.times.bound))
                await asyncio.sleep(self._poll_seconds())

    def _poll_seconds(self) -> float:
        if self._turnover is not None and self._turnover.keeps_up:
            return _STEADY_POLL_SECONDS
        return _POLL_SECONDS if self.first_bound else _FIRST_POLL_SECONDS

    def _read(self) -> None:
        before, bound = len(self.times.bound), self.times.read()
        if bound > before:
            self.busy_last = busy_seconds(self._processes)
            if not self.first_bound:
                self.first_cpu_seconds, self.first_bound = self._process.cpu_seconds(), bound
                self.busy_first = self.busy_last

    async def _list_events(self, connection: ApiConnection) -> None:
        """List the events: the audit log records that an event was written, but not its reason."""
        answer = await connection.request(ApiRequest("GET", _SCHEDULED_EVENTS, timeout=120.0))
        self.requests["LIST events"] += 1
        self._listed_at = time.monotonic()
        named = msgspec.json.decode(answer, type=_Events).items
        self.times.read()
        self.scheduled = [event.metadata.name for event in named if event.metadata.name in self.times.events]


async def _checked(plane: ControlPlane, workload: Workload, pods: int) -> list[str]:
    async with await connected(plane) as connection:
        nodes, placed = [
            json.loads(await connection.request(ApiRequest("GET", path, timeout=120.0)))["items"]
            for path in (NODES_PATH, PODS_PATH)
        ]
        claims = json.loads(await connection.request(ApiRequest("GET", CLAIMS_PATH, timeout=120.0)))["items"]
    return violations(workload, nodes, placed, pods) + shared_devices(claims)


# -- load of the servers ----------------------------------------------------------------------------------------------


def answered_requests(plane: ControlPlane) -> Counter[str]:
    """Return the requests so far by verb, resource and subresource, without watches."""
    return requests_of(plane.kubectl("get", "--raw=/metrics"))


def requests_of(metrics: str) -> Counter[str]:
    """Return the requests by kind, for example ``PATCH resourceclaims/status``, from the API server's metrics."""
    found: Counter[str] = Counter()
    for text, count in _REQUESTS.findall(metrics):
        labels = dict(_LABEL.findall(text))
        if labels["verb"] != "WATCH":
            resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            found[f"{labels['verb']} {resource or 'other'}"] += int(float(count))
    return found


def busy_seconds(processes: Sequence[Process]) -> dict[str, float]:
    """Return CPU seconds so far of processes, this process and the machine, and the time in seconds."""
    own = time.process_time()
    return {
        **{process.name: process.cpu_seconds() for process in processes},
        BENCHMARK: own,
        MACHINE: _machine_seconds(),
        WALL: time.monotonic(),
    }


def _machine_seconds() -> float:
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    return sum(int(fields[index]) for index in _BUSY_FIELDS) / _CLOCK_TICKS_PER_SECOND


def difference(later: Mapping[str, float], earlier: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value - earlier.get(name, 0.0), 3) for name, value in later.items()}


# -- pods that are replaced -------------------------------------------------------------------------------------------


class PodTurnover:
    """Deletions and creations of one run.

    Args:
        workload: The workload. For churn, half of the bound pods are deleted; with a number of pods in flight, all are
            deleted, and the next one is created for each.

    Attributes:
        keeps_up: Whether each bound pod is replaced at once.
    """

    def __init__(self, workload: Workload, pods: int) -> None:
        self.requests: Counter[str] = Counter()
        self.keeps_up = workload.in_flight > 0
        self._workload = workload
        self._pods = pods
        self._deleted = 0
        self._created = workload.in_flight or pods

    async def replace(self, connection: ApiConnection, bound: Sequence[str]) -> None:
        """Replace pods; *bound* has the names of the pods that were bound so far, in order."""
        last = len(bound) if self._workload.in_flight else len(bound) // 2
        numbers = [int(name.rpartition("-")[2]) for name in bound[self._deleted : last]]
        self._deleted += len(numbers)
        await asyncio.gather(*(self._replace(connection, number) for number in numbers))

    async def _replace(self, connection: ApiConnection, number: int) -> None:
        await self._delete(connection, self._workload.pod(number))
        if self._created < self._pods:
            document = self._workload.pod(self._created)
            self._created += 1
            await self._send(connection, "POST pods", ApiRequest("POST", PODS_PATH, encoded(document)))

    async def _delete(self, connection: ApiConnection, pod: Document) -> None:
        """Delete a pod, and then its claims that are not of a template, as the controller of claims would."""
        name = pod["metadata"]["name"]
        await self._send(connection, "DELETE pods", ApiRequest("DELETE", f"{PODS_PATH}/{name}", _NOW))
        for claim in pod["spec"].get("resourceClaims", ()):
            if "resourceClaimName" in claim:
                path = f"{CLAIMS_PATH}/{claim['resourceClaimName']}"
                no_finalizers = encoded({"metadata": {"finalizers": None}})
                await self._send(connection, "DELETE resourceclaims", ApiRequest("DELETE", path))
                patch = ApiRequest("PATCH", path, no_finalizers, content_type=MERGE_PATCH)
                await self._send(connection, "PATCH resourceclaims", patch)

    async def _send(self, connection: ApiConnection, kind: str, request: ApiRequest) -> None:
        self.requests[kind] += 1
        await connection.request(replace(request, timeout=_REQUEST_SECONDS))
