"""Data shared by the steps of a cycle: the parts of the scheduler, and one attempt to schedule one pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.cycle.gang_constraints import MemberDomains, NodeReservations
from scheduler_core.cycle.quorum_barrier import GangBinding
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.preemptions import PreemptionsUnderWay
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.metrics.cycle_recorder import CycleRecorder, RecorderPool
from scheduler_core.metrics.plugin_metrics import RecordedPluginMetrics
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.metrics.slow_cycles import SlowCycles
from scheduler_core.ports import Clock, ClusterWriter, StorageWriter, Tracer
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.equivalence.reuse import DEFAULT_REUSE_BOUNDS, PodClasses, ReuseBounds
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.permitting import WaitingPodMap
from scheduler_core.runtime.pre_binding import PodsInPreBind
from scheduler_core.runtime.profile_swap import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.declared_objects import DeclaredObjects
from scheduler_core.snapshot.node_order import NodeOrder
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class LostBind:
    """A pod that another scheduler bound while it was being bound here.

    Attributes:
        pod: ``namespace/name`` of the pod.
        node_name: The node that was chosen here.
        rival_node_name: The node to which the other scheduler bound it.
        when: Time of the discovery, UTC.
    """

    pod: str
    node_name: str
    rival_node_name: str
    when: datetime


@dataclass(slots=True)
class ProfileRecord:
    """Counts of a profile since the process started, over all of its revisions.

    Attributes:
        scheduled: Pods bound.
        unschedulable: Attempts that ended in a rejection.
        errors: Attempts that ended in an error.
        last_scheduled: Time of the last successful bind, UTC.
        last_error: Message of the last error.
        lost_binds: Pods that another scheduler bound while they were being bound here.
        last_lost_bind: The last of these.
    """

    scheduled: int = 0
    unschedulable: int = 0
    errors: int = 0
    last_scheduled: datetime | None = None
    last_error: str = ""
    lost_binds: int = 0
    last_lost_bind: LostBind | None = None


class CycleOptions(Struct, frozen=True):
    """Options of cycles that apply to all profiles.

    Attributes:
        seed: Resolves ties among equal nodes; the same seed and cluster give the same placements.
        percentage_of_nodes_to_score: Default for profiles that set none; None evaluates all nodes.
        reuses_results: Whether plugin results are reused for pods of the same class.
        reuse_bounds: Bounds of what is stored for that.
        gangs_preempt: Whether a gang may evict pods of lower priority.
    """

    seed: int = 0
    percentage_of_nodes_to_score: int | None = None
    reuses_results: bool = True
    reuse_bounds: ReuseBounds = DEFAULT_REUSE_BOUNDS
    gangs_preempt: bool = True

    def percentage_of(self, instance: FrameworkInstance) -> int:
        """Return the percentage of nodes that a search must find feasible; 0 for kube-scheduler's adaptive formula."""
        for percentage in (instance.config.percentage_of_nodes_to_score, self.percentage_of_nodes_to_score):
            if percentage is not None:
                return percentage
        return 100


@dataclass(slots=True)
class PluginServices:
    """Parts of the scheduler that plugins use through their handle, besides those that cycles use.

    Attributes:
        preemptions: Preemptions whose evictions are not all issued.
        storage_writer: Writer of volumes and claims; None if they cannot be written.
        declared: Objects of kinds that plugins declare.
        metrics: Metrics that plugins record, by scheduler name.
        in_pre_bind: Pods whose PreBind runs.
    """

    preemptions: PreemptionsUnderWay
    storage_writer: StorageWriter | None = None
    declared: DeclaredObjects = field(default_factory=DeclaredObjects)
    metrics: dict[str, RecordedPluginMetrics] = field(default_factory=dict)
    in_pre_bind: PodsInPreBind = field(default_factory=PodsInPreBind)

    def metrics_of(self, profile: str) -> RecordedPluginMetrics:
        """Return the metrics that the plugins of a profile record."""
        return self.metrics.setdefault(profile, RecordedPluginMetrics())


@dataclass(frozen=True, slots=True)
class CycleRecording:
    """Recording of cycles.

    Attributes:
        recorders: Pool of recorders.
        slow_cycles: Logs cycles that take too long.
        tracer: Receives every cycle; None for no tracing.
    """

    recorders: RecorderPool
    slow_cycles: SlowCycles
    tracer: Tracer | None = None


@dataclass(slots=True)
class CycleContext:
    """The parts of the scheduler that cycles use.

    Attributes:
        node_order: Order of the nodes and start of the next search, for profiles that evaluate a percentage of them.
        suspension: Whether a cycle waits for an extender; meanwhile nothing may change the state that cycles read.
        reservations: Nodes reserved for gangs.
        member_domains: Domains of gangs that require one.
        options: Options that apply to all profiles.
        services: Parts that plugins use.
        recording: Recording of cycles.
        metrics: Metrics of the scheduler.
        records: Counts of the profiles, by scheduler name.
    """

    cache: ClusterCache
    queue: SchedulingQueue
    profiles: ProfileTable
    waiting: WaitingPodMap
    clock: Clock
    writer: ClusterWriter
    node_order: NodeOrder
    suspension: Suspension
    reservations: NodeReservations
    member_domains: MemberDomains
    options: CycleOptions
    services: PluginServices
    recording: CycleRecording
    metrics: SchedulerMetrics
    records: dict[str, ProfileRecord] = field(default_factory=dict)

    def classes_of(self, instance: FrameworkInstance) -> PodClasses:
        """Return the pod classes of a profile's revision."""
        if instance.pod_classes is None:
            instance.pod_classes = PodClasses(self.options.reuse_bounds)
        return instance.pod_classes

    def record(self, profile: str) -> ProfileRecord:
        """Return the counts of a profile."""
        return self.records.setdefault(profile, ProfileRecord())


@dataclass(slots=True)
class Attempt:
    """One attempt to schedule one pod.

    Attributes:
        queued: The pod in the queue.
        info: The pod when the attempt began; later updates do not change it.
        instance: The revision of the profile, for the whole attempt.
        state: The cycle state of the plugins.
        started: Start, in the clock's seconds.
        recorder: Records the current cycle; None in explanations, which are not recorded.
        search_ended: When the node was chosen, in the clock's seconds; None before that.
        node_name: The chosen node, "" until there is one.
        has_written_nomination: Whether the chosen node was written to the pod as its nomination.
        feasible_count: Number of feasible nodes, once it is known.
        is_sampled: Whether its plugins are timed for the metrics.
        trace: Return value of the tracer for the scheduling cycle.
        among: bool per row, the only rows to evaluate; None for all.
        among_reason: Rejection reason of the other rows.
        number: Number of the attempt; None for the number that the queue counted.
        gang: The gang with whose members the pod is bound; None for a single pod.
    """

    queued: QueuedPod
    info: PodInfo
    instance: FrameworkInstance
    started: float
    recorder: CycleRecorder | None = None
    search_ended: float | None = None
    state: CycleState = field(default_factory=CycleState)
    node_name: str = ""
    has_written_nomination: bool = False
    feasible_count: int = 0
    is_sampled: bool = False
    trace: object = None
    among: NDArray[np.bool_] | None = None
    among_reason: str = ""
    number: int | None = None
    gang: GangBinding | None = None

    def log_fields(self) -> dict[str, str]:
        """Return the log fields that identify the attempt; ``node`` only if one was chosen."""
        fields = {"pod": self.info.key, "profile": self.instance.name, "revision": self.instance.revision}
        return fields | {"node": self.node_name} if self.node_name else fields
