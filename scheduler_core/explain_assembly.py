"""Builds what explains decisions. The scheduling path does not import this module.

Dry runs use the classes of the cycles with sinks of their own: metrics, recorders, cached results, the position of the
next partial search and the pods at Permit. What a dry run writes there is dropped with it, so that an explanation
leaves no trace in the running scheduler, and a record replays equally with or without it.
"""

from __future__ import annotations

import copy
import math

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.cycle.cycle_report import CycleRecording, CycleReport
from scheduler_core.cycle.filter_and_score import NodeSelection
from scheduler_core.cycle.percentage_of_nodes import PartialSearch
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.cycle_assembly import Cycles
from scheduler_core.explain.gang_dry_run import GangExaminer
from scheduler_core.explain.gang_member_dry_runs import NextMembers
from scheduler_core.explain.tree_dry_run import TreeExaminer
from scheduler_core.explain.unblocking_events import UnblockingEvents
from scheduler_core.gangs.device_backtracking import DeviceBacktracking
from scheduler_core.gangs.dry_trials import DryTrials
from scheduler_core.gangs.placement_trial import MemberTrials
from scheduler_core.gangs.preemption import GangPreemption
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.gangs.victim_selection import GangVictims
from scheduler_core.metrics.attempt_reports import SlowCycles
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.runtime.reserve_and_permit import WaitingPodMap


class Explainers:
    """Dry runs of decisions, for one explanation.

    Args:
        context: The shared state of cycles; only its cache and nominator are changed, and changed back.
        cycles: The cycles.
        reservations: Capacity reserved for gangs.

    Attributes:
        unblocking: Finds unblocking events of rejected pods.
        gangs: Dry-runs group cycles of gangs.
        trees: Dry-runs group cycles of trees.
    """

    def __init__(self, context: CycleContext, cycles: Cycles, reservations: GangReservations) -> None:
        cache, queue, clock, options = context.cache, context.queue, context.clock, context.options
        nodes, nominator, examiner = cache.columns, queue.nominator, cycles.examiner
        metrics, order = SchedulerMetrics(), copy.copy(context.node_order)
        partial = PartialSearch(nodes, order, options.percentage_of_nodes_to_score)
        selection = NodeSelection(cache, nominator, reservations, partial, options.seed)
        bounds = options.reuse_bounds if options.reuses_results else None
        choice = NodeChoice(selection, nominator, reservations, metrics, bounds)
        assumed = AssumedPods(cache, queue, WaitingPodMap(clock), cycles.room)
        report = CycleReport(CycleRecording(RecorderPool(float), SlowCycles(math.inf)), metrics, nodes, clock)
        members = MemberTrials(choice, ExtendedChoice(selection), assumed, report, nodes, steps=context.steps)
        trials = DryTrials(cache, members, assumed, order, report)
        preemption = GangPreemption(
            cache=cache,
            nominator=nominator,
            groups=context.services.groups,
            victims=GangVictims(nodes, nominator, selection, assumed, clock, steps=context.steps),
            trials=trials,
            preemptions=context.services.preemptions,
            is_enabled=options.gangs_preempt,
        )
        self.unblocking = UnblockingEvents(cache, selection, examiner)
        self.gangs = GangExaminer(
            cache=cache,
            nominator=nominator,
            reservations=reservations,
            trials=trials,
            next_members=NextMembers(nodes, examiner, self.unblocking),
            backtracking=DeviceBacktracking(selection, assumed, clock, is_enabled=options.gangs_backtrack),
            preemption=preemption,
        )
        self.trees = TreeExaminer(cache, nominator, trials, preemption)
