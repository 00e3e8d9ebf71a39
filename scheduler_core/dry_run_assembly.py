"""Builds what explains decisions, answers "would it fit?" and plans moves: the classes of the cycles, with own sinks.

Metrics, recorders, cached results, the position of the next partial search and the pods at Permit are those of one dry
run. What it writes there is dropped with it, so that it leaves no trace in the running scheduler. The scheduling
path does not import this module.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.cycle_report import CycleRecording, CycleReport
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle_assembly import CycleContext, Cycles, PlacingParts
from scheduler_core.explain.gang_dry_run import GroupDryRuns, NextMembers
from scheduler_core.explain.unblocking_events import UnblockingEvents
from scheduler_core.fit.fit_search import FitSearch
from scheduler_core.fit.helpful_nodes import HelpfulNodeFinder
from scheduler_core.fit.request_queue import RequestQueue
from scheduler_core.fit.trial import TrialParts
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.attempt_reports import SlowCycles
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.rebalance.plan_search import PlanSearch


def _parts(
    context: CycleContext, queue: SchedulingQueue, freed: FreedCapacity, reservations: GangReservations
) -> PlacingParts:
    """Return the parts of one dry run; of the shared state only the cache and nominations change, and change back.

    Args:
        queue: The queue with the pods of the dry run; nominations are those of the running scheduler.
    """
    cache, clock, metrics = context.cache, context.clock, SchedulerMetrics()
    recording = CycleRecording(RecorderPool(float), SlowCycles(math.inf))
    return PlacingParts(
        context,
        reservations,
        AssumedPods(cache, queue, WaitingPods(clock), freed),
        CycleReport(recording, metrics, cache.columns, clock),
        metrics=metrics,
        order=copy.copy(context.node_order),
    )


class Explainers:
    """Dry runs of decisions, for one explanation."""

    def __init__(self, context: CycleContext, cycles: Cycles, reservations: GangReservations) -> None:
        cache, queue, examiner = context.cache, context.queue, cycles.examiner
        parts = _parts(context, queue, cycles.freed, reservations)
        self.unblocking = UnblockingEvents(cache, parts.selection, examiner)
        self.gangs = GroupDryRuns(
            cache=cache,
            nominator=queue.nominator,
            reservations=reservations,
            world=parts.world,
            placing=parts.placing,
            next_members=NextMembers(examiner, self.unblocking),
            preemption=parts.preemption,
        )


def fit_search(context: CycleContext, reservations: GangReservations) -> FitSearch:
    return FitSearch(_trial_parts(context, reservations))


def plan_search(context: CycleContext, reservations: GangReservations) -> PlanSearch:
    freed = FreedCapacity(context.queue, reservations)
    parts = _parts(context, context.queue, freed, reservations)
    return PlanSearch(context.profiles, context.queue, parts.search)


def helpful_nodes(context: CycleContext, reservations: GangReservations) -> HelpfulNodeFinder:
    return HelpfulNodeFinder(_trial_parts(context, reservations))


def _trial_parts(context: CycleContext, reservations: GangReservations) -> Callable[[], TrialParts]:
    def make_parts() -> TrialParts:
        queue = RequestQueue(context.queue, context.profiles, reservations, context.clock)
        parts = _parts(context, queue.queue, queue.freed, reservations)
        return TrialParts(
            cache=context.cache,
            profiles=context.profiles,
            nominator=context.queue.nominator,
            queue=queue,
            world=parts.world,
            placing=parts.placing,
            preemption=parts.preemption,
        )

    return make_parts
