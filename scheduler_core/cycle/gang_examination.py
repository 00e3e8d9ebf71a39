"""One group cycle that changes nothing, told place by place.

Owns the what-if of a gang whose quorum waits: each try of a group cycle is made on the live columns and undone, in the
cycle's order, and in the nearest places it is looked what the next member lacks while the others are there. It must not
decide anything itself: the group cycle says where and in which order, and each try is the very function that a cycle
runs. Nothing is permitted, committed or told to anybody.

Extenders are not asked: members are tried as if the profile had none, so that a try never awaits and nobody else runs
meanwhile.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.examination import Companions, examine_member
from scheduler_core.cycle.gang_domains import candidate_domains
from scheduler_core.cycle.gang_failure import not_enough_free, of_trials
from scheduler_core.cycle.gang_nearest import labels_of
from scheduler_core.cycle.gang_plan import assignment, only
from scheduler_core.cycle.gang_preemption import GangPreview, preview_gang_preemption
from scheduler_core.cycle.gang_trial import ANYWHERE, GangTrial, Where, try_members, undo
from scheduler_core.cycle.group_scheduling import GroupCycle, ways
from scheduler_core.cycle.near_misses import NearMiss, near_misses
from scheduler_core.cycle.unblocking import Unblocking, unblocking_events
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cycle_times import UNTIMED
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.gang import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class NextMember:
    """The first member that found no node while the others were in place.

    Attributes:
        pod: The member.
        message: Why, as its condition words it.
        nearest: The nodes of the place that it misses by least.
        unblocking: Events after which there is a node for it too; for those that are still missing after it, it may
            take more.
    """

    pod: PodInfo
    message: str
    nearest: tuple[NearMiss, ...] = ()
    unblocking: tuple[Unblocking, ...] = ()


@dataclass(frozen=True, slots=True)
class ExaminedPlace:
    """What came of a gang in one place.

    Attributes:
        name: The domain, such as ``zone=a``; "" for anywhere.
        nodes: The node of each member that has one, by ``namespace/name`` of the member, in the order of placing them.
        needed: How many members must have one.
        next_member: Who comes next; None if nobody was turned away.
        is_error: Whether that was an error rather than a rejection.
        is_tried: Whether a cycle would try this place; if not, too few members have room there.
    """

    name: str
    nodes: dict[str, str]
    needed: int
    next_member: NextMember | None = None
    is_error: bool = False
    is_tried: bool = True

    @property
    def fits(self) -> bool:
        """Whether the quorum fits."""
        return self.is_tried and len(self.nodes) >= self.needed


@dataclass(frozen=True, slots=True)
class KeptOff:
    """Nodes that members must leave to another gang."""

    key: GroupKey
    node_names: tuple[str, ...]


@dataclass(slots=True)
class GangExamination:
    """What a group cycle would find.

    Attributes:
        profile: The scheduler name that was asked.
        needed: How many members must be placed together.
        waiting: How many wait.
        refusal: Why no place is tried, such as ``minResources`` that are not free; "" if places are.
        chosen: Where the quorum fits; None for nowhere.
        is_reserved: Whether that is the capacity that was kept for the gang.
        places: Where it does not fit, the nearest first; at most as many as were asked for.
        tried: How many places were tried in all.
        preemption: What preemption would do; None where the quorum fits or an error ended the tries.
        kept_off: Nodes that are kept for other gangs.
    """

    profile: str
    needed: int
    waiting: int
    refusal: str = ""
    chosen: ExaminedPlace | None = None
    is_reserved: bool = False
    places: tuple[ExaminedPlace, ...] = ()
    tried: int = 0
    preemption: GangPreview | None = None
    kept_off: tuple[KeptOff, ...] = ()

    @property
    def error(self) -> str:
        """The error that ended the tries; "" for none."""
        broken = (place.next_member for place in self.places if place.is_error)
        return next((f"{each.pod.key}: {each.message}" for each in broken if each is not None), "")


@dataclass(slots=True)
class _Try:
    """A place, an order of members, and how far it went.

    Attributes:
        where: The place.
        order: The members in the order of placing them.
        reached: How many found a node.
        is_error: Whether a member met an error.
        is_tried: Whether a cycle would try it.
        place: What is told of it, without events; None if it was too far off.
    """

    where: Where
    order: Sequence[QueuedPod]
    reached: int = 0
    is_error: bool = False
    is_tried: bool = True
    place: ExaminedPlace | None = None


@dataclass(slots=True)
class _Tries:
    """All of them, those of equal places folded into the better one.

    Attributes:
        limit: In how many places it is told what is lacking.
        best: By the place.
    """

    limit: int
    best: dict[str, _Try] = field(default_factory=dict)

    def is_near(self, each: _Try) -> bool:
        """Whether it may be one of those that are told."""
        return sum(other.reached > each.reached for other in self.best.values()) < self.limit

    def add(self, each: _Try) -> None:
        known = self.best.get(each.where.name)
        if known is None or each.reached > known.reached:
            self.best[each.where.name] = each

    def nearest(self) -> list[_Try]:
        """Errors first, since they ended the tries; then those that reached most, in the order of trying."""
        return sorted(self.best.values(), key=lambda each: (not each.is_error, -each.reached))


def examine_gang(
    context: CycleContext, gang: Gang, entry: QueuedGang, instance: FrameworkInstance, limit: int
) -> GangExamination:
    """Try to place a gang whose quorum waits.

    Args:
        context: The shared parts, between two cycles; everything is as it was when this returns.
        gang: The gang; it has its quorum and its PodGroup.
        entry: What stands for it in the queue.
        instance: The profile that is asked.
        limit: In how many places it is told what is lacking, and of how many nodes there.

    Returns:
        What was found. A plugin's fault ends the tries and is told in it.
    """
    cycle = GroupCycle(entry, gang, _without_extenders(instance))
    found = GangExamination(instance.name, cycle.needed, len(cycle.members))
    found.kept_off = _kept_off(context, cycle)
    assert gang.group is not None
    refusal = cycle.divided() or (None if gang.placed else not_enough_free(context.cache.columns, gang.group))
    if refusal is not None:
        found.refusal = refusal.message
    else:
        with context.queue.nominator.without(gang.waiting):
            _search(context, cycle, found, limit)
    if found.chosen is None and not found.error:
        found.preemption = preview_gang_preemption(context, gang, instance)
    return found


def _kept_off(context: CycleContext, cycle: GroupCycle) -> tuple[KeptOff, ...]:
    nodes = context.cache.columns
    kept = context.reservations.kept_from(cycle.gang.key, cycle.members[0].info) if cycle.members else []
    return tuple(KeptOff(each.key, tuple(sorted(map(nodes.node_name, rows.tolist())))) for each, rows in kept)


# -- the tries ------------------------------------------------------------------------------------------------------


def _search(context: CycleContext, cycle: GroupCycle, found: GangExamination, limit: int) -> None:
    tries = _Tries(limit)
    for where, order in ways(context, cycle):
        each = _Try(where, order)
        found.chosen = _tried(context, cycle, each, tries)
        if found.chosen is not None or each.is_error:
            break
    if found.chosen is None:
        found.chosen = _as_reserved(context, cycle)
        found.is_reserved = found.chosen is not None
    found.tried = len(tries.best)
    if not found.tried:
        found.refusal = of_trials(cycle.needed, ()).message
    if found.chosen is not None:
        tries.best.pop(found.chosen.name, None)
    elif not any(each.is_error for each in tries.best.values()):
        _look_further(context, cycle, tries)
    nearest = tries.nearest()[:limit]
    found.places = tuple(
        each.place if number and each.place is not None else _with_events(context, cycle, each, limit)
        for number, each in enumerate(nearest)
    )


def _look_further(context: CycleContext, cycle: GroupCycle, tries: _Tries) -> None:
    """Look also into domains that a cycle does not try, since too few members have room there."""
    assert cycle.gang.group is not None
    topology = cycle.gang.group.topology
    if topology is None:
        return
    infos = [queued.info for queued in cycle.members]
    nodes, placed = context.cache.columns, cycle.placed(context)
    for domain in candidate_domains(nodes, topology, infos, cycle.needed, placed):
        if len(tries.best) >= tries.limit:
            return
        if str(domain) not in tries.best:
            where = Where(domain.among, f"node(s) were outside the gang's domain {domain}", str(domain))
            _tried(context, cycle, _Try(where, cycle.members, is_tried=False), tries)


def _tried(context: CycleContext, cycle: GroupCycle, each: _Try, tries: _Tries) -> ExaminedPlace | None:
    """Make one try and undo it; the place if the quorum fits."""
    trial = GangTrial(each.where)
    try:
        _fill(context, cycle, each.order, cycle.needed, trial)
        each.reached, each.is_error = len(trial.placed), trial.is_error
        if each.reached >= cycle.needed:
            place = _place(cycle, trial, each)
            tries.add(each)
            return place if each.is_tried else None
        if tries.is_near(each):
            lacking = _next_member(context, cycle, trial, (tries.limit, False))
            each.place = _place(cycle, trial, each, lacking)
        tries.add(each)
        return None
    finally:
        undo(context, trial)


def _as_reserved(context: CycleContext, cycle: GroupCycle) -> ExaminedPlace | None:
    """The place that is kept for the gang, if there is room by now."""
    reservation = context.reservations.of(cycle.gang.key)
    pairs = None if reservation is None else assignment(context, reservation, cycle.wish(context))
    if reservation is None or pairs is None or not reservation.fits_now():
        return None
    trial = GangTrial(ANYWHERE)
    try:
        for queued, name in pairs:
            trial.where = Where(only(context.cache.columns, name), "node(s) were not planned for this member")
            held = len(trial.placed)
            _fill(context, cycle, [queued], held + 1, trial)
            if len(trial.placed) == held:
                return None
        trial.where = Where(name=reservation.plan.domain)
        return _place(cycle, trial, _Try(trial.where, cycle.members))
    finally:
        undo(context, trial)


def _place(cycle: GroupCycle, trial: GangTrial, each: _Try, lacking: NextMember | None = None) -> ExaminedPlace:
    nodes = {attempt.info.key: attempt.node_name for attempt in trial.placed}
    return ExaminedPlace(trial.where.name, nodes, cycle.needed, lacking, trial.is_error, each.is_tried)


def _fill(context: CycleContext, cycle: GroupCycle, order: Sequence[QueuedPod], needed: int, trial: GangTrial) -> None:
    """Place members as a cycle does, and let the next partial search begin where it would have begun."""
    start, known = context.next_start, len(trial.placed)
    awaiting = try_members(context, cycle.instance, order, needed, trial)
    try:
        awaiting.send(None)
    except StopIteration:
        pass
    else:
        # Without extenders there is nothing to wait for.
        awaiting.close()
        message = f"gang {cycle.gang.key} cannot be tried in thought: profile {cycle.instance.name} waits for something"
        raise SchedulerCoreError(f"{message}; please report it")
    finally:
        context.next_start = start
        for attempt in (*trial.placed[known:], *(attempt for attempt, _ in trial.failed)):
            context.times.release(attempt.state.times)
            attempt.state.times = UNTIMED


def _without_extenders(instance: FrameworkInstance) -> FrameworkInstance:
    """The profile as if it had no extenders."""
    if not instance.extenders:
        return instance
    alone = copy.copy(instance)
    alone.extenders = ()
    return alone


# -- what is lacking ------------------------------------------------------------------------------------------------


def _with_events(context: CycleContext, cycle: GroupCycle, each: _Try, limit: int) -> ExaminedPlace:
    """Make a try again, and look at the next member, and at what would help it, before it is undone."""
    trial = GangTrial(_as_long_as(each.where, context.cache.columns.size))
    try:
        _fill(context, cycle, each.order, cycle.needed, trial)
        return _place(cycle, trial, each, _next_member(context, cycle, trial, (limit, True)))
    finally:
        undo(context, trial)


def _as_long_as(where: Where, size: int) -> Where:
    """The place, for columns to which a node that was tried in thought has left a free row."""
    if where.among is None or len(where.among) == size:
        return where
    among = np.zeros(size, dtype=np.bool_)
    among[: len(where.among)] = where.among
    return replace(where, among=among)


def _next_member(
    context: CycleContext, cycle: GroupCycle, trial: GangTrial, told: tuple[int, bool]
) -> NextMember | None:
    if not trial.failed:
        return None
    attempt, failure = trial.failed[0]
    limit, with_events = told
    if failure.is_error:
        return NextMember(attempt.info, failure.message)
    assert cycle.gang.group is not None
    labels = labels_of(context.cache.columns, cycle.gang.group.topology, trial.where)
    companions = Companions(frozenset(cycle.gang.pods), labels)
    again = examine_member(context, cycle.instance, attempt.queued, companions)
    if again.feasible or again.error:
        # It was turned away after its node was chosen: that no node lacks anything.
        return NextMember(attempt.info, failure.message)
    try:
        misses = near_misses(context, cycle.instance, again, limit)
        events = unblocking_events(context, cycle.instance, again, misses) if with_events else ()
    except SchedulerCoreError:
        return NextMember(attempt.info, failure.message)
    return NextMember(attempt.info, failure.message, misses, events)
