"""Places the pods of a cluster that exists in files only.

Owns one run: the same Scheduler as in a cluster, on an in-memory cluster and virtual time, until nothing more can be
placed. It must not know files or output.

Claims are bound by a volume controller and provisioners that are part of the simulated cluster (``memory_storage``); a
budget allows as many disruptions as its status says, none where it has no status. What a pod is decided by is fed
first, PodGroups among it, nodes then, and pods after them in the order in which an API server lists them, so that the
same objects give the same placements in a cluster whose nodes were there before the pods, for the same seed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum

from bayplan.reconcile.extenders import not_asked_notice
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.gang_placements import GangPlacement, gang_placements, why_not
from bayplan.simulation.memory_cluster import POD_SCHEDULED, MemoryCluster
from bayplan.simulation.memory_storage import MemoryStorage
from bayplan.simulation.node_usage import NodeUsage, node_usages
from bayplan.simulation.profiles import activate_profiles
from bayplan.simulation.simulated_clock import SimulatedClock
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler, SchedulerOptions

_QUIET_TURNS = 50
"""Turns of the loop without any write after which nothing happens any more but by the passing of time."""


class Verdict(Enum):
    """What became of a pod."""

    PLACED = "Placed"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "Gated"
    NO_PROFILE = "NoProfile"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Settings of a run.

    Attributes:
        seed: Settles ties among equal nodes.
        percentage_of_nodes_to_score: For profiles that set none; None all nodes, 0 kube-scheduler's formula.
        patience_seconds: Virtual time that plugins may make pods wait in all.
    """

    seed: int = 0
    percentage_of_nodes_to_score: int | None = None
    patience_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """What became of one pod that waited.

    Attributes:
        profile: The scheduler name that it asks for.
        node: Where it goes; "" for nowhere.
        reason: Why nowhere, as the PodScheduled condition would say; "" where it goes somewhere.
        attempts: How often it was tried.
    """

    namespace: str
    name: str
    profile: str
    verdict: Verdict
    node: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What became of a cluster.

    Attributes:
        pods: Pods that waited, by namespace and name.
        nodes: By name.
        running: Pods that had a node from the beginning.
        notices: Sentences about what was passed over.
        gangs: By namespace and name.
    """

    pods: tuple[PodPlacement, ...]
    nodes: tuple[NodeUsage, ...]
    running: int
    notices: tuple[str, ...]
    gangs: tuple[GangPlacement, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """How many pods ended so."""
        return sum(pod.verdict is verdict for pod in self.pods)


def installed_plugins() -> Registry:
    """The built-in plugins and those that pip installed.

    Raises:
        RegistryError: An installed plugin cannot be used.
    """
    registry = in_tree_registry()
    registry.load_entry_points()
    return registry


def simulate(
    cluster: AdmittedCluster, options: SimulationOptions | None = None, registry: Registry | None = None
) -> SimulationResult:
    """Place the pods of a cluster.

    Args:
        cluster: Nodes, pods, what they are decided by, and profiles.
        options: Settings.
        registry: The plugins that exist; those of :func:`installed_plugins` unless given.

    Returns:
        Where each pod goes, or why nowhere.

    Raises:
        ConfigError: A profile is not valid.
        RegistryError: An installed plugin cannot be used.
    """
    return asyncio.run(_simulate(cluster, options or SimulationOptions(), registry or installed_plugins()))


def populate(scheduler: Scheduler, world: MemoryCluster, cluster: AdmittedCluster) -> None:
    """Let a scheduler have the profiles and see the objects of a cluster; nothing is placed by this.

    Raises:
        ConfigError: A profile is not valid.
    """
    activate_profiles(scheduler, cluster)
    for group in cluster.groups:
        scheduler.group_feed.group_changed(group)
    for source in GroupSource:
        # A group that no file holds is missing, whichever API it is of.
        scheduler.group_feed.serve(source)
    world.watch(scheduler.feed)
    for surrounding in cluster.surroundings:
        scheduler.workload_feed.added(surrounding)
    scheduler.write_storage_with(MemoryStorage(cluster.storage, scheduler.storage_feed))
    for node in cluster.nodes:
        scheduler.feed.node_added(node)
    for pod in cluster.pods:
        world.add_pod(pod)


async def _simulate(cluster: AdmittedCluster, options: SimulationOptions, registry: Registry) -> SimulationResult:
    clock, world = SimulatedClock(), MemoryCluster()
    settings = SchedulerOptions(seed=options.seed, percentage_of_nodes_to_score=options.percentage_of_nodes_to_score)
    scheduler = Scheduler(clock, world, settings, registry)
    populate(scheduler, world, cluster)
    waiting = [pod for pod in cluster.pods if not pod.spec.node_name and not pod.is_terminal]
    # The queue forgets a pod that was bound, so what it knows is looked up before.
    queued = {pod.metadata.uid: scheduler.context.queue.find(pod.metadata.uid) for pod in waiting}
    await _run_until_idle(scheduler, clock, world, options.patience_seconds)
    running = [pod for pod in cluster.pods if pod.spec.node_name and not pod.is_terminal]
    placements = [_placement(scheduler, world, pod, queued[pod.metadata.uid]) for pod in waiting]
    gangs = gang_placements(scheduler.context.queue.gangs)
    await scheduler.stop(0)
    notices = (
        *cluster.notices,
        *_extender_notices(scheduler),
        *_homeless(cluster, running),
        *_preempted(world, running),
    )
    return SimulationResult(
        tuple(placements), node_usages(scheduler.context.cache.columns), len(running), notices, gangs
    )


async def _run_until_idle(
    scheduler: Scheduler, clock: SimulatedClock, world: MemoryCluster, patience_seconds: float
) -> None:
    """Let the scheduler work; when only the passing of time would change anything, let it pass."""
    running = asyncio.create_task(scheduler.run())
    idle = asyncio.create_task(scheduler.until_idle())
    quiet, writes = 0, world.writes
    try:
        while not running.done():
            if idle.done():
                if world.is_quiet:
                    break
                idle = asyncio.create_task(scheduler.until_idle())
            await asyncio.sleep(0)
            quiet = quiet + 1 if writes == world.writes else 0
            writes = world.writes
            if quiet > _QUIET_TURNS:
                quiet = 0
                if not clock.advance(patience_seconds):
                    break
    finally:
        running.cancel()
        idle.cancel()
        ended = await asyncio.gather(running, idle, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome


def _placement(scheduler: Scheduler, world: MemoryCluster, given: Pod, queued: QueuedPod | None) -> PodPlacement:
    meta = given.metadata
    pod = world.pod(meta.namespace, meta.name) or given
    verdict, reason = _verdict(scheduler, pod, queued)
    return PodPlacement(
        namespace=meta.namespace,
        name=meta.name,
        profile=given.spec.scheduler_name,
        verdict=verdict,
        node=pod.spec.node_name,
        reason=reason,
        attempts=0 if queued is None else queued.attempts,
    )


def _verdict(scheduler: Scheduler, pod: Pod, queued: QueuedPod | None) -> tuple[Verdict, str]:
    profile = pod.spec.scheduler_name
    if pod.spec.node_name:
        return Verdict.PLACED, ""
    if profile not in scheduler.context.profiles:
        names = ", ".join(sorted(instance.name for instance in scheduler.context.profiles))
        return Verdict.NO_PROFILE, f'no profile in the files serves schedulerName "{profile}"; there are: {names}'
    if pod.metadata.deletion_timestamp is not None:
        return Verdict.UNSCHEDULABLE, "the pod is being deleted"
    if queued is not None and queued.gated_by:
        return Verdict.GATED, ", ".join(queued.gate_reasons)
    condition = next((entry for entry in pod.status.conditions if entry.type == POD_SCHEDULED), None)
    entry = scheduler.context.waiting.get(pod.metadata.uid)
    if entry is not None:
        plugins = ", ".join(entry.pending_plugins())
        return Verdict.UNSCHEDULABLE, f"waits at Permit on node {entry.node_name} for {plugins}"
    gang = scheduler.context.queue.gangs.of_uid(pod.metadata.uid)
    if condition is None and gang is not None:
        return Verdict.GATED, f"waits for gang {gang.key}: {why_not(gang)}"
    if condition is None:
        return Verdict.ERROR, "the pod could not be queued; see the messages on standard error"
    verdict = Verdict.ERROR if condition.reason == "SchedulerError" else Verdict.UNSCHEDULABLE
    return verdict, condition.message


def _extender_notices(scheduler: Scheduler) -> list[str]:
    """What is not done of what profiles ask for."""
    told = [(instance.name, not_asked_notice(instance.config.extenders)) for instance in scheduler.context.profiles]
    return [f"profile {name}: {notice}" for name, notice in told if notice]


def _homeless(cluster: AdmittedCluster, running: list[Pod]) -> list[str]:
    known = {node.metadata.name for node in cluster.nodes}
    lost = [pod for pod in running if pod.spec.node_name not in known]
    if not lost:
        return []
    first = lost[0]
    counted = "1 pod is" if len(lost) == 1 else f"{len(lost)} pods are"
    return [f"{counted} on nodes that are not in the files, such as {first.key} on {first.spec.node_name}"]


def _preempted(world: MemoryCluster, running: list[Pod]) -> list[str]:
    gone = [pod for pod in running if world.pod(pod.metadata.namespace, pod.metadata.name) is None]
    if not gone:
        return []
    counted = "1 running pod gives" if len(gone) == 1 else f"{len(gone)} running pods give"
    first = gone[0]
    return [f"{counted} way to more important ones, such as {first.key} on {first.spec.node_name}"]
