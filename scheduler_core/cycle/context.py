"""What all steps of a cycle share.

Owns nothing itself: it names the parts that belong together and the options that hold for all profiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.gang_binding import GangBinding
from scheduler_core.cycle.gang_reservations import GangReservations
from scheduler_core.cycle.measures import Measures
from scheduler_core.cycle.plugin_metrics import ProfileMetrics
from scheduler_core.cycle.slow_cycles import SlowCycles
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import CycleTimesPool
from scheduler_core.framework.preemptions import PreemptionsUnderWay
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.ports import Clock, ClusterWriter, StorageWriter, Tracer
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.equivalence.reuse import DEFAULT_REUSE_BOUNDS, PodClasses, ReuseBounds
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.permitting import WaitingPodMap
from scheduler_core.runtime.pre_binding import PodsInPreBind
from scheduler_core.runtime.profiles import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.declared_objects import DeclaredObjects
from scheduler_core.snapshot.node_order import NodeOrder
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class LostBind:
    """A pod that someone else has bound while it was being bound here.

    Attributes:
        pod: Its namespace and name, joined by a slash.
        node_name: The node that was chosen here.
        rival_node_name: The node that it runs on.
        when: When that was found, UTC.
    """

    pod: str
    node_name: str
    rival_node_name: str
    when: datetime


@dataclass(slots=True)
class ProfileRecord:
    """What a profile has done since the process started; instances come and go, this stays.

    Attributes:
        scheduled: Pods bound.
        unschedulable: Attempts that ended in a rejection.
        errors: Attempts that ended in an error.
        last_scheduled: When the last pod was bound, UTC.
        last_error: The text of the last error.
        lost_binds: Pods that someone else has bound while they were being bound here.
        last_lost_bind: The last of these.
    """

    scheduled: int = 0
    unschedulable: int = 0
    errors: int = 0
    last_scheduled: datetime | None = None
    last_error: str = ""
    lost_binds: int = 0
    last_lost_bind: LostBind | None = None


@dataclass(slots=True)
class CycleContext:
    """The parts.

    Attributes:
        seed: Settles ties among equal nodes; equal seeds and equal clusters give equal placements.
        percentage_of_nodes_to_score: For profiles that set none themselves; None looks at all nodes.
        next_start: Where the next search begins, for profiles that look at a percentage of the nodes.
        records: What profiles have done, by scheduler name.
        storage_writer: Writes volumes and claims; None where they cannot be written.
        declared: Objects of kinds that plugins declare.
        metrics: What plugins tell of themselves, by scheduler name.
        measures: What the scheduler itself costs and does.
        times: Readings for cycles.
        slow_cycles: Tells of cycles that take too long.
        tracer: Is told of every cycle; None for nobody.
        in_pre_bind: Pods whose PreBind runs.
        preemptions: Preemptions whose evictions are still to be issued.
        nearest_again: Before which time it is not found out what gangs lack least, in the clock's seconds.
        reuses_results: Whether plugin results are reused for pods of the same class.
        reuse_bounds: Bounds of what is stored for that.
        gangs_preempt: Whether a gang may evict pods of lower priority.
        reservations: Capacity that is kept for gangs.
        suspension: Whether a cycle waits for an extender; until it is over nothing may change what cycles read.
    """

    cache: ClusterCache
    queue: SchedulingQueue
    profiles: ProfileTable
    waiting: WaitingPodMap
    clock: Clock
    writer: ClusterWriter
    node_order: NodeOrder
    seed: int = 0
    percentage_of_nodes_to_score: int | None = None
    next_start: int = 0
    records: dict[str, ProfileRecord] = field(default_factory=dict)
    storage_writer: StorageWriter | None = None
    declared: DeclaredObjects = field(default_factory=DeclaredObjects)
    metrics: dict[str, ProfileMetrics] = field(default_factory=dict)
    measures: Measures = field(default_factory=Measures)
    slow_cycles: SlowCycles = field(default_factory=SlowCycles)
    tracer: Tracer | None = None
    in_pre_bind: PodsInPreBind = field(default_factory=PodsInPreBind)
    preemptions: PreemptionsUnderWay = field(default_factory=PreemptionsUnderWay)
    suspension: Suspension = field(default_factory=Suspension)
    nearest_again: float = 0.0
    reuses_results: bool = True
    reuse_bounds: ReuseBounds = DEFAULT_REUSE_BOUNDS
    gangs_preempt: bool = True
    times: CycleTimesPool = field(init=False)
    reservations: GangReservations = field(init=False)

    def __post_init__(self) -> None:
        """All cycles are read off the one clock."""
        self.times = CycleTimesPool(self.clock.now)
        self.reservations = GangReservations(self.cache.columns, self.queue, self.clock, self.suspension.report)

    def classes_of(self, instance: FrameworkInstance) -> PodClasses:
        """Return the pod classes of a profile's revision."""
        if instance.pod_classes is None:
            instance.pod_classes = PodClasses(self.reuse_bounds)
        return instance.pod_classes

    def percentage_of(self, instance: FrameworkInstance) -> int:
        """How many percent of the nodes a search of a profile must find feasible; 0 is the adaptive formula."""
        for percentage in (instance.config.percentage_of_nodes_to_score, self.percentage_of_nodes_to_score):
            if percentage is not None:
                return percentage
        return 100

    def metrics_of(self, profile: str) -> ProfileMetrics:
        """What the plugins of a profile tell."""
        return self.metrics.setdefault(profile, ProfileMetrics())

    def record(self, profile: str) -> ProfileRecord:
        """The record of a profile."""
        return self.records.setdefault(profile, ProfileRecord())


@dataclass(slots=True)
class Attempt:
    """One try to place one pod.

    Attributes:
        queued: The pod in the queue.
        info: The pod as it was when the attempt began; an update meanwhile does not touch it.
        instance: The profile's revision that decides, from begin to end.
        state: What plugins keep.
        started: The clock's time.
        node_name: The chosen node, "" until there is one.
        is_node_told: Whether the chosen node was written to the pod as its nomination.
        feasible_count: Nodes on which the pod fits, once that is known.
        is_sampled: Whether its plugins' times are counted.
        trace: What the tracer gave for the scheduling cycle.
        among: bool per row, the only rows to look at; None for all.
        among_reason: Why the others are not looked at, for people.
        number: Which of the pod's attempts it is; None for that which the queue has counted.
        gang: The gang with whose members it is bound together; None for a pod that is bound alone.
    """

    queued: QueuedPod
    info: PodInfo
    instance: FrameworkInstance
    started: float
    state: CycleState = field(default_factory=CycleState)
    node_name: str = ""
    is_node_told: bool = False
    feasible_count: int = 0
    is_sampled: bool = False
    trace: object = None
    among: NDArray[np.bool_] | None = None
    among_reason: str = ""
    number: int | None = None
    gang: GangBinding | None = None
