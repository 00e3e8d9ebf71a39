"""Builds what answers "would it fit?". The scheduling path does not import this module."""

from __future__ import annotations

from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.dry_run_assembly import DryRunParts
from scheduler_core.fit.answers import FitSearch
from scheduler_core.fit.request_queue import RequestQueue
from scheduler_core.fit.trial import TrialParts
from scheduler_core.gangs.reservation_lifecycle import GangReservations


def fit_search(context: CycleContext, reservations: GangReservations) -> FitSearch:
    """Return the search on the state of a scheduler; it is used between two cycles."""

    def make_parts() -> TrialParts:
        queue = RequestQueue(context.queue, context.profiles, reservations, context.clock)
        parts = DryRunParts(context, queue.queue, queue.freed, reservations)
        return TrialParts(
            cache=context.cache,
            profiles=context.profiles,
            nominator=context.queue.nominator,
            queue=queue,
            world=parts.world,
            placing=parts.placing,
            preemption=parts.preemption,
        )

    return FitSearch(make_parts)
