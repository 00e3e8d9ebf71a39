"""Builds the cycles of a scheduler from its shared state: each part receives the parts that it calls, and no others.

::

    pods.schedule, extended.schedule ─▶ attempt ─▶ binding.bind
    gangs.schedule ─▶ attempts ─────────────────────▲
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.background_search import BackgroundSearches
from scheduler_core.cycle.binding_cycle import BindingCycle, BindingOutcomes, IdleBinds
from scheduler_core.cycle.contested_nodes import ContestedNodes
from scheduler_core.cycle.cycle_report import CycleRecording, CycleReport
from scheduler_core.cycle.decided_pods import DecidedPods
from scheduler_core.cycle.failure_handler import FailedAttempts, PreemptionDelays
from scheduler_core.cycle.filter_and_score import NodeOrder, NodeSelection, PartialSearch
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle.gang_constraints import MemberDomains
from scheduler_core.cycle.internal_errors import InternalErrors
from scheduler_core.cycle.moved_pods import MovedPods
from scheduler_core.cycle.nominated_devices import NominatedDevices
from scheduler_core.cycle.plugin_handle import PluginServices
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle import SchedulingCycle
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice, ExtendedCycle
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.explain.nearest_nodes import NearestNodesOfGangs
from scheduler_core.explain.pod_dry_run import Examiner
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.gangs.failure_handler import FailedGangs
from scheduler_core.gangs.group_cycle import GangPlacing, GangRejection, GangScheduler, QuorumCommit
from scheduler_core.gangs.moved_search import ResultCheck
from scheduler_core.gangs.preemption import GangPreemption
from scheduler_core.gangs.reservation_cycle import Reserving
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.placement.worlds import CycleWorld, SearchWorld
from scheduler_core.ports import Clock, ClusterWriter
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.scheduler_options import SchedulerOptions
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.step_counter import StepCounter


@dataclass(slots=True)
class CycleContext:
    """The shared state of cycles, which only this module takes as a whole.

    Attributes:
        node_order: Order of the nodes and start of the next search, for profiles that evaluate a percentage of them.
        suspension: Whether a cycle waits for an extender; meanwhile nothing may change the state that cycles read.
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
    options: SchedulerOptions
    services: PluginServices
    recording: CycleRecording
    metrics: SchedulerMetrics
    steps: StepCounter
    idle_binds: IdleBinds
    background: BackgroundSearches
    contested: ContestedNodes


class PlacingParts:
    """The parts that search nodes and place pods and gangs: those of the running scheduler, or of one dry run.

    Args:
        order: Order of the nodes, with the start of the next search.
        rejections: Receives pods that reservations made unschedulable; None in dry runs.
    """

    def __init__(
        self,
        context: CycleContext,
        reservations: GangReservations,
        assumed: AssumedPods,
        report: CycleReport,
        *,
        metrics: SchedulerMetrics,
        order: NodeOrder,
        rejections: GangReservations | None = None,
    ) -> None:
        cache, options, nominator = context.cache, context.options, context.queue.nominator
        partial = PartialSearch(cache.columns, order, options.percentage_of_nodes_to_score)
        self.selection = NodeSelection(
            cache, nominator, reservations, partial, contested=context.contested, seed=options.seed
        )
        bounds = options.reuse_bounds if options.reuses_results else None
        self.choice = NodeChoice(self.selection, metrics, bounds, rejections)
        self.extended = ExtendedChoice(self.selection, rejections=rejections)
        self.world = CycleWorld(
            cache,
            assumed,
            choice=self.choice,
            extended=self.extended,
            order=order,
            report=report,
            steps=context.steps,
        )
        self.search = SearchWorld(cache, assumed, self.selection, context.clock, context.steps)
        self.placing = GangPlacing(self.world, self.search, reservations, options.gangs_backtrack)
        self.preemption = GangPreemption(
            cache=cache,
            nominator=nominator,
            groups=context.services.groups,
            search=self.search,
            members=self.world,
            preemptions=context.services.preemptions,
            is_enabled=options.gangs_preempt,
        )


class Cycles:
    """The cycles of a scheduler, and the parts of them that explanations use, too.

    Attributes:
        pods: Scheduling cycles of profiles without extenders.
        extended: Scheduling cycles of profiles with extenders.
        decided: Decisions that shadow profiles make again.
        examiner: Dry-runs attempts.
    """

    def __init__(self, context: CycleContext, reservations: GangReservations) -> None:
        cache, queue, clock = context.cache, context.queue, context.clock
        nodes, writer, metrics = cache.columns, context.writer, context.metrics
        preemptions = context.services.preemptions
        nominated = NominatedDevices(
            cache,
            queue,
            context.profiles,
            preemptions,
            others=reservations.devices_held_from,
            priority_of=reservations.priority_of,
        )
        nodes.devices.holds.append(nominated.held_from)
        self.freed = freed = FreedCapacity(queue, reservations, nominated)
        nodes.devices.on_freed.append(freed.devices_freed)
        queue.on_nomination_ended.append(freed.nomination_ended)
        self.report = report = CycleReport(context.recording, metrics, nodes, clock)
        context.background.on_copy.append(report.cut)
        self.assumed = assumed = AssumedPods(cache, queue, context.waiting, freed)
        parts = PlacingParts(
            context,
            reservations,
            assumed,
            report,
            metrics=metrics,
            order=context.node_order,
            rejections=reservations,
        )
        self.selection, self.world, self.preemption = parts.selection, parts.world, parts.preemption
        self.delays = PreemptionDelays(queue, context.clock, context.suspension.run_or_defer)
        self.failed = failed = FailedAttempts(queue, writer, report, freed, self.delays)
        self.decided = DecidedPods(self.selection, context.suspension)
        self.errors = errors = InternalErrors(queue, assumed, writer, metrics, report)
        moved = MovedPods(queue, self.selection, assumed, context.background, context.steps)
        self.pods = SchedulingCycle(
            profiles=context.profiles,
            queue=queue,
            cache=cache,
            domains=context.member_domains,
            writer=writer,
            report=report,
            choice=parts.choice,
            assumed=assumed,
            failed=failed,
            decided=self.decided,
            errors=errors,
            moved=moved,
        )
        self.extended = ExtendedCycle(self.pods, parts.extended, context.suspension)
        self.binding = self._binding(context)
        self.examiner = Examiner(nodes, queue.gangs, self.selection, context.member_domains, clock)
        self.gangs = self._gangs(context, reservations, parts)

    def _binding(self, context: CycleContext) -> BindingCycle:
        cache, queue, clock = context.cache, context.queue, context.clock
        writer, report = context.writer, self.report
        outcomes = BindingOutcomes(
            cache=cache,
            queue=queue,
            writer=writer,
            clock=clock,
            report=report,
            assumed=self.assumed,
            failures=self.failed,
            freed=self.freed,
            errors=self.errors,
            rival_bound=lambda info: context.contested.rival_bound(info, context.profiles),
        )
        return BindingCycle(
            cache=cache,
            queue=queue,
            waiting=context.waiting,
            in_pre_bind=context.services.in_pre_bind,
            idle=context.idle_binds,
            suspension=context.suspension,
            writer=writer,
            clock=clock,
            report=report,
            outcomes=outcomes,
            contested=context.contested,
        )

    def _gangs(self, context: CycleContext, reservations: GangReservations, parts: PlacingParts) -> GangScheduler:
        cache, queue, clock, metrics = context.cache, context.queue, context.clock, context.metrics
        assumed, report = self.assumed, self.report
        commit = QuorumCommit(
            cache=cache,
            queue=queue,
            waiting=context.waiting,
            assumed=assumed,
            end=self.pods,
            report=report,
            errors=self.errors,
        )
        failed = FailedGangs(
            nodes=cache.columns,
            queue=queue,
            writer=context.writer,
            metrics=metrics,
            clock=clock,
            freed=self.freed,
        )
        rejection = GangRejection(
            nodes=cache.columns,
            preemption=self.preemption,
            reserving=Reserving(parts.search, reservations),
            reservations=reservations,
            failed=failed,
            cycles=report,
            clock=clock,
            background=context.background,
            order=context.node_order,
            delays=self.delays,
        )
        return GangScheduler(
            cache=cache,
            queue=queue,
            profiles=context.profiles,
            suspension=context.suspension,
            clock=clock,
            metrics=metrics,
            assumed=assumed,
            placing=parts.placing,
            observer=NearestNodesOfGangs(self.examiner),
            commit=commit,
            rejection=rejection,
            failed=failed,
            errors=self.errors,
            background=context.background,
            check=ResultCheck(cache, queue, parts.world, parts.search, reservations, context.services.groups),
            order=context.node_order,
        )
