"""Settings of a scheduler that apply to all profiles, and the ports that it can do without."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.cycle.journal import Journal
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.gangs.reservation_lifecycle import RESERVED_AFTER_SECONDS
from scheduler_core.metrics.attempt_reports import SLOW_CYCLE_SECONDS, AttemptHistory
from scheduler_core.model.pod_group import ForeignGangs
from scheduler_core.ports import ClaimWriter, Clock, SearchProcesses, StorageWriter, Tracer, Watchdog
from scheduler_core.queueing.queue_moves import MOVES
from scheduler_core.runtime.equivalence import DEFAULT_REUSE_BOUNDS, ReuseBounds
from scheduler_core.runtime.extenders import MakeClient
from scheduler_core.snapshot.interning import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.step_counter import ATTEMPT_STEPS, DRY_RUN_STEPS


class SchedulerOptions(Struct, frozen=True):
    """Settings that apply to all profiles.

    Attributes:
        seed: Resolves ties among equal nodes.
        percentage_of_nodes_to_score: Default for profiles that set none; None evaluates all nodes, 0 uses
            kube-scheduler's adaptive formula.
        initial_backoff_seconds, max_backoff_seconds: Defaults for profiles that set none.
        max_unschedulable_seconds: Time after which an unschedulable pod is tried again without an event.
        max_binding: Binds in progress at which no more pods are popped; a few times the writer's connections. Pods
            that wait at Permit, for the other members of their gang, or for long in PreBind do not count.
        confirm_after_seconds: Time after which a bound pod that no watch has confirmed is read.
        slow_cycle_seconds: Threshold from which a scheduling cycle is logged with its plugins' times.
        gang_reservation_seconds: Time for which a Strict gang must fail before capacity is reserved for it.
        reuses_results, reuse_bounds: Whether plugin results are reused for pods of a class; bounds of what is stored.
        foreign_gangs: What happens to pods with marks of other gang schedulers.
        gangs_preempt: Whether a gang may evict pods of lower priority.
        gangs_backtrack: Whether nodes and devices of an infeasible gang are searched together.
        group_claims: Whether PodGroups may have resource claims.
        volcano_groups: Whether pods with Volcano's annotation are members of the PodGroup that it names.
        deletion_costs: Whether the annotation with the deletion cost of a pod is decoded.
        deferred_resizes: Whether running pods whose resize is deferred may preempt on their nodes.
        bounds: Maximum sizes of the snapshot's tables.
        attempt_steps: Steps of an attempt, for each of its pods; see :mod:`scheduler_core.step_counter`.
        dry_run_steps: Steps of a dry run; None for those of an attempt.
        contested_node_seconds: Time for which pods prefer other nodes to a contested one after the last bind of a rival
            there, and every second bind that fills a node is held for a moment; 0 for no effect on decisions.
        plans_moves: Whether plans of moves are made, so that all that decides whether a pod may be moved is decoded.
        moves: Moves of waiting pods between two turns of the event loop, if one event moves many.
    """

    seed: int = 0
    percentage_of_nodes_to_score: int | None = None
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    max_unschedulable_seconds: float = 300.0
    max_binding: int = 96
    confirm_after_seconds: float = 15.0
    slow_cycle_seconds: float = SLOW_CYCLE_SECONDS
    gang_reservation_seconds: float = RESERVED_AFTER_SECONDS
    reuses_results: bool = True
    reuse_bounds: ReuseBounds = DEFAULT_REUSE_BOUNDS
    foreign_gangs: ForeignGangs = "Ignore"
    gangs_preempt: bool = True
    gangs_backtrack: bool = False
    group_claims: bool = False
    volcano_groups: bool = False
    device_features: DeviceFeatures = DeviceFeatures()
    deletion_costs: bool = False
    deferred_resizes: bool = False
    bounds: SnapshotBounds = DEFAULT_BOUNDS
    attempt_steps: int = ATTEMPT_STEPS
    dry_run_steps: int | None = DRY_RUN_STEPS
    plans_moves: bool = False
    moves: int = MOVES
    contested_node_seconds: float = 0.0


class SchedulerPorts(Struct, frozen=True):
    """Ports that a scheduler can do without.

    Attributes:
        storage, claims: Writers of volumes, and of resource claims; without one, pods that need it fail.
        tracer: Receives every cycle.
        watchdog, shadow_watchdog: Interrupt plugins that are not built in, of live profiles and of shadow profiles.
        make_extender: Creates a client from a scheduler name and an extender; it is closed with its instance. Without
            it no extender is called.
        journal: Receives the order of the scheduler's steps, for a record.
        timing: Clock of durations in metrics and of shadows; None for the scheduler's clock.
        attempts: Receives every ended attempt of a pod; None if they are not stored.
        processes: Starts copies of this process for long searches; None if they delay other pods instead.
    """

    storage: StorageWriter | None = None
    claims: ClaimWriter | None = None
    tracer: Tracer | None = None
    watchdog: Watchdog | None = None
    shadow_watchdog: Watchdog | None = None
    make_extender: MakeClient | None = None
    journal: Journal = Journal()
    timing: Clock | None = None
    attempts: AttemptHistory | None = None
    processes: SearchProcesses | None = None
