"""Reservations in a group cycle, so that smaller pods cannot starve a gang.

A group cycle that finds no feasible domain tries the gang's plan. If that fails too, the plan is made, confirmed or
replaced, and the failure message reports it.

A gang with a reservation is scheduled within the longest remaining run time of the pods on the reserved nodes, plus one
cycle: later pods get none of its capacity, and when a pod in the way ends, the gang is activated at once.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where, only
from scheduler_core.errors import AttemptLimitError
from scheduler_core.gangs.failure_handler import GangFailure
from scheduler_core.gangs.placement_trial import GangTrial, MemberTrials
from scheduler_core.gangs.reservation_capacity import Plan, Reservation
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.gangs.reservation_planning import PlacementPlans, PlanRequest, assignment
from scheduler_core.metrics.profile_metrics import ERROR, UNSCHEDULABLE
from scheduler_core.snapshot.node_columns import NodeColumns

_RESERVED = "capacity is reserved for it, {} {}, until the pods that run there have ended"
_IN_TURN = "it waits for its turn: capacity that it needs is reserved for gang {}"
_HOPELESS = "no capacity can be reserved for it: it would not fit even if all pods had ended"


class ReservedScheduling:
    """Schedules gangs on the capacity that is reserved for them, and reserves capacity.

    Args:
        nodes: The columns.
        reservations: Capacity reserved for gangs.
        plans: Makes plans.
        trials: Tries members.
        assumed: Releases members.
        report: Report of cycles.
    """

    def __init__(
        self,
        *,
        nodes: NodeColumns,
        reservations: GangReservations,
        plans: PlacementPlans,
        trials: MemberTrials,
        assumed: AssumedPods,
        report: CycleReport,
    ) -> None:
        self._nodes = nodes
        self._reservations = reservations
        self._plans = plans
        self._trials = trials
        self._assumed = assumed
        self._report = report

    async def try_quorum(self, request: PlanRequest) -> GangTrial | None:
        """Try to schedule a quorum as planned, and the members beyond it on other nodes.

        Args:
            request: The gang.

        Returns:
            The try, in which at least the quorum is assumed; None without a reservation, or if it is not feasible yet.
        """
        reservation = self._reservations.of(request.gang.key)
        pairs = None if reservation is None else assignment(self._nodes, reservation, request)
        if reservation is None or pairs is None or not reservation.fits_now():
            return None
        trial = GangTrial(ANYWHERE)
        try:
            for queued, name in pairs:
                trial.where = Where(only(self._nodes, name), "node(s) were not planned for this member", "")
                held = len(trial.placed)
                await self._trials.try_members(request.instance, [queued], held + 1, trial)
                if len(trial.placed) == held:
                    break
            trial.where = Where(name=reservation.plan.domain)
            if len(trial.placed) >= request.needed:
                planned = {queued.uid for queued, _ in pairs}
                beyond = [queued for queued in request.members if queued.uid not in planned]
                trial.where = _beyond(self._nodes, reservation)
                await self._trials.try_members(request.instance, beyond, request.needed, trial)
                return trial
        except BaseException:
            trial.undo(self._assumed)
            raise
        trial.undo(self._assumed)
        for attempt, failure in trial.failed:
            self._report.scheduling_ended(attempt, ERROR if failure.is_error else UNSCHEDULABLE)
        return None

    def reserve(self, request: PlanRequest, failure: GangFailure) -> GangFailure:
        """Reserve capacity as :meth:`_reserve` does, or report in the failure that the search was given up."""
        try:
            return self._reserve(request, failure)
        except AttemptLimitError as limit:
            return _with(failure, f"the search for nodes to reserve was {limit}")

    def _reserve(self, request: PlanRequest, failure: GangFailure) -> GangFailure:
        """Reserve capacity for a gang that has failed for too long, or check its reservation.

        Args:
            request: The gang, of which no member is assumed.
            failure: Why it was rejected.

        Returns:
            The failure, whose message also reports the reservation.
        """
        gang = request.gang
        if not self._reservations.is_due(gang) or failure.is_error or failure.victims:
            # A gang that preempts has nominated nodes already.
            return failure
        held = self._reservations.of(gang.key)
        if held is not None:
            held.priority = gang.priority
            if self._is_still_good(request, held):
                return _with(failure, _reserved(held.plan))
        if self._reservations.is_hopeless(gang):
            return _with(failure, _HOPELESS)
        plan = self._plan(request)
        if plan is not None:
            self._reservations.begin(gang, plan)
            return _with(failure, _reserved(plan))
        self._reservations.end(gang.key)
        holders = self._reservations.holders()
        if holders:
            self._reservations.await_turn(gang)
            return _with(failure, _IN_TURN.format(" and ".join(holders[:2])))
        self._reservations.plan_failed(gang)
        return _with(failure, _HOPELESS)

    def _is_still_good(self, request: PlanRequest, held: Reservation) -> bool:
        """Return whether a plan is still feasible once the pods in the way have ended."""
        if not held.waited_for() or not held.fits_then() or assignment(self._nodes, held, request) is None:
            return False
        if held.is_doubtful:
            if not self._plans.is_still_valid(request, held):
                return False
            held.confirm()
        return True

    def _plan(self, request: PlanRequest) -> Plan | None:
        """Return a plan beside all other reservations, or else one on nodes reserved for gangs of lower priority."""
        gang = request.gang
        beside = self._reservations.usable_rows(gang, lower_too=False)
        plan = self._plans.find(request, beside)
        if plan is None:
            over = self._reservations.usable_rows(gang, lower_too=True)
            if (over != beside).any():
                plan = self._plans.find(request, over)
        return plan


def _beyond(nodes: NodeColumns, reservation: Reservation) -> Where:
    """Return the nodes for members beyond the quorum: its domain, if it has one."""
    key, _, value = reservation.plan.domain.partition("=")
    if not value:
        return ANYWHERE
    row = nodes.row_of(reservation.plan.slots[0].node_name)
    ids = nodes.label_column(key).ids
    reason = f"node(s) were outside the gang's domain {reservation.plan.domain}"
    return Where((ids == ids[row]) & nodes.alive, reason, reservation.plan.domain)


def _reserved(plan: Plan) -> str:
    return _RESERVED.format("in" if plan.domain else "on", plan)


def _with(failure: GangFailure, words: str) -> GangFailure:
    return replace(failure, message=f"{failure.message.rstrip('.')}; {words}")
