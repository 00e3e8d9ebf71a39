"""Reservations in a group cycle, so that smaller pods cannot starve a gang.

A group cycle that finds no feasible domain tries the gang's plan. If that fails too, the plan is made, confirmed or
replaced, and the failure message reports it.

A gang with a reservation is scheduled within the longest remaining run time of the pods on the reserved nodes, plus one
cycle: later pods get none of its capacity, and when a pod in the way ends, the gang is activated at once.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.errors import AttemptLimitError
from scheduler_core.gangs.failure_handler import GangFailure
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.placement.engine import Policy
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.placement.reservations import Plan, Reservation, assignment, find_plan, is_still_valid
from scheduler_core.placement.worlds import CycleWorld, SearchWorld, SeatedWorld, seated_in
from scheduler_core.snapshot.node_columns import NodeColumns

_RESERVED = "capacity is reserved for it, {} {}, until the pods that run there have ended"
_IN_TURN = "it waits for its turn: capacity that it needs is reserved for gang {}"
_HOPELESS = "no capacity can be reserved for it: it would not fit even if all pods had ended"


def reserved_world(
    world: CycleWorld, reservations: GangReservations, request: PlacementRequest
) -> tuple[SeatedWorld, Policy] | None:
    """Return the world and the policy to place a quorum as planned, and the members beyond it on other nodes.

    Returns:
        None without a reservation, or if it has no room yet.
    """
    reservation = reservations.of(request.gang.key)
    seats = None if reservation is None else assignment(world.nodes, reservation, request)
    if reservation is None or seats is None or not reservation.fits_now():
        return None
    return SeatedWorld(world, seats, _beyond(world.nodes, reservation)), seated_in(reservation.plan.domain)


class Reserving:
    """Reserves capacity for gangs."""

    def __init__(self, search: SearchWorld, reservations: GangReservations) -> None:
        self._search = search
        self._nodes = search.nodes
        self._reservations = reservations

    def reserve(self, request: PlacementRequest, failure: GangFailure) -> GangFailure:
        """Reserve capacity for a gang that has failed for too long, or check its reservation.

        Returns:
            The failure, whose message also reports the reservation, or that the search for it was given up.
        """
        try:
            return self._reserve(request, failure)
        except AttemptLimitError as limit:
            return _with(failure, f"the search for nodes to reserve was {limit}")

    def _reserve(self, request: PlacementRequest, failure: GangFailure) -> GangFailure:
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

    def _is_still_good(self, request: PlacementRequest, held: Reservation) -> bool:
        """Return whether a plan is still feasible once the pods in the way have ended."""
        if not held.waited_for() or not held.fits_then() or assignment(self._nodes, held, request) is None:
            return False
        if held.is_doubtful:
            if not is_still_valid(self._search, request, held):
                return False
            held.confirm()
        return True

    def _plan(self, request: PlacementRequest) -> Plan | None:
        """Return a plan beside all other reservations, or else one on nodes reserved for gangs of lower priority."""
        gang = request.gang
        beside = self._reservations.usable_rows(gang, lower_too=False)
        plan = find_plan(self._search, request, beside)
        if plan is None:
            over = self._reservations.usable_rows(gang, lower_too=True)
            if (over != beside).any():
                plan = find_plan(self._search, request, over)
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
