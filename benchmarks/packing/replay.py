"""Schedules arriving pods by the core, in memory, under one profile, and measures the free and fragmented GPUs.

Pods are received, scheduled, bound and confirmed one after the other, as in `bayplan simulate`; no pod ends. An
infeasible pod stays pending.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from bayplan_example_plugins.gpu_shares import GpuShares
from bayplan_example_plugins.gpu_shares.args import GPU_MILLI, GpuSharesArgs, TypicalPod
from bayplan_example_plugins.gpu_shares.fragmentation import TargetWorkload
from bayplan_example_plugins.gpu_shares.gpu_columns import GpuColumns

from benchmarks.packing.trace import TraceNode, TracePod
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from scheduler_core.snapshot.node_columns import ALL_ROWS

_NAMES = GpuSharesArgs()
SCHEDULER_NAME = "packing"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a profile.

    Attributes:
        seed: Seed of the arrivals and of ties.
        given: Digest of nodes and arrivals: only outcomes with equal digests are comparable.
        arrived, pending: Number of pods, and of pods without a node.
        capacity_gpus, arrived_gpus, allocated_gpus: Numbers of GPUs of the nodes, requested by pods, and allocated to
            pods.
        fragmented_gpus: Expected fragmentation of the free GPUs, by the definition of the paper.
        decided_us: CPU µs per pod from the pop to Reserve, or to the diagnosis.
        bound_us: CPU µs per bound pod for binding and confirming.
    """

    profile: str
    seed: int
    given: str
    arrived: int
    pending: int
    capacity_gpus: float
    arrived_gpus: float
    allocated_gpus: float
    fragmented_gpus: float
    decided_us: float
    bound_us: float

    @property
    def allocated_percent(self) -> float:
        """Share of all GPUs that is allocated, in percent."""
        return 100 * self.allocated_gpus / self.capacity_gpus


@dataclass(frozen=True, slots=True)
class Replay:
    """Nodes and arriving pods.

    Attributes:
        nodes: The nodes, empty at first.
        arrivals: The pods in the order of their arrival; a pod may occur several times.
        expected: The workload for which fragmentation is measured.
        seed: Resolves ties.
    """

    nodes: Sequence[TraceNode]
    arrivals: Sequence[TracePod]
    expected: Sequence[TypicalPod]
    seed: int = 0

    @property
    def digest(self) -> str:
        text = repr((self.nodes, self.arrivals, self.expected, self.seed))
        return blake2b(text.encode(), digest_size=8).hexdigest()


def replay(profile: str, config: Mapping[str, Any], given: Replay) -> Outcome:
    """Schedule the pods of a replay.

    Args:
        config: Its plugins and their args, as in the spec of a SchedulerProfile.

    Raises:
        ConfigError: The profile is invalid.
    """
    return asyncio.run(_replay(profile, config, given))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A scheduler after the last arrival; stop it.

    Attributes:
        deciding, binding: CPU seconds.
    """

    scheduler: Scheduler
    bound: int
    deciding: float
    binding: float


async def scheduled(config: Mapping[str, Any], given: Replay) -> Scheduled:
    """Schedule the pods of a replay; arguments and errors are those of :func:`replay`."""
    registry = in_tree_registry()
    registry.register(GpuShares)
    types = registry.decoded_types()
    cluster = MemoryCluster()
    scheduler = Scheduler(SimulatedClock(), cluster, SchedulerOptions(seed=given.seed), registry)
    scheduler.activate([scheduler.build(ProfileConfig.model_validate({**config, "schedulerName": SCHEDULER_NAME}))])
    cluster.watch(scheduler.feed)
    for each in given.nodes:
        scheduler.feed.node_added(msgspec.convert(node_document(each), types.node))
    pods = [_pod(number, each, types.pod) for number, each in enumerate(given.arrivals)]
    return Scheduled(scheduler, *await _schedule(scheduler, cluster, pods))


async def _replay(profile: str, config: Mapping[str, Any], given: Replay) -> Outcome:
    arrivals, seed = given.arrivals, given.seed
    target = TargetWorkload(given.expected)
    found = await scheduled(config, given)
    scheduler = found.scheduler
    columns = GpuColumns(scheduler.context.cache.columns, _NAMES)
    columns.refresh()
    states = columns.states(ALL_ROWS)
    fragments = target.expected_fragments(states.cpu_milli, states.gpu_milli, states.models, states.model_names).sum()
    await scheduler.stop(0)
    return Outcome(
        profile,
        seed,
        given.digest,
        len(arrivals),
        len(arrivals) - found.bound,
        float(states.gpus.sum()),
        sum(each.gpu_milli for each in arrivals) / GPU_MILLI,
        float((states.gpus * GPU_MILLI - states.gpu_milli.sum(axis=1)).sum()) / GPU_MILLI,
        float(fragments) / GPU_MILLI / target.total_weight,
        1e6 * found.deciding / len(arrivals),
        1e6 * found.binding / max(1, found.bound),
    )


async def _schedule(scheduler: Scheduler, cluster: MemoryCluster, pods: Sequence[Pod]) -> tuple[int, float, float]:
    """Return the bound pods, and the CPU seconds for deciding and for binding."""
    bound, deciding, binding = 0, 0.0, 0.0
    for pod in pods:
        cluster.add_pod(pod)
        started = time.process_time()
        queued = scheduler.context.queue.pop()
        assert queued is not None, "the pod that was added is active"
        assert not isinstance(queued, QueuedGang), "no pod of a trace belongs to a gang"
        attempt = scheduler.cycles.pods.schedule(queued)
        decided = time.process_time()
        deciding += decided - started
        if attempt is not None:
            bound += await scheduler.cycles.binding.bind(attempt)
        await asyncio.sleep(0)
        binding += time.process_time() - decided
    return bound, deciding, binding


def node_document(node: TraceNode) -> dict[str, Any]:
    amounts = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": "1000"}
    labels = {"kubernetes.io/hostname": node.name}
    if node.gpus:
        amounts[_NAMES.resource] = str(node.gpus * GPU_MILLI)
        labels[_NAMES.model_label] = node.model
    metadata = {"name": node.name, "uid": f"uid-of-{node.name}", "labels": labels}
    return {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}}


def _pod(number: int, pod: TracePod, kind: type[Pod]) -> Pod:
    document = pod_document(pod)
    name = f"{number:06d}-{pod.name}"
    document["metadata"] = {"name": name, "namespace": "trace", "uid": f"uid-of-{name}"}
    return msgspec.convert(document, kind)


def pod_document(pod: TracePod) -> dict[str, Any]:
    """Return a pod as a manifest without metadata; its GPU models are a node affinity."""
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    if pod.gpu_milli:
        requests[_NAMES.resource] = str(pod.gpu_milli)
    container = {"name": "main", "image": "main", "resources": {"requests": requests}}
    spec: dict[str, Any] = {"schedulerName": SCHEDULER_NAME, "containers": [container]}
    if pod.models:
        requirement = {"key": _NAMES.model_label, "operator": "In", "values": list(pod.models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"spec": spec}
