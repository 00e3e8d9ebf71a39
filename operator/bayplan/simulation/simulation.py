"""Schedules the pods of a cluster that exists only in files.

A run uses the same Scheduler as in a cluster, on an in-memory cluster and virtual time, until no more pod can be
scheduled. Claims are bound by the volume controller and provisioners of the simulated cluster (``MemoryStorage``);
allocated devices are ready at once, and free when all pods that hold their claim were preempted (``MemoryClaims``). A
PodDisruptionBudget allows the disruptions in its status, none without a status. Objects that decisions depend on are
reported first, including PodGroups, then nodes, then pods in the order in which an API server lists them. With the same
seed the same objects therefore get the same placements as in a cluster whose nodes existed before the pods.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

import msgspec
from msgspec import Struct

from bayplan.extenders.http_extender import extenders_skipped_notice
from bayplan.gangs.group_phase import Phase, Tally, evaluate_gang
from bayplan.settings.feature_gates import FeatureGates, with_gates
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.cluster_snapshot import report_surroundings
from bayplan.simulation.memory_cluster import POD_SCHEDULED, MemoryCluster, SimulatedClock, installed_plugins
from bayplan.simulation.packing import NodeUsage, Packing, measure_packing, node_usages, total_devices, zones_of
from bayplan.simulation.simulated_profiles import activate_profiles
from bayplan.texts.document_formats import counted
from scheduler_core.framework.diagnosis import NO_NODE_AVAILABLE
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.registry import Registry
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts

_WAITS_FOR_GROUP = "the PodGroup is not in the files; its members wait for it"


class GangPlacement(Struct, frozen=True, rename="camel"):
    """Result for one gang.

    Attributes:
        min_member: minMember of the PodGroup; 0 if there is no PodGroup.
        domain: Topology domain in which they were scheduled together.
        reason: Why the quorum is not scheduled; None if it is.
    """

    namespace: str
    name: str
    api: str
    min_member: int
    members: int
    placed: int
    domain: str | None
    phase: str
    reason: str | None


def gang_placements(gangs: Iterable[Gang]) -> tuple[GangPlacement, ...]:
    found = [_gang_placement(gang) for gang in gangs]
    return tuple(sorted(found, key=lambda each: (each.namespace, each.name, each.api)))


def unscheduled_reason(gang: Gang) -> str:
    """Return why the quorum of a gang is not scheduled; "" if it is."""
    return _phase_and_reason(gang)[1]


def _phase_and_reason(gang: Gang) -> tuple[Phase, str]:
    if gang.group is None:
        return Phase.PENDING, gang.refusal or _WAITS_FOR_GROUP
    verdict = evaluate_gang(gang, Tally.of(gang), gang.group.min_member)
    return verdict.phase, "" if verdict.is_scheduled else verdict.message


def _gang_placement(gang: Gang) -> GangPlacement:
    group, outcome, (phase, reason) = gang.group, gang.outcome, _phase_and_reason(gang)
    return GangPlacement(
        namespace=gang.key.namespace,
        name=gang.key.name,
        api=gang.key.source.value,
        min_member=0 if group is None else group.min_member,
        members=gang.members,
        placed=len(gang.placed),
        domain=outcome.domain if outcome is not None and outcome.is_scheduled and outcome.domain else None,
        phase=phase.value,
        reason=reason or None,
    )


_QUIET_TURNS = 50
"""Turns of the event loop without a write after which only timers can cause further changes."""
_RESTART_SECONDS = 30.0
"""Maximum virtual time for the decisions of restarted pods: more than a backoff."""


class Verdict(Enum):
    PLACED = "Placed"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "Gated"
    NO_PROFILE = "NoProfile"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Settings of a run.

    Attributes:
        seed: Seed that resolves ties between nodes with equal scores.
        percentage_of_nodes_to_score: Default for profiles that set none; None for all nodes, 0 for kube-scheduler's
            formula.
        patience_seconds: Maximum virtual time of the simulation.
        plans_moves: Whether plans of moves are made.
        gates: Feature gates; None for the defaults. Those that decide which PodGroups are read have no effect.
    """

    seed: int = 0
    percentage_of_nodes_to_score: int | None = None
    patience_seconds: float = 3600.0
    gates: FeatureGates | None = None
    plans_moves: bool = False

    def of_scheduler(self) -> SchedulerOptions:
        # Nothing else runs in the process, so dry runs may take as long as attempts.
        options = SchedulerOptions(
            seed=self.seed,
            percentage_of_nodes_to_score=self.percentage_of_nodes_to_score,
            dry_run_steps=None,
            plans_moves=self.plans_moves,
        )
        return with_gates(options, self.gates or FeatureGates())


class PodPlacement(Struct, frozen=True, rename="camel"):
    """Result for one pending pod, with the reason of its condition PodScheduled, None if it is scheduled."""

    namespace: str
    name: str
    profile: str = msgspec.field(name="schedulerName")
    verdict: Verdict
    node: str | None
    reason: str | None
    attempts: int


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Result of a simulation.

    Attributes:
        packing: Totals and fragmentation at the end, for the pods of ``pods``.
        notices: Notices about ignored objects and other limitations.
        preempted: Running pods that were preempted, as ``namespace/name``.
    """

    pods: tuple[PodPlacement, ...]
    nodes: tuple[NodeUsage, ...]
    packing: Packing
    running: int
    notices: tuple[str, ...]
    gangs: tuple[GangPlacement, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    preempted: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        return sum(pod.verdict is verdict for pod in self.pods)


Inspect = Callable[[Scheduler, Sequence[PodPlacement]], Awaitable[None]]
"""Reads the scheduler at the end of a run, between two cycles, with the results of the pods."""


def read_cluster(files: Sequence[str], *, allow_invalid: bool = False, plans_moves: bool = False) -> AdmittedCluster:
    """Read a cluster from files, for the installed plugins; raises ConfigError with every problem of the files."""
    decoded = installed_plugins().decoded_types(reads_marks=True, plans_moves=plans_moves)
    return admit(read_cluster_files(files, decoded, allow_invalid=allow_invalid))


def simulate(
    cluster: AdmittedCluster,
    options: SimulationOptions | None = None,
    registry: Registry | None = None,
    restarts: Sequence[Sequence[Pod]] = (),
    inspect: Inspect | None = None,
) -> SimulationResult:
    """Schedule the pods of a cluster.

    Args:
        restarts: Running pods that are restarted after the pending ones are decided: the pods of one entry are deleted
            and created again without a node, and the next entry follows when they are decided.
    """
    plugins = registry or installed_plugins()
    return asyncio.run(_simulate(cluster, options or SimulationOptions(), plugins, restarts, inspect))


def offline(cluster: AdmittedCluster, options: SimulationOptions) -> Scheduler:
    """Return a scheduler with a cluster in memory, in which no pod is scheduled."""
    world = MemoryCluster()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims)
    clock = SimulatedClock(datetime.now(UTC))
    scheduler = Scheduler(clock, world, options.of_scheduler(), installed_plugins(), ports=ports)
    populate(scheduler, world, cluster)
    return scheduler


def populate(scheduler: Scheduler, world: MemoryCluster, cluster: AdmittedCluster) -> None:
    """Activate the profiles of a cluster and report its objects to a scheduler; no pod is scheduled."""
    activate_profiles(scheduler, cluster)
    report_surroundings(scheduler, cluster)
    world.watch(scheduler.feed)
    world.storage.serve(cluster.storage, scheduler.storage_feed)
    world.claims.serve(cluster.devices, scheduler.device_feed)
    for node in cluster.nodes:
        scheduler.feed.node_added(node)
    for pod in cluster.pods:
        world.add_pod(pod)


async def _simulate(
    cluster: AdmittedCluster,
    options: SimulationOptions,
    registry: Registry,
    restarts: Sequence[Sequence[Pod]],
    inspect: Inspect | None,
) -> SimulationResult:
    clock, world = SimulatedClock(), MemoryCluster()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims)
    scheduler = Scheduler(clock, world, options.of_scheduler(), registry, ports=ports)
    populate(scheduler, world, cluster)
    # The queue drops a bound pod, so its entries are looked up before.
    decided = {
        pod.metadata.uid: (pod, scheduler.context.queue.find(pod.metadata.uid))
        for pod in cluster.pods
        if not pod.spec.node_name and not pod.is_terminal
    }
    await _run_until_idle(scheduler, clock, world, options.patience_seconds)
    for together in restarts:
        for pod in together:
            world.remove_pod(pod)
        for pod in together:
            pending = pod_to_schedule(pod)
            world.add_pod(pending)
            decided[pod.metadata.uid] = pending, scheduler.context.queue.find(pod.metadata.uid)
        await _run_until_idle(scheduler, clock, world, clock.now() + _RESTART_SECONDS)
    running = [pod for pod in cluster.pods if pod.spec.node_name and not pod.is_terminal]
    placements = [_placement(scheduler, world, pod, queued) for pod, queued in decided.values()]
    gangs = gang_placements(scheduler.context.queue.gangs)
    if inspect is not None:
        await inspect(scheduler, placements)
    await scheduler.stop(0)
    preempted = [pod for pod in running if world.pod(pod.metadata.namespace, pod.metadata.name) is None]
    notices = (
        *cluster.notices,
        *_extender_notices(scheduler),
        *_pods_on_unknown_nodes(cluster, running),
        *_preempted(preempted),
    )
    columns = scheduler.context.cache.columns
    nodes = node_usages(columns)
    pods = [pod for pod, _ in decided.values()]
    placed = [each.node for each in placements if each.node]
    return SimulationResult(
        pods=tuple(placements),
        nodes=nodes,
        packing=measure_packing(nodes, total_devices(columns), pods, zones_of(cluster.nodes), placed),
        running=len(running),
        notices=notices,
        gangs=gangs,
        claims=world.claims.claims,
        preempted=tuple(pod.key for pod in preempted),
    )


def pod_to_schedule(pod: Pod) -> Pod:
    """Return a running pod as its controller would create it again: without a node, and with an empty status."""
    status = type(pod.status)(resource_claim_statuses=pod.status.resource_claim_statuses)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""), status=status)


async def _run_until_idle(scheduler: Scheduler, clock: SimulatedClock, world: MemoryCluster, until: float) -> None:
    """Run the scheduler; advance the clock, at most to ``until``, whenever only timers can cause further changes."""
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
                if not clock.advance(until):
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
    current = world.pod(meta.namespace, meta.name)
    pod = current or given
    verdict, reason = (
        (Verdict.UNSCHEDULABLE, "scheduled and then preempted")
        if current is None
        else _verdict(scheduler, current, queued)
    )
    return PodPlacement(
        namespace=meta.namespace,
        name=meta.name,
        profile=given.spec.scheduler_name,
        verdict=verdict,
        node=pod.spec.node_name or None,
        reason=reason or None,
        attempts=0 if queued is None else queued.attempts,
    )


def _verdict(scheduler: Scheduler, pod: Pod, queued: QueuedPod | None) -> tuple[Verdict, str]:
    profile = pod.spec.scheduler_name
    if pod.spec.node_name:
        return Verdict.PLACED, ""
    if profile not in scheduler.context.profiles:
        names = ", ".join(sorted(instance.name for instance in scheduler.context.profiles))
        return (
            Verdict.NO_PROFILE,
            f'no profile in the files serves schedulerName "{profile}"; available profiles: {names}',
        )
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
        return Verdict.GATED, f"waits for gang {gang.key}: {unscheduled_reason(gang)}"
    if condition is None:
        return Verdict.ERROR, "the pod could not be queued; see the messages on standard error"
    verdict = Verdict.ERROR if condition.reason == "SchedulerError" else Verdict.UNSCHEDULABLE
    return verdict, condition.message


def _extender_notices(scheduler: Scheduler) -> list[str]:
    """Return a notice for each profile whose extenders are not called."""
    notices = [
        (instance.name, extenders_skipped_notice(instance.config.extenders)) for instance in scheduler.context.profiles
    ]
    return [f"profile {name}: {notice}" for name, notice in notices if notice]


def _pods_on_unknown_nodes(cluster: AdmittedCluster, running: list[Pod]) -> list[str]:
    known = {node.metadata.name for node in cluster.nodes}
    lost = [pod for pod in running if pod.spec.node_name not in known]
    if not lost:
        return []
    are, first = "is" if len(lost) == 1 else "are", f"{lost[0].key} on {lost[0].spec.node_name}"
    return [f"{counted(len(lost), 'pod')} {are} on nodes that are not in the files, such as {first}"]


def _preempted(gone: list[Pod]) -> list[str]:
    if not gone:
        return []
    are, first = "is" if len(gone) == 1 else "are", gone[0]
    return [f"{counted(len(gone), 'running pod')} {are} preempted, such as {first.key} on {first.spec.node_name}"]


_NO_NODE = re.compile(NO_NODE_AVAILABLE.format(count=r"\d+") + ": (?P<reasons>.*)", re.DOTALL)
_NEXT_REASON = re.compile(r", (?=\d+ )")
_NUMBER = re.compile(r"^\d+ ")
_END = re.compile(r"\.(?: |$)")
_QUOTED = re.compile('"[^"]*"')
_PERMIT_NODE = re.compile(r"^(waits at Permit) on node \S+")
NO_ROOM_FOR_GANG = "no room for its gang: "
_OUTSIDE_DOMAIN = "node(s) were outside the gang's domain"


class RejectionCause(Struct, frozen=True):
    """Cause for which pods are not scheduled, with one of them as ``namespace/name``."""

    verdict: Verdict
    text: str = msgspec.field(name="cause")
    pods: int
    example: str


def rejection_causes(pods: Iterable[PodPlacement]) -> tuple[RejectionCause, ...]:
    """Group the pods that are not scheduled by cause, largest group first."""
    counts, examples = Counter[tuple[Verdict, str]](), dict[tuple[Verdict, str], str]()
    for pod in pods:
        if pod.verdict is not Verdict.PLACED:
            key = pod.verdict, cause_of(pod.reason or "")
            counts[key] += 1
            examples.setdefault(key, f"{pod.namespace}/{pod.name}")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0][1], item[0][0].value))
    return tuple(RejectionCause(*key, count, examples[key]) for key, count in ordered)


def cause_of(message: str) -> str:
    """Return the distinct reasons of a message in alphabetical order; the message if it counts no nodes."""
    found = _NO_NODE.search(message)
    if found is None:
        return _PERMIT_NODE.sub(r"\1", message)
    rejection = without_names(_END.split(found["reasons"], maxsplit=1)[0])
    # A rejection by PreFilter holds for all nodes and has no number: its one reason may contain commas.
    reasons = {_NUMBER.sub("", reason) for reason in _NEXT_REASON.split(rejection)}
    inside = {reason for reason in reasons if not reason.startswith(_OUTSIDE_DOMAIN)}
    text = ", ".join(sorted(inside or {_OUTSIDE_DOMAIN}))
    return text if found.start() == 0 else f"{NO_ROOM_FOR_GANG}{text}"


def without_names(text: str) -> str:
    """Return a reason without quoted names, so that the reasons of pods that differ only in names are equal."""
    return _QUOTED.sub('"..."', text)
