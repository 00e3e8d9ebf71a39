"""A gang that is passed by smaller pods: its capacity kept, and its plan tried.

Owns what reservations mean for one group cycle: before it gives up, the plan is tried; when it has given up, a plan is
made, kept or replaced, and the gang is told. Must not know how plans are found, nor how pods are kept off.

The bound that follows: from the reservation on, a gang is placed within the longest remaining run time of the pods on
the reserved capacity, plus one cycle. Pods that came since take nothing of what it needs, and the going of a pod in the
way brings the gang to the front of its priority at once.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.cycle_report import scheduling_ended
from scheduler_core.cycle.gang_failure import GangFailure
from scheduler_core.cycle.gang_plan import Wish, assignment, find_plan, only, still_holds
from scheduler_core.cycle.gang_trial import ANYWHERE, GangTrial, Where, try_members, undo
from scheduler_core.cycle.measures import ERROR, UNSCHEDULABLE
from scheduler_core.cycle.reservation import Plan, Reservation

_KEPT = "capacity is reserved for it, {} {}, until the pods that run there have ended"
_IN_TURN = "it waits for its turn: capacity that it needs is reserved for gang {}"
_HOPELESS = "no capacity can be reserved for it: it would not fit even where all pods had ended"


async def try_reserved(context: CycleContext, wish: Wish) -> GangTrial | None:
    """Try to place a quorum as planned, and the members beyond it anywhere.

    Args:
        context: The shared parts.
        wish: Who is to be placed.

    Returns:
        The try, which holds at least the quorum; None if nothing is reserved or it does not fit yet.
    """
    reservation = context.reservations.of(wish.gang.key)
    pairs = None if reservation is None else assignment(context, reservation, wish)
    if reservation is None or pairs is None or not reservation.fits_now():
        return None
    trial = GangTrial(ANYWHERE)
    try:
        for queued, name in pairs:
            trial.where = Where(only(context.cache.columns, name), "node(s) were not planned for this member", "")
            held = len(trial.placed)
            await try_members(context, wish.instance, [queued], held + 1, trial)
            if len(trial.placed) == held:
                break
        trial.where = Where(name=reservation.plan.domain)
        if len(trial.placed) >= wish.needed:
            planned = {queued.uid for queued, _ in pairs}
            beyond = [queued for queued in wish.members if queued.uid not in planned]
            trial.where = _beyond(context, reservation)
            await try_members(context, wish.instance, beyond, wish.needed, trial)
            return trial
    except BaseException:
        undo(context, trial)
        raise
    undo(context, trial)
    for attempt, failure in trial.failed:
        scheduling_ended(context, attempt, ERROR if failure.is_error else UNSCHEDULABLE)
    return None


def _beyond(context: CycleContext, reservation: Reservation) -> Where:
    """Where members beyond the quorum go: to its domain too."""
    key, _, value = reservation.plan.domain.partition("=")
    if not value:
        return ANYWHERE
    nodes = context.cache.columns
    row = nodes.row_of(reservation.plan.slots[0].node_name)
    ids = nodes.label_column(key).ids
    reason = f"node(s) were outside the gang's domain {reservation.plan.domain}"
    return Where((ids == ids[row]) & nodes.alive, reason, reservation.plan.domain)


def keep_room(context: CycleContext, wish: Wish, failure: GangFailure) -> GangFailure:
    """Keep capacity for a gang that has failed too long, and see that its plan still holds.

    Args:
        context: The shared parts; nothing of the attempt is held any more.
        wish: Who could not be placed.
        failure: Why.

    Returns:
        The failure, with what is or cannot be reserved in its message.
    """
    reservations, gang = context.reservations, wish.gang
    if not reservations.is_due(gang) or failure.is_error or failure.victims:
        # Who preempts has nodes promised to it already.
        return failure
    held = reservations.of(gang.key)
    if held is not None:
        held.priority = gang.priority
        if _is_good(context, wish, held):
            return _with(failure, _kept(held.plan))
    if reservations.is_hopeless(gang):
        return _with(failure, _HOPELESS)
    plan = _plan(context, wish)
    if plan is not None:
        reservations.begin(gang, plan)
        return _with(failure, _kept(plan))
    reservations.end(gang.key)
    holders = reservations.holders()
    if holders:
        reservations.await_turn(gang)
        return _with(failure, _IN_TURN.format(" and ".join(holders[:2])))
    reservations.give_up(gang)
    return _with(failure, _HOPELESS)


def _is_good(context: CycleContext, wish: Wish, held: Reservation) -> bool:
    """Whether a plan that could not be carried out yet will be, when those have ended that it waits for."""
    if not held.waited_for() or not held.fits_then() or assignment(context, held, wish) is None:
        return False
    if held.is_doubtful:
        if not still_holds(context, wish, held):
            return False
        held.confirm()
    return True


def _plan(context: CycleContext, wish: Wish) -> Plan | None:
    """A plan beside all other reservations, else one that takes from gangs of lower priority."""
    reservations, gang = context.reservations, wish.gang
    beside = reservations.free_of(gang, lower_too=False)
    plan = find_plan(context, wish, beside)
    if plan is None:
        over = reservations.free_of(gang, lower_too=True)
        if (over != beside).any():
            plan = find_plan(context, wish, over)
    return plan


def _kept(plan: Plan) -> str:
    return _KEPT.format("in" if plan.domain else "on", plan)


def _with(failure: GangFailure, words: str) -> GangFailure:
    return replace(failure, message=f"{failure.message.rstrip('.')}; {words}")
