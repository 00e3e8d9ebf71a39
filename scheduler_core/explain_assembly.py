"""Builds what explains decisions. The scheduling path does not import this module."""

from __future__ import annotations

from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.cycle_assembly import Cycles
from scheduler_core.dry_run_assembly import DryRunParts
from scheduler_core.explain.gang_dry_run import GroupDryRuns, NextMembers
from scheduler_core.explain.unblocking_events import UnblockingEvents
from scheduler_core.gangs.reservation_lifecycle import GangReservations


class Explainers:
    """Dry runs of decisions, for one explanation.

    Args:
        context: The shared state of cycles; only its cache and nominator are changed, and changed back.

    Attributes:
        unblocking: Finds unblocking events of rejected pods.
        gangs: Dry-runs group cycles.
    """

    def __init__(self, context: CycleContext, cycles: Cycles, reservations: GangReservations) -> None:
        cache, queue, examiner = context.cache, context.queue, cycles.examiner
        parts = DryRunParts(context, queue, cycles.freed, reservations)
        self.unblocking = UnblockingEvents(cache, parts.selection, examiner)
        self.gangs = GroupDryRuns(
            cache=cache,
            nominator=queue.nominator,
            reservations=reservations,
            world=parts.world,
            placing=parts.placing,
            next_members=NextMembers(cache.columns, examiner, self.unblocking),
            preemption=parts.preemption,
        )
