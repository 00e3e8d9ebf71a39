"""The shared state of the scheduler's cycles, and their options."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from scheduler_core.cycle.background_search import BackgroundSearches
from scheduler_core.cycle.contested_nodes import ContestedNodes
from scheduler_core.cycle.cycle_report import CycleRecording
from scheduler_core.cycle.gang_constraints import MemberDomains
from scheduler_core.cycle.idle_binds import IdleBinds
from scheduler_core.cycle.percentage_of_nodes import NodeOrder
from scheduler_core.cycle.plugin_handle import PluginServices
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.ports import Clock, ClusterWriter
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.equivalence import DEFAULT_REUSE_BOUNDS, ReuseBounds
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.step_counter import StepCounter


class CycleOptions(Struct, frozen=True):
    """Options of cycles that apply to all profiles.

    Attributes:
        seed: Resolves ties among equal nodes; the same seed and cluster give the same placements.
        percentage_of_nodes_to_score: Default for profiles that set none; None evaluates all nodes.
        reuses_results: Whether plugin results are reused for pods of the same class.
        reuse_bounds: Bounds of what is stored for that.
        gangs_preempt: Whether a gang may evict pods of lower priority.
        gangs_backtrack: Whether nodes and devices of a gang's members are searched together if it is infeasible.
    """

    seed: int = 0
    percentage_of_nodes_to_score: int | None = None
    reuses_results: bool = True
    reuse_bounds: ReuseBounds = DEFAULT_REUSE_BOUNDS
    gangs_preempt: bool = True
    gangs_backtrack: bool = False


@dataclass(slots=True)
class CycleContext:
    """The shared state of cycles, which only :mod:`scheduler_core.cycle_assembly` takes as a whole.

    Attributes:
        node_order: Order of the nodes and start of the next search, for profiles that evaluate a percentage of them.
        suspension: Whether a cycle waits for an extender; meanwhile nothing may change the state that cycles read.
        member_domains: Domains of gangs that require one.
        options: Options that apply to all profiles.
        services: Parts that plugins use.
        steps: Counts the steps of attempts and dry runs.
        idle_binds: Counts binding cycles that wait for something other than the API server.
        background: Long searches that continue in another process.
        contested: Nodes that other schedulers have overcommitted.
    """

    cache: ClusterCache
    queue: SchedulingQueue
    profiles: ProfileTable
    waiting: WaitingPods
    clock: Clock
    writer: ClusterWriter
    node_order: NodeOrder
    suspension: Suspension
    member_domains: MemberDomains
    options: CycleOptions
    services: PluginServices
    recording: CycleRecording
    metrics: SchedulerMetrics
    steps: StepCounter
    idle_binds: IdleBinds
    background: BackgroundSearches
    contested: ContestedNodes
