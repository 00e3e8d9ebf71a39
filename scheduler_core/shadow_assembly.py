"""Builds shadow profiles from the parts of the cycles. It is imported when the first shadow is served."""

from __future__ import annotations

from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.cycle.journal import Journal
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.cycle_assembly import Cycles
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.ports import Clock
from scheduler_core.shadows.shadow_profiles import ShadowProfiles
from scheduler_core.shadows.slice_comparison import ShadowChoice, SliceComparison


def build_shadows(
    context: CycleContext, cycles: Cycles, reservations: GangReservations, clock: Clock, journal: Journal
) -> ShadowProfiles:
    """Return the shadow profiles of a scheduler, none yet.

    Args:
        clock: Time; not recorded, because shadows have no effect on decisions.
    """
    cache, options, selection = context.cache, context.options, cycles.selection
    bounds = options.reuse_bounds if options.reuses_results else None
    # Metrics of their own: the results that shadows reuse are not those of live profiles.
    choice = NodeChoice(selection, context.queue.nominator, reservations, SchedulerMetrics(), bounds)
    recorders = context.recording.recorders
    decide = ShadowChoice(choice, ExtendedChoice(selection), context.node_order, recorders, clock, context.steps)
    comparison = SliceComparison(cache.columns, decide, selection, clock)
    return ShadowProfiles(cache, cycles.decided, comparison, context.suspension, context.profiles, clock, journal)
