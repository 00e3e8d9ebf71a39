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
from scheduler_core.explain.gang_dry_run import GroupDryRuns, NextMembers
from scheduler_core.explain.unblocking_events import UnblockingEvents
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.gangs.group_cycle import GangPlacing
from scheduler_core.gangs.preemption import GangPreemption
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.attempt_reports import SlowCycles
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.placement.worlds import CycleWorld, SearchWorld


class Explainers:
    """Dry runs of decisions, for one explanation.

    Args:
        context: The shared state of cycles; only its cache and nominator are changed, and changed back.

    Attributes:
        unblocking: Finds unblocking events of rejected pods.
        gangs: Dry-runs group cycles.
    """

    def __init__(self, context: CycleContext, cycles: Cycles, reservations: GangReservations) -> None:
        cache, queue, clock, options = context.cache, context.queue, context.clock, context.options
        nodes, nominator, examiner = cache.columns, queue.nominator, cycles.examiner
        metrics, order = SchedulerMetrics(), copy.copy(context.node_order)
        partial = PartialSearch(nodes, order, options.percentage_of_nodes_to_score)
        selection = NodeSelection(cache, nominator, reservations, partial, options.seed)
        bounds = options.reuse_bounds if options.reuses_results else None
        choice = NodeChoice(selection, nominator, reservations, metrics, bounds)
        assumed = AssumedPods(cache, queue, WaitingPods(clock), cycles.freed)
        report = CycleReport(CycleRecording(RecorderPool(float), SlowCycles(math.inf)), metrics, nodes, clock)
        world = CycleWorld(
            cache,
            assumed,
            choice=choice,
            extended=ExtendedChoice(selection),
            order=order,
            report=report,
            steps=context.steps,
        )
        search = SearchWorld(cache, assumed, selection, clock, context.steps)
        preemption = GangPreemption(
            cache=cache,
            nominator=nominator,
            groups=context.services.groups,
            search=search,
            members=world,
            preemptions=context.services.preemptions,
            is_enabled=options.gangs_preempt,
        )
        self.unblocking = UnblockingEvents(cache, selection, examiner)
        self.gangs = GroupDryRuns(
            cache=cache,
            nominator=nominator,
            reservations=reservations,
            world=world,
            placing=GangPlacing(world, search, reservations, options.gangs_backtrack),
            next_members=NextMembers(nodes, examiner, self.unblocking),
            preemption=preemption,
        )
