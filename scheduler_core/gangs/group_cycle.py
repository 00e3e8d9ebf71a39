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
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.gang_bind_barrier import GangBinding
from scheduler_core.cycle.internal_errors import InternalErrors, try_twice
from scheduler_core.cycle.scheduling_cycle import SchedulingCycle
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import AttemptLimitError, error_message
from scheduler_core.framework.gang_preemptor import GangEviction, TriedMember
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.gangs.failure_handler import SCHEDULER_ERROR, FailedGangs, GangFailure, of_limit, of_trials
from scheduler_core.gangs.placement_search import GroupCycle, QuorumSearch
from scheduler_core.gangs.placement_trial import GangTrial
from scheduler_core.gangs.preemption import GangPreemption, evict
from scheduler_core.gangs.reservation_cycle import ReservedScheduling
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.attempt_reports import log_gang
from scheduler_core.metrics.profile_metrics import ERROR, SCHEDULED, UNSCHEDULABLE, WAITING_ON_PREEMPTION
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import run_gang_post_filters
from scheduler_core.runtime.profile_swap import ProfileTable
from scheduler_core.runtime.reserve_and_permit import WaitingPodMap
from scheduler_core.snapshot.cluster_cache import ClusterCache

log = logging.getLogger(__name__)


class GangScheduler:
    """Runs group cycles.

    Args:
        queue: The queue.
        profiles: The live profiles.
        suspension: Defers changes while a cycle awaits an extender.
        clock: Time.
        attempts: Schedules gangs.
        failed: Reports and requeues gangs.
        errors: Undoes cycles that an exception interrupted.
    """

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        profiles: ProfileTable,
        suspension: Suspension,
        clock: Clock,
        attempts: GroupAttempts,
        failed: FailedGangs,
        errors: InternalErrors,
    ) -> None:
        self._queue = queue
        self._profiles = profiles
        self._suspension = suspension
        self._clock = clock
        self._attempts = attempts
        self._failed = failed
        self._errors = errors

    async def schedule(self, entry: QueuedGang) -> list[Attempt]:
        """Run one group cycle.

        Args:
            entry: The popped entry of a gang.

        Returns:
            The attempts whose pods are assumed and must be bound; none if the gang was not scheduled. Awaits only if
            the profile has extenders; the cycle is suspended then. If it is cancelled, the gang is released and
            requeued.
        """
        queue = self._queue
        entry.tried_at = self._clock.now()
        gang, instance = queue.gangs.get(entry.gang_key), self._profiles.get(entry.profile)
        if gang is None or gang.group is None or instance is None or not gang.has_quorum:
            queue.failed(entry)
            return []
        instance.begin()
        attempts: list[Attempt] = []
        try:
            if not instance.extenders:
                attempts = await self._run(entry, gang, instance)
            else:
                with self._suspension.of_cycle():
                    attempts = await self._run(entry, gang, instance)
        except BaseException:
            self._errors.undo()
            if queue.find(entry.uid) is entry:
                queue.failed(entry)
            raise
        finally:
            try_twice(instance.end)
        return attempts

    async def _run(self, entry: QueuedGang, gang: Gang, instance: FrameworkInstance) -> list[Attempt]:
        """Run one attempt; an exception of any step fails this gang only, with everything undone."""
        try:
            return await self._attempts.run(GroupCycle(entry, gang, instance))
        except Exception as fault:
            text = "the cycle of gang %s failed in the scheduler itself"
            try_twice(log.error, text, gang.key, exc_info=fault, extra={"podgroup": str(gang.key)})
            self._errors.undo()
            failure = GangFailure(error_message(fault), SCHEDULER_ERROR, needed=gang.needed)
            if not try_twice(self._failed.handle, entry, gang, failure):
                self._errors.requeue(entry)
            return []


class GroupAttempts:
    """Attempts to schedule gangs: search, then commit or rejection.

    Args:
        cache: The nodes.
        search: Searches the nodes of a quorum.
        commit: Hands members over to their binding cycles.
        rejection: Handles gangs that are not scheduled.
        clock: Time.
        metrics: Metrics of the scheduler.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        search: QuorumSearch,
        commit: QuorumCommit,
        rejection: GangRejection,
        clock: Clock,
        metrics: SchedulerMetrics,
    ) -> None:
        self._cache = cache
        self._search = search
        self._commit = commit
        self._rejection = rejection
        self._clock = clock
        self._metrics = metrics

    async def run(self, cycle: GroupCycle) -> list[Attempt]:
        """Run one attempt; return the attempts of the scheduled members."""
        gang, clock, begun = cycle.gang, self._clock, self._clock.now()
        now = clock.wall()
        for each in (gang, *gang.parts):
            each.last_attempt, each.first_attempt = now, each.first_attempt or now
        for queued in cycle.members:
            queued.first_attempt = queued.first_attempt or cycle.entry.first_attempt
        lack = cycle.refusal(self._cache)
        failed: list[GangTrial] = []
        placed: GangTrial | None = None
        if lack is None:
            try:
                placed = await self._search.search(cycle, failed)
            except AttemptLimitError as limit:
                lack = of_limit(cycle.instance, cycle.needed, failed, limit)
        searched = clock.now()
        if placed is None:
            failure = lack or of_trials(cycle.instance, cycle.needed, failed)
            if lack is None:
                failure = cycle.with_impossible_topology(self._cache, failure)
            self._count(cycle, self._rejection.reject(cycle, failure, failed), begun, searched)
            return []
        attempts = self._commit.commit(cycle, placed, failed)
        # The members are in flight now, so a report that raises must not keep them from being bound.
        try_twice(self._report_scheduled, cycle, len(attempts), begun, searched)
        return attempts

    def _report_scheduled(self, cycle: GroupCycle, count: int, begun: float, searched: float) -> None:
        self._count(cycle, SCHEDULED, begun, searched)
        waited = self._clock.now() - (cycle.entry.first_attempt or begun)
        self._metrics.profiles[cycle.entry.profile].gang_waits.observe(waited)
        message = f"{count} members are placed together, {waited:.1f} s after the quorum was there"
        log_gang(str(cycle.gang.key), cycle.entry.profile, SCHEDULED, message)

    def _count(self, cycle: GroupCycle, result: str, begun: float, searched: float) -> None:
        seconds = self._clock.now() - begun
        self._metrics.group_attempted(cycle.entry.profile, result, searched - begun, seconds)


class GangRejection:
    """Handles gangs that are not scheduled: preemption, reservation, report, and the way back into the queue.

    Args:
        cache: The members that have a node.
        preemption: Plans preemptions.
        reserved: Reserves capacity.
        reservations: Capacity reserved for gangs.
        failed: Reports and requeues gangs.
        report: Report of cycles.
        clock: Time.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        preemption: GangPreemption,
        reserved: ReservedScheduling,
        reservations: GangReservations,
        failed: FailedGangs,
        report: CycleReport,
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._preemption = preemption
        self._reserved = reserved
        self._reservations = reservations
        self._failed = failed
        self._report = report
        self._clock = clock

    def reject(self, cycle: GroupCycle, failure: GangFailure, trials: Sequence[GangTrial]) -> str:
        """Handle one gang, and return the result for the metrics.

        Args:
            cycle: The group cycle; no member is assumed.
            failure: Why the gang is not scheduled.
            trials: The failed tries.
        """
        gang = cycle.gang
        for attempt, reason in (each for trial in trials for each in trial.failed):
            self._report.scheduling_ended(attempt, ERROR if reason.is_error else UNSCHEDULABLE)
        eviction: GangEviction | None = None
        if not failure.is_given_up:
            failure = self._post_filtered(cycle, failure, trials)
            failure, eviction = self._preemption.plan(gang, cycle.instance, failure)
        if not failure.is_given_up:
            failure = self._reserved.reserve(cycle.request(self._cache), failure)
        if gang.first_failure is None:
            gang.first_failure = self._clock.now()
        self._reservations.failed(gang)
        self._failed.handle(cycle.entry, gang, failure)
        if eviction is not None:
            evict(cycle.instance, eviction)
            return WAITING_ON_PREEMPTION
        return ERROR if failure.is_error else UNSCHEDULABLE

    @staticmethod
    def _post_filtered(cycle: GroupCycle, failure: GangFailure, trials: Sequence[GangTrial]) -> GangFailure:
        """Run the PostFilter plugins that help gangs; the members that they help are requeued by their hints."""
        tried = [attempt for trial in trials for attempt in (*(each for each, _ in trial.failed), *trial.undone)]
        if failure.is_error or not tried:
            return failure
        gang = cycle.gang
        group_uid = "" if gang.placed or gang.group is None else gang.group.uid
        members = [TriedMember(attempt.info, attempt.state) for attempt in tried]
        helped = run_gang_post_filters(cycle.instance, members, group_uid)
        if not helped:
            return failure
        pods = {info.uid: info for infos in (failure.rejected_members, *helped.values()) for info in infos}
        return replace(failure, rejected_by=failure.rejected_by.union(helped), rejected_members=tuple(pods.values()))


class QuorumCommit:
    """Hands the assumed members of gangs over to their binding cycles.

    Args:
        cache: The members that have a node.
        queue: The queue.
        waiting: Pods that wait at Permit.
        assumed: Ends nominations.
        end: Ends the members' scheduling cycles.
        report: Report of cycles.
        errors: Requeues members after an exception.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        queue: SchedulingQueue,
        waiting: WaitingPodMap,
        assumed: AssumedPods,
        end: SchedulingCycle,
        report: CycleReport,
        errors: InternalErrors,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._waiting = waiting
        self._assumed = assumed
        self._end = end
        self._report = report
        self._errors = errors

    def commit(self, cycle: GroupCycle, trial: GangTrial, failed: Sequence[GangTrial]) -> list[Attempt]:
        """Hand over the members of one gang.

        Infeasible members beyond the quorum enter the queue as single pods: their own cycles run PostFilter plugins, so
        they can preempt, and report why they are unschedulable.

        Args:
            cycle: The group cycle.
            trial: The try whose quorum is assumed.
            failed: The failed tries.

        Returns:
            The attempts of the assumed members.
        """
        gang, queue = cycle.gang, self._queue
        for each in (*failed, trial):
            for attempt, _ in each.failed:
                self._report.scheduling_ended(attempt, UNSCHEDULABLE)
        message = _scheduled_message(trial, failed)
        try:
            self._hand_over(cycle, trial)
            queue.gang_changed(gang)
            of_parts = Counter(each.queued.group for each in trial.placed)
            for part in (gang, *(each for each in gang.parts if each is not gang and of_parts[each.key])):
                part.first_failure, part.victims = None, ()
                part.outcome = GangOutcome("Scheduled", message, len(trial.placed), trial.where.name)
            queue.gangs.changed(gang)
        except BaseException:
            for attempt in trial.placed:
                self._take_back(attempt)
            raise
        return trial.placed

    def _hand_over(self, cycle: GroupCycle, trial: GangTrial) -> None:
        """Let each assumed member continue by itself."""
        queue = self._queue
        queue.gang_placed(cycle.entry, [attempt.queued for attempt in trial.placed])
        gang, quorum = cycle.gang, cycle.quorum_of(trial)
        together = GangBinding(gang, quorum, self._holds, self._refuse, queue.gang_changed, changed=queue.gangs.changed)
        for attempt in trial.placed:
            attempt.begin()
            together.begun()
            attempt.gang = together
            self._assumed.end_nomination(attempt)
            self._end.conclude(attempt, None)

    def _take_back(self, attempt: Attempt) -> None:
        """Release a member that was to be bound, and requeue it with its gang."""
        try_twice(self._assumed.release, attempt)
        try_twice(attempt.end)
        if attempt.recorder is not None:
            try_twice(self._report.release_recorder, attempt)
        if attempt.gang is not None:
            try_twice(attempt.gang.ended)
            attempt.gang = None
        self._errors.requeue(attempt.queued)

    def _holds(self, uid: str) -> bool:
        return self._cache.get(uid) is not None

    def _refuse(self, uid: str, why: str) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None:
            waiting.reject(GANG_SCHEDULING, why)


def _scheduled_message(trial: GangTrial, failed: Sequence[GangTrial]) -> str:
    text = f"{len(trial.placed)} members were placed together"
    if trial.where.name:
        return f"{text} in {trial.where.name}"
    domains = [each for each in failed if each.where.name]
    if domains:
        nearest = max(domains, key=lambda each: each.reached)
        return f"{text}, over several domains: none has room for all, {nearest.where.name} has for {nearest.reached}"
    return text
