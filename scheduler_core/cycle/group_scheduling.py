"""The group cycle: a gang's quorum is placed together or nothing of it is.

Owns one attempt of a gang::

    popped ─▶ minResources ─▶ domains, best first ─▶ members on the overlay ─▶ quorum? ─no──▶ undone, told, waits
                                                                                 │ yes
                                              bound concurrently ◀─ permitted ◀──┘

Nothing is held between two cycles, so two gangs never hold against each other. The members beyond the quorum are placed
in the same cycle if they can be; those that cannot are scheduled one by one from then on.

Follows, where it can be compared, kube-scheduler v1.36.3 (``pkg/scheduler/schedule_one_podgroup.go``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import scheduling_ended
from scheduler_core.cycle.decision_log import tell_gang
from scheduler_core.cycle.gang_binding import GangBinding
from scheduler_core.cycle.gang_domains import Domain, candidate_domains
from scheduler_core.cycle.gang_failure import GangFailure, gang_failed, not_enough_free, of_strangers, of_trials
from scheduler_core.cycle.gang_nearest import nearest
from scheduler_core.cycle.gang_plan import Wish
from scheduler_core.cycle.gang_preemption import evict, gang_preemption
from scheduler_core.cycle.gang_trial import ANYWHERE, GangTrial, Where, try_members, undo
from scheduler_core.cycle.measures import ERROR, SCHEDULED, UNSCHEDULABLE, WAITING_ON_PREEMPTION
from scheduler_core.cycle.reserved_scheduling import keep_room, try_reserved
from scheduler_core.cycle.scheduling import conclude, permit, release, spend_promise
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.queueing.gang import Gang, GangOutcome
from scheduler_core.queueing.gang_entries import GANG_SCHEDULING
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)


async def schedule_gang(context: CycleContext, entry: QueuedGang) -> list[Attempt]:
    """Run one group cycle.

    Args:
        context: The shared parts.
        entry: The popped entry of a gang.

    Returns:
        The attempts whose pods are assumed and are to be bound; none if the gang was not placed. Awaits only where the
        profile has extenders; the cycle is suspended then. If it is cancelled, the gang holds nothing and waits again.
    """
    entry.tried_at = context.clock.now()
    gang, instance = context.queue.gangs.get(entry.gang_key), context.profiles.get(entry.profile)
    if gang is None or gang.group is None or instance is None or not gang.has_quorum:
        context.queue.failed(entry)
        return []
    instance.begin()
    try:
        if not instance.extenders:
            return await _attempt(context, GroupCycle(entry, gang, instance))
        with context.suspension.of_cycle():
            return await _attempt(context, GroupCycle(entry, gang, instance))
    except BaseException:
        if context.queue.find(entry.uid) is entry:
            context.queue.failed(entry)
        raise
    finally:
        instance.end()


class GroupCycle:
    """One group cycle's constants.

    Attributes:
        entry: What stands for the gang in the queue.
        gang: The gang.
        instance: The profile's revision that decides.
        needed: How many members must be placed together.
        members: Its waiting members of that profile, in the order in which they are placed.
    """

    def __init__(self, entry: QueuedGang, gang: Gang, instance: FrameworkInstance) -> None:
        self.entry = entry
        self.gang = gang
        self.instance = instance
        self.needed = gang.needed
        own = [pod for pod in gang.waiting.values() if pod.profile == entry.profile]
        self.members = sorted(own, key=lambda pod: (-pod.info.priority, pod.sequence))

    def placed(self, context: CycleContext) -> list[PodInfo]:
        """Members that have a node already."""
        # In an order that does not depend on hashes: the domain is that of the first.
        known = (context.cache.get(uid) for uid in sorted(self.gang.placed))
        return [placed.info for placed in known if placed is not None]

    def divided(self) -> GangFailure | None:
        """The failure of a gang whose members name several schedulers; None if this one has a quorum."""
        if len(self.members) >= self.needed:
            return None
        others = [pod.profile for pod in self.gang.waiting.values() if pod.profile != self.entry.profile]
        return of_strangers(self.entry.profile, others, self.needed)

    def wish(self, context: CycleContext) -> Wish:
        """What a reservation is to be made for."""
        return Wish(self.gang, self.instance, self.members, self.needed, self.placed(context))


async def _attempt(context: CycleContext, cycle: GroupCycle) -> list[Attempt]:
    gang, now, begun = cycle.gang, context.clock.wall(), context.clock.now()
    gang.last_attempt = now
    gang.first_attempt = gang.first_attempt or now
    assert gang.group is not None
    for queued in cycle.members:
        queued.first_attempt = queued.first_attempt or cycle.entry.first_attempt
    lack = cycle.divided() or (not_enough_free(context.cache.columns, gang.group) if not gang.placed else None)
    trials: list[GangTrial] = []
    if lack is None:
        # Members come together: what one of them is promised is not kept from the others.
        with context.queue.nominator.without(gang.waiting):
            placed = await _search(context, cycle, trials) or await _as_reserved(context, cycle)
        if placed is not None:
            searched = context.clock.now()
            attempts = _commit(context, cycle, placed, trials)
            _count(context, cycle, SCHEDULED, begun, searched)
            waited = context.clock.now() - (cycle.entry.first_attempt or begun)
            context.measures.profile(cycle.entry.profile).gang_waits.observe(waited)
            told = f"{len(attempts)} members are placed together, {waited:.1f} s after the quorum was there"
            tell_gang(str(gang.key), cycle.entry.profile, SCHEDULED, told)
            return attempts
    searched = context.clock.now()
    failure = lack or of_trials(cycle.needed, trials)
    for attempt, reason in (each for trial in trials for each in trial.failed):
        scheduling_ended(context, attempt, ERROR if reason.is_error else UNSCHEDULABLE)
    failure, eviction = gang_preemption(context, gang, cycle.instance, failure)
    gang_failed(context, cycle.entry, gang, keep_room(context, cycle.wish(context), failure))
    result = ERROR if failure.is_error else UNSCHEDULABLE
    if eviction is not None:
        result = WAITING_ON_PREEMPTION
        evict(cycle.instance, eviction)
    _count(context, cycle, result, begun, searched)
    return []


def _count(context: CycleContext, cycle: GroupCycle, result: str, begun: float, searched: float) -> None:
    seconds = context.clock.now() - begun
    context.measures.group_attempted(cycle.entry.profile, result, searched - begun, seconds)


async def _search(context: CycleContext, cycle: GroupCycle, trials: list[GangTrial]) -> GangTrial | None:
    """Try to place the quorum; the tries that failed are undone and kept in ``trials``."""
    for where, order in ways(context, cycle):
        trial = GangTrial(where)
        try:
            await try_members(context, cycle.instance, order, cycle.needed, trial)
        except BaseException:
            undo(context, trial)
            raise
        if len(trial.placed) >= cycle.needed and _permit(context, trial, cycle.needed):
            return trial
        trial.reached = len(trial.placed)
        if trial.failed and not trial.is_error and all(trial.reached > each.reached for each in trials):
            trial.nearest = nearest(context, cycle.gang, trial)
        undo(context, trial)
        trials.append(trial)
        if trial.is_error:
            break
    return None


async def _as_reserved(context: CycleContext, cycle: GroupCycle) -> GangTrial | None:
    """Try to place the quorum on the capacity that is reserved for it, if any is."""
    trial = await try_reserved(context, cycle.wish(context)) if context.reservations else None
    if trial is None or _permit(context, trial, cycle.needed):
        return trial
    undo(context, trial)
    return None


def ways(context: CycleContext, cycle: GroupCycle) -> Iterator[tuple[Where, Sequence[QueuedPod]]]:
    """Where to try, in which order of members: as they came, then the largest first, which packs better.

    Args:
        context: The shared parts.
        cycle: Who is to be placed.

    Returns:
        The tries in their order; the first that places the quorum is taken.
    """
    assert cycle.gang.group is not None
    topology, nodes = cycle.gang.group.topology, context.cache.columns
    largest_first = sorted(cycle.members, key=lambda pod: sorted(pod.info.fit), reverse=True)
    orders = [cycle.members] if _is_uniform(cycle.members) else [cycle.members, largest_first]
    wheres: list[Where] = []
    if topology is not None:
        infos = [pod.info for pod in cycle.members]
        domains = candidate_domains(nodes, topology, infos, cycle.needed, cycle.placed(context))
        enough = [domain for domain in domains if domain.room >= cycle.needed]
        wheres = [_where(domain) for domain in enough or domains[:1]]
    if topology is None or not topology.is_required:
        wheres.append(ANYWHERE)
    for where in wheres:
        for order in orders:
            yield where, order


def _where(domain: Domain) -> Where:
    return Where(domain.among, f"node(s) were outside the gang's domain {domain}", str(domain))


def _is_uniform(members: Sequence[QueuedPod]) -> bool:
    return len({pod.info.fit for pod in members}) <= 1


def _permit(context: CycleContext, trial: GangTrial, needed: int) -> bool:
    """Ask Permit about all that were placed; whether the quorum passes or waits there."""
    passed: list[Attempt] = []
    for attempt in trial.placed:
        attempt.state.times.resume()
        failure = permit(context, attempt)
        if failure is None:
            passed.append(attempt)
        else:
            release(context, attempt)
            trial.failed.append((attempt, failure))
    trial.placed = passed
    return len(passed) >= needed


def _commit(context: CycleContext, cycle: GroupCycle, trial: GangTrial, failed: Sequence[GangTrial]) -> list[Attempt]:
    """The quorum is placed: what is held goes to the binding cycles.

    Members beyond the quorum that found no node enter the queue, each on its own: their own cycles run PostFilter
    plugins, so that they can preempt, and report why they do not fit.
    """
    gang, needed = cycle.gang, cycle.needed
    for each in (*failed, trial):
        for attempt, _ in each.failed:
            scheduling_ended(context, attempt, UNSCHEDULABLE)
    context.queue.gang_placed(cycle.entry, [attempt.queued for attempt in trial.placed])
    quorum = [attempt.info.uid for attempt in trial.placed[:needed]]
    together = GangBinding(
        gang,
        quorum,
        lambda uid: context.cache.get(uid) is not None,
        lambda uid, why: _refuse(context, uid, why),
        context.queue.gang_changed,
    )
    for attempt in trial.placed:
        cycle.instance.begin()
        attempt.gang = together
        together.begun()
        spend_promise(context, attempt)
        conclude(context, attempt, None)
    context.queue.gang_changed(gang)
    gang.first_failure, gang.victims = None, ()
    gang.outcome = GangOutcome(
        "Scheduled", _told(trial, failed), len(trial.placed), len(cycle.members), trial.where.name
    )
    context.queue.gangs.changed(gang)
    return trial.placed


def _told(trial: GangTrial, failed: Sequence[GangTrial]) -> str:
    text = f"{len(trial.placed)} members were placed together"
    if trial.where.name:
        return f"{text} in {trial.where.name}"
    if failed:
        nearest = max(failed, key=lambda each: each.reached)
        return f"{text}, over several domains: none has room for all, {nearest.where.name} has for {nearest.reached}"
    return text


def _refuse(context: CycleContext, uid: str, why: str) -> None:
    waiting = context.waiting.get(uid)
    if waiting is not None:
        waiting.reject(GANG_SCHEDULING, why)
