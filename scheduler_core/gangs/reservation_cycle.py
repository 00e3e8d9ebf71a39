"""Reservations in a group cycle, so that smaller pods cannot starve a gang.

A group cycle that finds no feasible domain tries the gang's plan. If that fails too, the plan is made, confirmed or
replaced, and the failure message reports it.

A gang with a reservation is scheduled within the longest remaining run time of the pods on the reserved nodes, plus one
cycle: later pods get none of its capacity, and when a pod in the way ends, the gang is activated at once.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.errors import AttemptLimitError
from scheduler_core.gangs.failure_handler import GangFailure
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.placement.engine import Policy
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.placement.reservations import (
    Plan,
    Reservation,
    ReservedNodes,
    assignment,
    find_plan,
    is_still_valid,
)
from scheduler_core.placement.worlds import CycleWorld, SearchWorld, SeatedWorld, seated_in
from scheduler_core.snapshot.node_columns import NodeColumns

_RESERVED = "capacity is reserved for it, {} {}, until the pods that run there have ended"
_IN_TURN = "it waits for its turn: capacity that it needs is reserved for {}"
_HOPELESS = "no capacity can be reserved for it: it would not fit even if all pods had ended"


def reserved_world(
    world: CycleWorld, reservations: GangReservations, request: PlacementRequest
) -> tuple[SeatedWorld, Policy] | None:
    """Return the world and the policy to place a quorum as planned; None without a reservation, or without room yet."""
    reservation = reservations.of(request.gang.key)
    seats = None if reservation is None else assignment(world.nodes, reservation, request)
    if reservation is None or seats is None or not reservation.fits_now():
        return None
    return SeatedWorld(world, seats, _beyond(world.nodes, reservation)), seated_in(reservation.plan.domain)


class ReservationStep(Enum):
    """What a group cycle does about a reservation.

    Attributes:
        NONE: Nothing: it is too early, or the gang preempts.
        STAYS: The gang has a reservation that is still good.
        PLANNED: Capacity is reserved by a new plan, or there is none.
        HOPELESS: There was no plan recently, and no node has changed since.
    """

    NONE = "none"
    STAYS = "stays"
    PLANNED = "planned"
    HOPELESS = "hopeless"


class ReservationSearch(Struct, frozen=True):
    """Result of the search for capacity to reserve.

    Attributes:
        nodes: The plan of the step PLANNED; None for no plan.
        given_up: The limit of steps at which the search ended; "" for none.
        version: Number of changes of Node objects before the search.
        is_requested: Whether the gang has failed for so long that capacity must be reserved.
    """

    step: ReservationStep = ReservationStep.NONE
    nodes: ReservedNodes | None = None
    given_up: str = ""
    version: int = 0
    is_requested: bool = False


class Reserving:
    """Reserves capacity for gangs."""

    def __init__(self, search: SearchWorld, reservations: GangReservations) -> None:
        self._search = search
        self._nodes = search.nodes
        self._reservations = reservations

    def search(self, request: PlacementRequest, failure: GangFailure) -> ReservationSearch:
        """Search capacity for a gang that has failed for too long, or check its reservation."""
        gang = request.gang
        is_due = self._reservations.is_due(gang)
        if not is_due or failure.is_error or failure.victims:
            # A gang that preempts has nominated nodes already.
            return ReservationSearch(is_requested=is_due)
        version = self._nodes.real_version
        try:
            held = self._reservations.of(gang.key)
            if held is not None and self._is_still_good(request, held):
                return ReservationSearch(ReservationStep.STAYS, version=version, is_requested=True)
            if self._reservations.is_hopeless(gang):
                return ReservationSearch(ReservationStep.HOPELESS, version=version, is_requested=True)
            nodes = self._plan(request)
        except AttemptLimitError as limit:
            return ReservationSearch(ReservationStep.PLANNED, given_up=str(limit), version=version, is_requested=True)
        return ReservationSearch(ReservationStep.PLANNED, nodes, version=version, is_requested=True)

    def reserve(self, request: PlacementRequest, failure: GangFailure, found: ReservationSearch) -> GangFailure:
        """Reserve what was found; return the failure, which reports the reservation or why there is none."""
        gang = request.gang
        if found.step is ReservationStep.NONE:
            return failure
        held = self._reservations.of(gang.key)
        if held is not None:
            held.priority = gang.priority
        if found.given_up:
            return failure.also(f"the search for nodes to reserve was {found.given_up}")
        if found.step is ReservationStep.STAYS:
            if held is not None and found.version == self._nodes.real_version:
                held.confirm()
            return failure if held is None else failure.also(_reserved(held.plan))
        if found.step is ReservationStep.HOPELESS:
            return failure.also(_HOPELESS)
        plan = None if found.nodes is None else found.nodes.plan(self._nodes, request)
        if found.nodes is not None and (plan is None or not self._may_use(request, plan)):
            # A node or a member was deleted during the search, or a node reserved for another gang; the next cycle of
            # the gang searches again.
            self._reservations.forget_plan(gang)
            return failure
        if plan is not None:
            self._reservations.begin(gang, plan)
            return failure.also(_reserved(plan))
        self._reservations.end(gang.key)
        holders = self._reservations.holders()
        if holders:
            self._reservations.await_turn(gang)
            return failure.also(_IN_TURN.format(" and ".join(holders[:2])))
        self._reservations.plan_failed(gang, found.version)
        return failure.also(_HOPELESS)

    def _is_still_good(self, request: PlacementRequest, held: Reservation) -> bool:
        """Return whether a plan is still feasible once the pods in the way have ended."""
        if not held.waited_for() or not held.fits_then() or assignment(self._nodes, held, request) is None:
            return False
        return not held.is_doubtful or is_still_valid(self._search, request, held)

    def _may_use(self, request: PlacementRequest, plan: Plan) -> bool:
        """Return whether no node of a plan is reserved for a gang of the same or a higher priority."""
        usable = self._reservations.usable_rows(request.gang, lower_too=True)
        return all(usable[self._nodes.row_of(name)] for name in plan.node_names)

    def _plan(self, request: PlacementRequest) -> ReservedNodes | None:
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
