"""The group cycle: a gang's quorum is scheduled in one cycle or not at all.

::

    popped ─▶ minResources ─▶ domains, best first ─▶ members assumed ─▶ quorum? ─no──▶ undone, reported, requeued
                                                                           │ yes
                                        bound concurrently ◀─ permitted ◀──┘

A long search continues in another process (:mod:`scheduler_core.cycle.background_search`). The cycle then ends with its
result: a rejection is reported, and a placement is checked member by member before Permit.

No member stays assumed between two cycles, so gangs cannot deadlock. Members beyond the quorum are scheduled in the
same cycle if feasible, otherwise one by one afterwards.

Follows kube-scheduler v1.37.1 where comparable (``pkg/scheduler/schedule_one_podgroup.go``).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.background_search import BackgroundSearches, MovedSearch, SearchMovedError
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import PreemptionDelays, delayed
from scheduler_core.cycle.filter_and_score import NodeOrder
from scheduler_core.cycle.gang_bind_barrier import GangBindBarrier
from scheduler_core.cycle.internal_errors import InternalErrors, try_twice
from scheduler_core.cycle.scheduling_cycle import SchedulingCycle
from scheduler_core.cycle.search_basis import PlannedEviction, SentDevices
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import error_message
from scheduler_core.framework.extension_points import SumsFilter
from scheduler_core.framework.gang_preemptor import GangEviction, GangRelease, TriedMember
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.gangs.failure_handler import (
    FailedGangs,
    GangFailure,
    not_enough_free,
    of_mixed,
    of_rejection,
    of_strangers,
    with_node_help,
)
from scheduler_core.gangs.healing import held_rows_first
from scheduler_core.gangs.moved_search import (
    GangBasis,
    MovableGang,
    RejectedGang,
    ResultCheck,
    SeatedGang,
    decode,
    encode,
)
from scheduler_core.gangs.preemption import GangPreemption, evict
from scheduler_core.gangs.reservation_cycle import ReservationSearch, Reserving, reserved_world
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.attempt_reports import log_gang
from scheduler_core.metrics.scheduler_metrics import (
    ERROR,
    SCHEDULED,
    UNSCHEDULABLE,
    WAITING_ON_PREEMPTION,
    SchedulerMetrics,
)
from scheduler_core.placement.devices import DeviceWorld
from scheduler_core.placement.engine import Observer, Policy, Steps, Verdict, as_given, awaited, place
from scheduler_core.placement.requests import Placement, PlacementRequest, Rejection
from scheduler_core.placement.subsets import (
    exempted_resources,
    gang_subsets,
    scattered_members,
    scheduled_members,
    too_small_domains,
)
from scheduler_core.placement.worlds import CycleWorld, SearchWorld
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.queueing.waiting_causes import SCHEDULER_ERROR
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import carry_out_for_gang, plan_gang_post_filters
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangScheduler:
    """Runs group cycles: begin, place, and commit or reject."""

    cache: ClusterCache
    queue: SchedulingQueue
    profiles: ProfileTable
    suspension: Suspension
    clock: Clock
    metrics: SchedulerMetrics
    assumed: AssumedPods
    placing: GangPlacing
    observer: Observer
    commit: QuorumCommit
    rejection: GangRejection
    failed: FailedGangs
    errors: InternalErrors
    background: BackgroundSearches
    check: ResultCheck
    order: NodeOrder

    async def schedule(self, entry: QueuedGang, ended: MovedSearch | None = None) -> list[Attempt]:
        """Run one group cycle.

        Args:
            ended: The search of the cycle, which was made in another process; None to search now.

        Returns:
            The attempts whose pods are assumed and must be bound; none if the gang was not scheduled, or if its search
            continues in another process. Awaits only if the profile has extenders; the cycle is suspended then. If it
            is cancelled, the gang is released and requeued.
        """
        queue = self.queue
        entry.busy_since = self.clock.now()
        if ended is not None:
            attempts = self._finish(entry, ended)
            if attempts is not None:
                try_twice(self.background.forget, entry)
                return attempts
            # The steps of the check are not charged to the new search.
            self.placing.world.steps.begin_attempt(len(entry.members))
        entry.tried_at = self.clock.now()
        gang, instance = queue.gangs.get(entry.gang_key), self.profiles.get(entry.profile)
        if gang is None or gang.group is None or instance is None or not gang.has_quorum:
            self.background.forget(entry)
            queue.failed(entry)
            return []
        instance.begin()
        attempts = []
        start = self.order.next_start
        try:
            self.background.begin(entry, MovableGang(instance, gang))
            if not instance.extenders:
                attempts = await self._run(entry, gang, instance)
            else:
                with self.suspension.of_cycle():
                    attempts = await self._run(entry, gang, instance)
        except SearchMovedError as moved:
            try:
                self.errors.undo()
                self.order.next_start = start
                if moved.search is None:
                    self.background.wait(entry, moved)
                else:
                    moved.search.hold(self.check.basis(gang, instance, start))
            except Exception:
                # The scheduling loop requeues and reports the gang.
                try_twice(self.background.withdraw, entry)
                raise
            return []
        except BaseException:
            self.errors.undo()
            self.background.forget(entry)
            if queue.find(entry.uid) is entry:
                queue.failed(entry)
            raise
        finally:
            try_twice(instance.end)
        # The members are in flight by themselves, and must be bound whatever raises.
        try_twice(self.background.forget, entry)
        return attempts

    def _finish(self, entry: QueuedGang, ended: MovedSearch) -> list[Attempt] | None:
        """End the cycle with a result from another process; return None to search again."""
        gang, basis = self.queue.gangs.get(entry.gang_key), ended.basis
        try:
            result, instance = decode(ended.result), self.profiles.get(entry.profile)
            if isinstance(result, RejectedGang) and result.failure.is_given_up:
                # The next attempt goes on from what this one has stored, so it must not be lost again.
                self.background.note_unstored(ended)
            if gang is None or result is None or instance is None or not isinstance(basis, GangBasis):
                return None
            # A gang that was deleted and created again has another entry.
            if gang.entry is not entry or not gang.has_quorum or not basis.still_holds(gang, instance):
                self.background.counts.outdated += 1
                return None
            request = PlacementRequest.of(gang, instance)
            attempts = self._use(entry, request, result, basis)
            if attempts is None:
                self.background.counts.outdated += 1
                return None
        except Exception as fault:
            # The gang is searched again, where the error is reported if it persists.
            extra = {"podgroup": str(entry.gang_key)}
            try_twice(log.error, "the result for gang %s cannot be used", entry.gang_key, exc_info=fault, extra=extra)
            self.errors.undo()
            if not self.queue.is_in_flight(entry.uid):
                return []
            # A report that raised may have set them.
            entry.rejected_by = entry.pending_on = frozenset()
            return None
        except BaseException:
            self.errors.undo()
            if self.queue.find(entry.uid) is entry:
                self.queue.failed(entry)
            raise
        else:
            self.background.counts.used += 1
            if self.order.next_start == basis.next_start:
                self.order.next_start = result.next_start
            return attempts
        finally:
            try_twice(ended.close)

    def _use(
        self, entry: QueuedGang, request: PlacementRequest, result: SeatedGang | RejectedGang, basis: GangBasis
    ) -> list[Attempt] | None:
        """Commit or report a result; return None if it does not hold any more, with nothing assumed."""
        if isinstance(result, RejectedGang):
            holds, eviction = self.check.eviction(entry, request, result, basis)
            if not holds or not self.check.has_same_reservations(result, basis):
                return None
            self.check.note_rejected(result)
            if result.reservation.is_requested:
                self.rejection.reservations.note_requested(request.gang)
            failure = self.rejection.reserving.reserve(request, result.failure, result.reservation)
            ended = self.rejection.report(entry, request, failure, eviction, result.releases(basis.members))
            self._count(entry, ended, entry.tried_at, self.clock.now())
            return []
        start = self.order.next_start
        with self.queue.nominator.without(request.gang.waiting):
            if refusal(self.cache, request) is not None:
                return None
            found = self.check.seat(request, result, basis)
            needed = len(result.seats) if request.gang.is_tree else request.needed
            if found is not None and self._permit(found, needed) is not Verdict.TAKEN:
                self.assumed.undo()
                self.background.freeze(entry)
                found = None
        self.order.next_start = start
        if found is None:
            return None
        attempts = self.commit.commit(entry, request, found, Rejection(), result.message)
        try_twice(self._report_scheduled, entry, len(attempts), entry.tried_at, self.clock.now())
        return attempts

    async def _run(self, entry: QueuedGang, gang: Gang, instance: FrameworkInstance) -> list[Attempt]:
        """Run one attempt; an exception of any step fails this gang only, with everything undone."""
        try:
            return await self._attempt(entry, PlacementRequest.of(gang, instance))
        except Exception as fault:
            text = "the cycle of gang %s failed in the scheduler itself"
            try_twice(log.error, text, gang.key, exc_info=fault, extra={"podgroup": str(gang.key)})
            self.errors.undo()
            failure = GangFailure(error_message(fault), SCHEDULER_ERROR, needed=gang.needed)
            if not try_twice(self.failed.handle, entry, gang, failure):
                self.errors.requeue(entry)
            return []

    async def _attempt(self, entry: QueuedGang, request: PlacementRequest) -> list[Attempt]:
        gang, clock, begun = request.gang, self.clock, self.clock.now()
        now = clock.wall()
        for each in (gang, *gang.parts):
            each.last_attempt, each.first_attempt = now, each.first_attempt or now
        for queued in request.members:
            queued.first_attempt = queued.first_attempt or entry.first_attempt
        failure = refusal(self.cache, request)
        found, rejection = None, Rejection()
        if failure is None:
            needed = None if gang.is_tree else request.needed
            policy = Policy(lambda found: self._permit(found, len(found.placed) if needed is None else needed))
            # Nominations of members do not block other members of the same gang.
            with self.queue.nominator.without(gang.waiting):
                found, rejection = await awaited(self.placing.place(request, policy, self.observer))
        searched = clock.now()
        if found is not None and self.background.is_copy:
            seats = tuple((each.info.uid, each.node_name, self._devices_of(each)) for each in found.placed)
            message, start = scheduled_message(found, rejection), self.order.next_start
            self.background.send(encode(SeatedGang(seats, found.where.name, message, start)))
        if found is None:
            if failure is None:
                failure = of_rejection(request.instance, request.needed, rejection)
                if not failure.is_given_up:
                    failure = _with_impossible_topology(self.cache, request, failure)
                    failure = with_node_help(self.cache.columns, request, failure, rejection)
            self._count(entry, self.rejection.reject(entry, request, failure, rejection), begun, searched)
            return []
        attempts = self.commit.commit(entry, request, found, rejection)
        # The members are in flight now, so a report that raises must not keep them from being bound.
        try_twice(self._report_scheduled, entry, len(attempts), begun, searched)
        return attempts

    def _devices_of(self, attempt: Attempt) -> SentDevices | None:
        return SentDevices.taken(attempt.instance, attempt.info, attempt.state, self.cache.columns)

    def _permit(self, found: Placement, needed: int) -> Verdict:
        """Run Permit for all assumed members, and accept the placement if the quorum passed or waits there."""
        if self.background.is_copy:
            # Permit runs where the members are bound.
            return Verdict.TAKEN
        passed: list[Attempt] = []
        for attempt in found.placed:
            assert attempt.recorder is not None, "members are recorded"
            attempt.recorder.resume()
            failure = self.assumed.permit(attempt)
            if failure is None:
                passed.append(attempt)
            else:
                self.assumed.release(attempt)
                found.failed.append((attempt, failure))
        found.placed = passed
        return Verdict.TAKEN if len(passed) >= needed else Verdict.REFUSED

    def _report_scheduled(self, entry: QueuedGang, count: int, begun: float, searched: float) -> None:
        self._count(entry, SCHEDULED, begun, searched)
        waited = self.clock.now() - (entry.first_attempt or begun)
        self.metrics.profiles[entry.profile].gang_waits.observe(waited)
        message = f"{count} members are placed together, {waited:.1f} s after the quorum was there"
        log_gang(str(entry.gang_key), entry.profile, SCHEDULED, message)

    def _count(self, entry: QueuedGang, result: str, begun: float, searched: float) -> None:
        seconds = self.clock.now() - begun
        self.metrics.group_attempted(entry.profile, result, searched - begun, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRejection:
    """Handles gangs that are not scheduled: preemption, reservation, report, and the way back into the queue."""

    nodes: NodeColumns
    preemption: GangPreemption
    reserving: Reserving
    reservations: GangReservations
    failed: FailedGangs
    cycles: CycleReport
    clock: Clock
    background: BackgroundSearches
    order: NodeOrder
    delays: PreemptionDelays

    def reject(self, entry: QueuedGang, request: PlacementRequest, failure: GangFailure, rejection: Rejection) -> str:
        gang, instance = request.gang, request.instance
        for attempt, reason in (each for tried in rejection.tries for each in tried.failed):
            self.cycles.scheduling_ended(attempt, ERROR if reason.is_error else UNSCHEDULABLE)
        eviction: GangEviction | None = None
        reservation = ReservationSearch()
        released: Mapping[str, Sequence[GangRelease]] = {}
        if not failure.is_given_up:
            failure, released = self._post_filtered(request, failure, rejection)
            delay = delayed(instance, gang.first_failure, entry.tried_at)
            if delay and not failure.is_error:
                failure = failure.also(delay, is_delayed=True)
            else:
                failure, eviction = self.preemption.plan(gang, instance, failure)
        if not failure.is_given_up:
            reservation = self.reserving.search(request, failure)
        if self.background.is_copy:
            planned = None
            if eviction is not None:
                planned = PlannedEviction.of(eviction.victims, eviction.node_names, self.nodes)
            rejected = RejectedGang(
                failure,
                planned,
                {name: tuple((info.uid, claim) for info, claim in each) for name, each in released.items()},
                reservation,
                self.reservations.rejected(gang.waiting),
                self.order.next_start,
            )
            self.background.send(encode(rejected))
        failure = self.reserving.reserve(request, failure, reservation)
        return self.report(entry, request, failure, eviction, released)

    def report(
        self,
        entry: QueuedGang,
        request: PlacementRequest,
        failure: GangFailure,
        eviction: GangEviction | None,
        released: Mapping[str, Sequence[GangRelease]],
    ) -> str:
        """Report and requeue a rejected gang, release claims and evict victims; return the result for the metrics."""
        gang, instance = request.gang, request.instance
        carry_out_for_gang(instance, released, _uid_of_free_group(gang))
        if gang.first_failure is None:
            gang.first_failure = self.clock.now()
        if failure.is_delayed:
            self.delays.note(entry, instance, gang.first_failure)
        self.reservations.failed(gang)
        self.failed.handle(entry, gang, failure)
        if eviction is not None:
            evict(instance, eviction)
            return WAITING_ON_PREEMPTION
        return ERROR if failure.is_error else UNSCHEDULABLE

    @staticmethod
    def _post_filtered(
        request: PlacementRequest, failure: GangFailure, rejection: Rejection
    ) -> tuple[GangFailure, Mapping[str, Sequence[GangRelease]]]:
        """Run PostFilter plugins that help gangs; return the failure, and what is to be released, by plugin."""
        tried = [each for found in rejection.tries for each in (*(failed for failed, _ in found.failed), *found.undone)]
        if failure.is_error or not tried:
            return failure, {}
        members = [TriedMember(attempt.info, attempt.state) for attempt in tried]
        helped = plan_gang_post_filters(request.instance, members, _uid_of_free_group(request.gang))
        if not helped.members:
            return failure, helped.planned
        uids = (*failure.rejected_members, *(info.uid for infos in helped.members.values() for info in infos))
        rejected_by = failure.rejected_by.union(helped.members)
        failure = structs.replace(failure, rejected_by=rejected_by, rejected_members=tuple(dict.fromkeys(uids)))
        return failure, helped.planned


def _uid_of_free_group(gang: Gang) -> str:
    """Return the UID of a PodGroup that may lose its claims, because no member is scheduled; else ""."""
    return "" if gang.placed or gang.group is None else gang.group.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumCommit:
    """Hands the assumed members of gangs over to their binding cycles."""

    cache: ClusterCache
    queue: SchedulingQueue
    waiting: WaitingPods
    assumed: AssumedPods
    end: SchedulingCycle
    report: CycleReport
    errors: InternalErrors

    def commit(
        self,
        entry: QueuedGang,
        request: PlacementRequest,
        found: Placement,
        rejection: Rejection,
        message: str = "",
    ) -> list[Attempt]:
        """Hand over the members of one gang.

        Infeasible members beyond the quorum enter the queue as single pods: their own cycles run PostFilter plugins, so
        they can preempt, and report why they are unschedulable.
        """
        gang, queue = request.gang, self.queue
        for each in (*rejection.tries, found):
            for attempt, _ in each.failed:
                self.report.scheduling_ended(attempt, UNSCHEDULABLE)
        message = message or scheduled_message(found, rejection)
        try:
            self._hand_over(entry, request, found.placed)
            queue.gang_changed(gang)
            of_parts = Counter(each.queued.group for each in found.placed)
            for part in (gang, *(each for each in gang.parts if each is not gang and of_parts[each.key])):
                part.first_failure, part.victims = None, ()
                part.outcome = GangOutcome("Scheduled", message, len(found.placed), found.where.name)
            queue.gangs.changed(gang)
        except BaseException:
            for attempt in found.placed:
                self._take_back(attempt)
            # Members that still wait were not requeued, and the gang may have its quorum again or not any more.
            try_twice(queue.gang_changed, gang)
            raise
        return found.placed

    def _hand_over(self, entry: QueuedGang, request: PlacementRequest, placed: Sequence[Attempt]) -> None:
        """Let each assumed member continue by itself."""
        gang, queue, quorum = request.gang, self.queue, _quorum(request, placed)
        queue.gang_placed(entry, [attempt.queued for attempt in placed])
        together = GangBindBarrier(
            gang,
            quorum,
            lambda uid: self.cache.get(uid) is not None,
            self._reject,
            queue.gang_changed,
            changed=queue.gangs.changed,
            bind_failed=queue.gangs.bind_failed,
        )
        for attempt in placed:
            attempt.begin()
            together.begun()
            attempt.gang = together
            self.assumed.end_nomination(attempt)
            self.end.conclude(attempt, None)

    def _take_back(self, attempt: Attempt) -> None:
        """Release a member that was to be bound, and requeue it with its gang."""
        try_twice(self.assumed.release, attempt)
        try_twice(attempt.end)
        if attempt.recorder is not None:
            try_twice(self.report.release_recorder, attempt)
        if attempt.gang is not None:
            try_twice(attempt.gang.ended)
            attempt.gang = None
        self.errors.requeue(attempt.queued)

    def _reject(self, uid: str, why: str) -> None:
        waiting = self.waiting.get(uid)
        if waiting is not None:
            waiting.reject(GANG_SCHEDULING, why)


def _quorum(request: PlacementRequest, placed: Sequence[Attempt]) -> list[str]:
    """Return the UIDs of the members that are bound together or not at all: the first ones of each gang."""
    left = dict(request.needed_of)
    found = []
    for attempt in placed:
        key = attempt.queued.group
        if key is not None and left.get(key, 0) > 0:
            left[key] -= 1
            found.append(attempt.info.uid)
    return found


def scheduled_message(found: Placement, rejection: Rejection) -> str:
    """Return the message of the outcome of a gang that is scheduled; *rejection* is what failed before."""
    count = len(found.placed)
    text = "1 member was placed" if count == 1 else f"{count} members were placed together"
    if found.where.name:
        return f"{text} in {found.where.name}"
    domains = [each for each in rejection.tries if each.where.name]
    if domains:
        nearest = max(domains, key=lambda each: each.reached)
        return f"{text}, over several domains: none has room for all, {nearest.where.name} has for {nearest.reached}"
    return text


# -- gangs that are not tried -----------------------------------------------------------------------------------------


def refusal(cache: ClusterCache, request: PlacementRequest) -> GangFailure | None:
    """Return why no node is tried; None to try.

    The members are not uniform, scheduled members share no domain, no profile has a quorum, or ``minResources`` are not
    free.
    """
    gang, needed = request.gang, request.needed
    assert gang.group is not None
    if gang.group.is_uniform:
        waiting = sorted(gang.waiting.values(), key=lambda pod: pod.sequence)
        placed = [pod for uid in sorted(gang.placed) if (pod := gang.pods.get(uid)) is not None]
        counted = [*(queued.info.pod for queued in waiting), *placed]
        mixed = of_mixed(gang.group, counted, needed) or _scattered(cache, request)
        if mixed is not None:
            return mixed
    if len(request.members) < needed:
        name = request.instance.name
        return of_strangers(name, [pod.profile for pod in gang.waiting.values() if pod.profile != name], needed)
    return not_enough_free(request.instance, cache.columns, gang)


def _scattered(cache: ClusterCache, request: PlacementRequest) -> GangFailure | None:
    """Return the failure of a group whose scheduled members are in several domains of its topology."""
    for topology, gangs in request.gang.topologies:
        problem = scattered_members(cache.columns, topology, scheduled_members(cache, gangs))
        if problem:
            return GangFailure(problem, SCHEDULER_ERROR, needed=request.needed)
    return None


def _with_impossible_topology(cache: ClusterCache, request: PlacementRequest, failure: GangFailure) -> GangFailure:
    """Return a failure that also reports that no domain of a required topology can ever hold the quorum."""
    group = request.gang.group
    is_counted = any(isinstance(each, SumsFilter) for each in request.instance.filters)
    if group is None or group.topology is None or not is_counted or failure.is_error:
        return failure
    infos = [queued.info for queued in request.members]
    exempts, placed = exempted_resources(request.instance), request.placed(cache)
    why = too_small_domains(cache.columns, group.topology, infos, request.needed, placed, exempts=exempts)
    return failure.also(why) if why else failure


@dataclass(frozen=True, slots=True)
class GangPlacing:
    """Places gangs and trees; group cycles and their dry runs call it.

    Attributes:
        searches_devices: Whether nodes and devices are searched together if a gang is infeasible otherwise.
    """

    world: CycleWorld
    search: SearchWorld
    reservations: GangReservations
    searches_devices: bool

    def place(
        self, request: PlacementRequest, policy: Policy, observer: Observer
    ) -> Steps[tuple[Placement | None, Rejection]]:
        """Search the nodes of a request; see :func:`scheduler_core.placement.engine.place`."""
        if request.gang.lost_members:
            policy = replace(policy, subsets=held_rows_first(self.reservations))
        found, rejection = yield from place(request, self.world, policy, observer)
        if found is not None or rejection.limit is not None or request.gang.is_tree:
            return found, rejection
        reserved = reserved_world(self.world, self.reservations, request)
        if reserved is not None:
            world, planned = reserved
            found, other = yield from place(request, world, replace(planned, accept=policy.accept))
            rejection.limit = other.limit
            for tried in other.tries:
                self.world.ended(tried)
            if found is not None:
                found.is_reserved = True
        if found is not None or rejection.limit is not None or rejection.is_error or not rejection.tries:
            return found, rejection
        devices = DeviceWorld.of(self.world, self.search, request) if self.searches_devices else None
        if devices is not None:
            with_devices = replace(policy, subsets=gang_subsets, orders=as_given)
            found, other = yield from place(request, devices, with_devices)
            rejection.limit, rejection.device_search = other.limit, devices.message
            rejection.tries += (tried for tried in other.tries if tried.failed or tried.undone)
        return found, rejection
