"""Builds what explains decisions from the parts of the cycles. The scheduling path does not import this module."""

from __future__ import annotations

from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.cycle_assembly import Cycles
from scheduler_core.explain.gang_dry_run import GangExaminer
from scheduler_core.explain.gang_member_dry_runs import NextMembers
from scheduler_core.explain.tree_dry_run import TreeExaminer
from scheduler_core.explain.unblocking_events import UnblockingEvents
from scheduler_core.gangs.reservation_lifecycle import GangReservations


class Explainers:
    """Dry runs of decisions.

    Args:
        context: The shared state of cycles.
        cycles: The cycles.
        reservations: Capacity reserved for gangs.

    Attributes:
        unblocking: Finds unblocking events of rejected pods.
        gangs: Dry-runs group cycles of gangs.
        trees: Dry-runs group cycles of trees.
    """

    def __init__(self, context: CycleContext, cycles: Cycles, reservations: GangReservations) -> None:
        cache, examiner = context.cache, cycles.examiner
        self.unblocking = UnblockingEvents(cache, cycles.selection, examiner)
        next_members = NextMembers(cache.columns, examiner, self.unblocking)
        self.gangs = GangExaminer(
            cache=cache,
            nominator=context.queue.nominator,
            reservations=reservations,
            trials=cycles.dry_trials,
            next_members=next_members,
            backtracking=cycles.backtracking,
            preemption=cycles.preemption,
        )
        self.trees = TreeExaminer(cache, context.queue.nominator, cycles.dry_trials, cycles.preemption)
