"""The group cycle: a gang's quorum is scheduled in one cycle or not at all.

::

    popped ─▶ minResources ─▶ domains, best first ─▶ members assumed ─▶ quorum? ─no──▶ undone, reported, requeued
                                                                           │ yes
                                        bound concurrently ◀─ permitted ◀──┘

No member stays assumed between two cycles, so gangs cannot deadlock. Members beyond the quorum are scheduled in the
same cycle if feasible, otherwise one by one afterwards.

Follows kube-scheduler v1.37.1 where comparable (``pkg/scheduler/schedule_one_podgroup.go``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import scheduling_ended
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.cycle.quorum_barrier import GangBinding
from scheduler_core.cycle.scheduling import conclude, end_nomination, permit, release
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.gangs.domains import candidate_domains, member_orders
from scheduler_core.gangs.failure import (
    GangFailure,
    gang_failed,
    not_enough_free,
    of_mixed,
    of_strangers,
    of_trials,
)
from scheduler_core.gangs.placement_plan import PlanRequest
from scheduler_core.gangs.preemption import evict, gang_preemption
from scheduler_core.gangs.reservations import GangReservations
from scheduler_core.gangs.reserved_scheduling import reserve_capacity, try_reserved
from scheduler_core.gangs.trial import GangTrial, try_members, undo
from scheduler_core.metrics.decision_log import log_gang
from scheduler_core.metrics.profile_metrics import ERROR, SCHEDULED, UNSCHEDULABLE, WAITING_ON_PREEMPTION
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.gang_state import Gang, GangOutcome
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.permitting import WaitingPodMap
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

NearestNodes = Callable[[Gang, GangTrial], str]
"""Returns a sentence on the nodes that lack least for the next member of a failed try; "" for none."""


class GangScheduler:
    """Runs group cycles.

    Args:
        context: The shared parts.
        reservations: Capacity reserved for gangs.
        nearest_nodes: Describes the nearest nodes while the feasible members of a failed try are still assumed.
    """

    def __init__(self, context: CycleContext, reservations: GangReservations, nearest_nodes: NearestNodes) -> None:
        self._context = context
        self._reservations = reservations
        self._nearest_nodes = nearest_nodes

    async def schedule(self, entry: QueuedGang) -> list[Attempt]:
        """Run one group cycle.

        Args:
            entry: The popped entry of a gang.

        Returns:
            The attempts whose pods are assumed and must be bound; none if the gang was not scheduled. Awaits only if
            the profile has extenders; the cycle is suspended then. If it is cancelled, the gang is released and
            requeued.
        """
        context = self._context
        entry.tried_at = context.clock.now()
        gang, instance = context.queue.gangs.get(entry.gang_key), context.profiles.get(entry.profile)
        if gang is None or gang.group is None or instance is None or not gang.has_quorum:
            context.queue.failed(entry)
            return []
        instance.begin()
        try:
            if not instance.extenders:
                return await self._attempt(GroupCycle(entry, gang, instance))
            with context.suspension.of_cycle():
                return await self._attempt(GroupCycle(entry, gang, instance))
        except BaseException:
            if context.queue.find(entry.uid) is entry:
                context.queue.failed(entry)
            raise
        finally:
            instance.end()

    async def _attempt(self, cycle: GroupCycle) -> list[Attempt]:
        context = self._context
        gang, now, begun = cycle.gang, context.clock.wall(), context.clock.now()
        gang.last_attempt = now
        gang.first_attempt = gang.first_attempt or now
        assert gang.group is not None
        for queued in cycle.members:
            queued.first_attempt = queued.first_attempt or cycle.entry.first_attempt
        lack = cycle.refusal(context.cache.columns)
        trials: list[GangTrial] = []
        if lack is None:
            # Nominations of members do not block other members of the same gang.
            with context.queue.nominator.without(gang.waiting):
                placed = await self._search(cycle, trials) or await self._as_reserved(cycle)
            if placed is not None:
                searched = context.clock.now()
                attempts = _commit(context, cycle, placed, trials)
                _count(context, cycle, SCHEDULED, begun, searched)
                waited = context.clock.now() - (cycle.entry.first_attempt or begun)
                context.metrics.profiles[cycle.entry.profile].gang_waits.observe(waited)
                message = f"{len(attempts)} members are placed together, {waited:.1f} s after the quorum was there"
                log_gang(str(gang.key), cycle.entry.profile, SCHEDULED, message)
                return attempts
        searched = context.clock.now()
        failure = lack or of_trials(cycle.instance, cycle.needed, trials)
        for attempt, reason in (each for trial in trials for each in trial.failed):
            scheduling_ended(context, attempt, ERROR if reason.is_error else UNSCHEDULABLE)
        failure, eviction = gang_preemption(context, gang, cycle.instance, failure)
        failure = reserve_capacity(context, self._reservations, cycle.request(context.cache), failure)
        if gang.first_failure is None:
            gang.first_failure = context.clock.now()
        self._reservations.failed(gang)
        gang_failed(context, cycle.entry, gang, failure)
        result = ERROR if failure.is_error else UNSCHEDULABLE
        if eviction is not None:
            result = WAITING_ON_PREEMPTION
            evict(cycle.instance, eviction)
        _count(context, cycle, result, begun, searched)
        return []

    async def _search(self, cycle: GroupCycle, trials: list[GangTrial]) -> GangTrial | None:
        """Try to schedule the quorum; failed tries are undone and appended to ``trials``."""
        context = self._context
        for where, order in ways(context.cache, cycle):
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
                trial.nearest = self._nearest_nodes(cycle.gang, trial)
            undo(context, trial)
            trials.append(trial)
            if trial.is_error:
                break
        return None

    async def _as_reserved(self, cycle: GroupCycle) -> GangTrial | None:
        """Try to schedule the quorum on the capacity reserved for it, if any."""
        context = self._context
        request = cycle.request(context.cache)
        trial = await try_reserved(context, self._reservations, request) if self._reservations else None
        if trial is None or _permit(context, trial, cycle.needed):
            return trial
        undo(context, trial)
        return None


class GroupCycle:
    """Inputs of one group cycle.

    Attributes:
        entry: The gang's entry in the queue.
        gang: The gang.
        instance: The profile's revision that decides.
        needed: How many members must be scheduled together.
        members: Its waiting members of that profile, in the order in which they are tried.
    """

    def __init__(self, entry: QueuedGang, gang: Gang, instance: FrameworkInstance) -> None:
        self.entry = entry
        self.gang = gang
        self.instance = instance
        self.needed = gang.needed
        own = [pod for pod in gang.waiting.values() if pod.profile == entry.profile]
        self.members = sorted(own, key=lambda pod: (-pod.info.priority, pod.sequence))

    def placed(self, cache: ClusterCache) -> list[PodInfo]:
        """Return the members that have a node already."""
        # Sorted, because the domain is that of the first member and must not depend on hashes.
        known = (cache.get(uid) for uid in sorted(self.gang.placed))
        return [placed.info for placed in known if placed is not None]

    def refusal(self, nodes: NodeColumns) -> GangFailure | None:
        """Return why no node is tried; None to try.

        The members are not uniform, no profile has a quorum, or ``minResources`` are not free.
        """
        assert self.gang.group is not None
        if self.gang.group.is_uniform:
            failure = of_mixed(self.gang.group, self._counted(), self.needed)
            if failure is not None:
                return failure
        return self._divided() or (None if self.gang.placed else not_enough_free(self.instance, nodes, self.gang.group))

    def _counted(self) -> list[Pod]:
        """Return the waiting and the scheduled members, in that order."""
        waiting = sorted(self.gang.waiting.values(), key=lambda pod: pod.sequence)
        placed = [pod for uid in sorted(self.gang.placed) if (pod := self.gang.pods.get(uid)) is not None]
        return [*(queued.info.pod for queued in waiting), *placed]

    def _divided(self) -> GangFailure | None:
        """Return the failure of a gang whose members name several schedulers; None if this one has a quorum."""
        if len(self.members) >= self.needed:
            return None
        others = [pod.profile for pod in self.gang.waiting.values() if pod.profile != self.entry.profile]
        return of_strangers(self.entry.profile, others, self.needed)

    def request(self, cache: ClusterCache) -> PlanRequest:
        """Return the request for a reservation."""
        return PlanRequest(self.gang, self.instance, self.members, self.needed, self.placed(cache))


def _count(context: CycleContext, cycle: GroupCycle, result: str, begun: float, searched: float) -> None:
    seconds = context.clock.now() - begun
    context.metrics.group_attempted(cycle.entry.profile, result, searched - begun, seconds)


def ways(cache: ClusterCache, cycle: GroupCycle) -> Iterator[tuple[Where, Sequence[QueuedPod]]]:
    """Yield the tries of a group cycle: each domain with the members by arrival, then the largest first.

    Args:
        cache: The nodes, and the members that are scheduled.
        cycle: The cycle.

    Returns:
        Domains and orders of members; the first try in which the quorum is feasible is used.
    """
    assert cycle.gang.group is not None
    topology, nodes = cycle.gang.group.topology, cache.columns
    wheres: list[Where] = []
    if topology is not None:
        infos = [pod.info for pod in cycle.members]
        domains = candidate_domains(nodes, topology, infos, cycle.needed, cycle.placed(cache))
        enough = [domain for domain in domains if domain.room >= cycle.needed]
        wheres = [domain.where for domain in enough or domains[:1]]
    if topology is None or not topology.is_required:
        wheres.append(ANYWHERE)
    for where in wheres:
        for order in member_orders(cycle.members):
            yield where, order


def _permit(context: CycleContext, trial: GangTrial, needed: int) -> bool:
    """Run Permit for all assumed members; return whether the quorum passed or waits there."""
    passed: list[Attempt] = []
    for attempt in trial.placed:
        assert attempt.recorder is not None, "members are recorded"
        attempt.recorder.resume()
        failure = permit(context, attempt)
        if failure is None:
            passed.append(attempt)
        else:
            release(context, attempt)
            trial.failed.append((attempt, failure))
    trial.placed = passed
    return len(passed) >= needed


def _commit(context: CycleContext, cycle: GroupCycle, trial: GangTrial, failed: Sequence[GangTrial]) -> list[Attempt]:
    """Hand the assumed members over to their binding cycles.

    Infeasible members beyond the quorum enter the queue as single pods: their own cycles run PostFilter plugins, so
    they can preempt, and report why they are unschedulable.
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
        lambda uid, why: _refuse(context.waiting, uid, why),
        context.queue.gang_changed,
    )
    for attempt in trial.placed:
        cycle.instance.begin()
        attempt.gang = together
        together.begun()
        end_nomination(context, attempt)
        conclude(context, attempt, None)
    context.queue.gang_changed(gang)
    gang.first_failure, gang.victims = None, ()
    gang.outcome = GangOutcome(
        "Scheduled", _scheduled_message(trial, failed), len(trial.placed), len(cycle.members), trial.where.name
    )
    context.queue.gangs.changed(gang)
    return trial.placed


def _scheduled_message(trial: GangTrial, failed: Sequence[GangTrial]) -> str:
    text = f"{len(trial.placed)} members were placed together"
    if trial.where.name:
        return f"{text} in {trial.where.name}"
    if failed:
        nearest = max(failed, key=lambda each: each.reached)
        return f"{text}, over several domains: none has room for all, {nearest.where.name} has for {nearest.reached}"
    return text


def _refuse(pods: WaitingPodMap, uid: str, why: str) -> None:
    waiting = pods.get(uid)
    if waiting is not None:
        waiting.reject(GANG_SCHEDULING, why)
