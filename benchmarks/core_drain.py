"""Schedules one backlog by the core alone, in memory, and measures its cost.

Pods are received, scheduled, bound and confirmed as in the operator, by a simulated cluster that responds at once: no
request is sent and nothing is decoded.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import msgspec
from bayplan.kube.served_apis import OPTIONAL, REQUIRED
from bayplan.kube.timing import SystemClock
from bayplan.simulation.memory_cluster import MemoryCluster

from benchmarks.workloads import SCHEDULER_NAME, Document, Workload, encoded, node, placed, workload_named
from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.framework.cycle_state import STAGE_NAMES, CycleStage
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler, SchedulerPorts
from scheduler_core.snapshot.indexes.device_index import DeviceObject

_NODE = msgspec.json.Decoder(Node)
_POD = msgspec.json.Decoder(Pod)
_WARM_PODS = 50
"""Pods scheduled before the measurement, to warm up NumPy and the interpreter."""
_FIRST_OCCUPIED = 500_000
"""First number of these pods, above the numbers of a workload's own pods."""
_IDLE_TURNS = 8
"""Iterations of the loop without a pod to schedule after which the run ends: victims and events arrive earlier."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of one backlog.

    Attributes:
        pods: Timed attempts; a pod that preempts is attempted twice.
        taken_in_us: CPU µs per pod for compiling and queueing it.
        decided_us: CPU µs per attempt from the pop to Reserve, or to the diagnosis.
        bound_us: CPU µs per bound pod for binding and confirming.
        occupied: Pods bound beforehand in addition to those of the workload.
        points: µs per pod by extension point, from the scheduler's own metrics.
        plugins: µs per run by ``point/plugin``, from the few cycles in which plugins are timed.
        victims: Evicted pods.
    """

    workload: str
    nodes: int
    pods: int
    bound: int
    taken_in_us: float
    decided_us: float
    bound_us: float
    occupied: int = 0
    repetition: int = 1
    created: int = 0
    points: dict[str, float] = field(default_factory=dict)
    plugins: dict[str, float] = field(default_factory=dict)
    victims: int = 0

    @property
    def rate(self) -> float:
        """Return pods per second of CPU time."""
        return 1e6 * self.created / (self.decided_us * self.pods + self.bound_us * self.bound)


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a measurement.

    Attributes:
        occupied: Pods bound beforehand in addition to those of the workload.
    """

    nodes: int
    pods: int
    occupied: int = 0
    repetition: int = 1


def decoded_node(document: Document) -> Node:
    """Return a node as an informer would decode it."""
    document["metadata"]["uid"] = f"uid-of-{document['metadata']['name']}"
    return _NODE.decode(encoded(document))


def decoded_pod(document: Document) -> Pod:
    """Return a pod as an informer would decode it."""
    document["metadata"]["uid"] = f"uid-of-{document['metadata']['name']}"
    return _POD.decode(encoded(document))


def device_object(path: str, document: Document) -> DeviceObject:
    """Return an object of a workload with devices, as an informer would decode it.

    Raises:
        KeyError: The path is of another collection.
    """
    kind = {**REQUIRED, **OPTIONAL}[path.rpartition("/")[2]]
    metadata = {"uid": f"uid-of-{document['metadata']['name']}", "resourceVersion": "1", **document["metadata"]}
    decoded: DeviceObject = msgspec.json.decode(encoded({**document, "metadata": metadata}), type=kind)
    return decoded


def scheduler_with(workload: Workload, nodes: int, pods: int, occupied: int = 0) -> tuple[Scheduler, MemoryCluster]:
    """Return a scheduler with the nodes and their pods in its cache, and the cluster that it writes to."""
    cluster = MemoryCluster()
    scheduler = Scheduler(SystemClock(), cluster, ports=SchedulerPorts(claims=cluster.claims))
    preemption = PreemptionSettings(devices=workload.frees_devices)
    profile = ProfileConfig(scheduler_name=SCHEDULER_NAME, preemption=preemption)
    scheduler.activate([scheduler.build(profile)])
    for number in range(nodes):
        scheduler.feed.node_added(decoded_node(node(number)))
    cluster.watch(scheduler.feed)
    cluster.claims.serve(
        (device_object(path, document) for path, document in workload.others(nodes, pods)), scheduler.device_feed
    )
    for document in workload.before(nodes, pods):
        cluster.add_pod(decoded_pod(document))
    for number in range(occupied):
        name = f"node-{number % nodes:05d}"
        cluster.add_pod(decoded_pod(placed(_FIRST_OCCUPIED + number, name, cpu_milli=1, memory_mib=1)))
    return scheduler, cluster


class Clocked:
    """CPU seconds of steps of one kind."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._since


async def _delete(scheduler: Scheduler, cluster: MemoryCluster, pod: Pod) -> None:
    """Delete a pod and its claims, as the controller of claims would."""
    scheduler.feed.pod_deleted(pod)
    for reference in pod.spec.resource_claims:
        claim = scheduler.context.cache.columns.devices.claims.get(
            f"{pod.metadata.namespace}/{reference.resource_claim_name}"
        )
        if claim is not None:
            await cluster.claims.delete(claim)


async def drain(scheduler: Scheduler, cluster: MemoryCluster, *, churn: bool) -> tuple[int, int, Clocked, Clocked]:
    """Schedule and bind until no pod is left; return the attempts, the bound pods, and the CPU time of both steps.

    Slices of 64 pods are scheduled and then bound, as in the scheduler's loop.
    """
    context, deciding, binding = scheduler.context, Clocked(), Clocked()
    tried = bound = idle = 0
    leaving: list[Pod] = []
    while idle < _IDLE_TURNS:
        attempts = []
        with deciding:
            for _ in range(64):
                queued = context.queue.pop()
                if queued is None:
                    break
                assert not isinstance(queued, QueuedGang), "no workload has gangs"
                tried += 1
                attempt = scheduler.cycles.pods.schedule(queued)
                if attempt is not None:
                    attempts.append(attempt)
        idle = idle + 1 if queued is None and not attempts else 0
        with binding:
            for attempt in attempts:
                bound += await scheduler.cycles.binding.bind(attempt)
            await asyncio.sleep(0)
        if churn:
            for gone in leaving:
                await _delete(scheduler, cluster, gone)
            leaving = [attempt.info.pod for attempt in attempts]
    return tried, bound, deciding, binding


async def measure(workload: Workload, size: Size, profiler: AbstractContextManager[object] | None = None) -> Measured:
    """Schedule one backlog.

    Raises:
        RuntimeError: The number of bound pods differs from that of the workload.
    """
    nodes, pods = size.nodes, size.pods
    scheduler, cluster = scheduler_with(workload, nodes, pods, size.occupied)
    warm = min(_WARM_PODS, pods // 10)
    made = [decoded_pod(workload.pod(number)) for number in range(pods)]
    for each in made[:warm]:
        cluster.add_pod(each)
    _, bound_before, _, _ = await drain(scheduler, cluster, churn=workload.churn)
    points, plugins = parts_of(scheduler.context.metrics)
    cluster.events.clear()
    gc.collect()
    gc.freeze()
    taking = Clocked()
    with profiler or nullcontext():
        with taking:
            for each in made[warm:]:
                cluster.add_pod(each)
        tried, bound, deciding, binding = await drain(scheduler, cluster, churn=workload.churn)
    gc.unfreeze()
    later_points, later_plugins = parts_of(scheduler.context.metrics)
    expected = workload.bound_of(pods)
    if bound + bound_before != expected and not workload.preempts:
        raise RuntimeError(f"{workload.name}: {bound + bound_before} of {expected} pods were bound; use more nodes")
    count = pods - warm
    return Measured(
        workload.name,
        nodes,
        tried,
        bound,
        1e6 * taking.seconds / count,
        1e6 * deciding.seconds / tried,
        1e6 * binding.seconds / max(1, bound),
        size.occupied,
        size.repetition,
        count,
        between(points, later_points, count),
        between(plugins, later_plugins),
        sum(event.reason == "Preempted" for event in cluster.events),
    )


Spent = dict[str, tuple[float, int]]
"""Seconds and runs since the scheduler started, by extension point or ``point/plugin``."""


def parts_of(metrics: SchedulerMetrics) -> tuple[Spent, Spent]:
    """Return what extension points and plugins took, with their names in the metrics."""
    metrics.settle()
    points, plugins = Spent(), Spent()
    of_points = [
        (STAGE_NAMES[point], histogram)
        for point in CycleStage
        for histogram in metrics.profiles[SCHEDULER_NAME].stages.histograms[point]
    ]
    of_plugins = [
        (f"{STAGE_NAMES[point]}/{plugin}", histogram) for (point, plugin, _), histogram in metrics.plugins.items()
    ]
    for spent, histograms in ((points, of_points), (plugins, of_plugins)):
        for name, histogram in histograms:
            seconds, runs = spent.get(name, (0.0, 0))
            spent[name] = seconds + histogram.total, runs + histogram.count
    return points, plugins


def between(before: Spent, after: Spent, pods: int = 0) -> dict[str, float]:
    """Return the microseconds between two readings per pod, or per run without pods; what did not run is left out."""
    found = {}
    for name, (seconds, runs) in after.items():
        earlier_seconds, earlier_runs = before.get(name, (0.0, 0))
        if runs > earlier_runs:
            found[name] = 1e6 * (seconds - earlier_seconds) / (pods or runs - earlier_runs)
    return found


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a cluster.

    Attributes:
        whole_mib: MiB of the whole process at the end.
    """

    nodes: int
    pods: int
    node_kib: float
    pod_kib: float
    whole_mib: float


def measured_memory(nodes: int, pods: int) -> Memory:
    """Measure the memory of a scheduler, with its objects and columns, in this process: see :func:`memory_of`."""
    scheduler_with(workload_named("basic"), 1, 0)
    empty = resident_mib()
    scheduler, _ = scheduler_with(workload_named("basic"), nodes, 0)
    after_nodes = resident_mib()
    for number in range(pods):
        scheduler.feed.pod_added(decoded_pod(placed(number, f"node-{number % nodes:05d}", cpu_milli=1, memory_mib=1)))
    whole = resident_mib()
    pod_kib = 1024 * (whole - after_nodes) / max(1, pods)
    return Memory(nodes, pods, 1024 * (after_nodes - empty) / nodes, pod_kib, whole)


def memory_of(nodes: int, pods: int) -> Memory:
    """Measure the memory in a new process: what an earlier measurement freed would be reused and not be counted."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(measured_memory, nodes, pods).result()


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20
