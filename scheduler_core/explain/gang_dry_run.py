"""Dry run of one group cycle, with the result for each domain.

The search of a group cycle runs on the live columns, without Permit and without writes, and is undone. For the nearest
domains, the reasons for the next member are computed while the others are assumed there.

Extenders are not called, because a dry run must not await: members are tried as if the profile had none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.explain.device_findings import device_findings
from scheduler_core.explain.findings import KeptOff, NextMember, PlaceFit
from scheduler_core.explain.nearest_nodes import examine_again, near_misses
from scheduler_core.explain.pod_dry_run import Examiner
from scheduler_core.explain.unblocking_events import UnblockingEvents
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.failure_handler import of_rejection
from scheduler_core.gangs.group_cycle import GangPlacing, refusal
from scheduler_core.gangs.preemption import GangPreemption, GangPreview
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.placement.engine import Observer, Policy, Verdict, as_given, at_once, place
from scheduler_core.placement.requests import Placement, PlacementRequest, Rejection
from scheduler_core.placement.subsets import Group
from scheduler_core.placement.worlds import CycleWorld, for_dry_run, without_extenders
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.held_claims import has_claims


@dataclass(frozen=True, slots=True)
class NextMembers:
    """Finds out what the first infeasible member of a placement lacks, while the members before it are assumed."""

    examiner: Examiner
    unblocking: UnblockingEvents

    def next_of(
        self, request: PlacementRequest, found: Placement, limit: int, *, with_events: bool
    ) -> NextMember | None:
        """Return the first infeasible member of a placement; None if no member was rejected."""
        if not found.failed:
            return None
        attempt, failure = found.failed[0]
        member = NextMember(attempt.info.key, failure.message)
        again = None if failure.is_error else examine_again(self.examiner, request.gang, found.where, attempt)
        if again is None:
            return member
        try:
            devices = device_findings(self.examiner.nodes, request.instance, again)
            misses = near_misses(self.examiner.nodes, request.instance, again, limit, devices)
            events = self.unblocking.find(request.instance, again, misses, devices) if with_events else ()
        except SchedulerCoreError:
            return member
        return NextMember(member.name, member.message, misses, events)


@dataclass(slots=True)
class GangExamination:
    """Result of a dry run of a group cycle.

    Attributes:
        needed: How many members must be scheduled together.
        refusal: Why no domain is tried, such as ``minResources`` that are not free; "" if domains are tried.
        placement: Node by ``namespace/name`` of each feasible member, in the order in which members are tried; None if
            the quorum is infeasible.
        domain: The domain in which the quorum is feasible; "" for none in particular.
        is_reserved: Whether that is the capacity that is reserved for the gang.
        places: Infeasible domains, the nearest first; at most as many as requested.
        tried: How many domains were tried.
        device_search: Why no other choice of nodes and devices helps; "" if that was not searched, or if one does.
        preemption: Result of a dry run of preemption; None if the quorum is feasible or an error ended the dry run.
        device_preemption: Its result if the profile preempted for devices, which it does not; None without a plan.
        reserved_for_others: Nodes that are reserved for other gangs.
        error: Error that ended the dry run; "" for none.
    """

    needed: int
    refusal: str = ""
    placement: dict[str, str] | None = None
    domain: str = ""
    is_reserved: bool = False
    places: tuple[PlaceFit, ...] = ()
    tried: int = 0
    device_search: str = ""
    preemption: GangPreview | None = None
    device_preemption: GangPreview | None = None
    reserved_for_others: tuple[KeptOff, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Tried:
    """A domain, the order of members with which most of them are feasible there, and the result.

    Attributes:
        place: The result without unblocking events; None if the domain is not among the nearest.
    """

    where: Where
    order: Sequence[QueuedPod]
    reached: int
    is_error: bool
    is_tried: bool
    place: PlaceFit | None


class _Recorder(Observer):
    """Records the failed placements of one dry run; of several in one domain only the best.

    Args:
        limit: For how many domains the reasons are computed, and for how many nodes in each.

    Attributes:
        is_tried: Whether a group cycle tries the domains that are observed.
    """

    def __init__(
        self, next_members: NextMembers, limit: int, *, with_events: bool = False, is_tried: bool = True
    ) -> None:
        self._next_members = next_members
        self._limit = limit
        self._with_events = with_events
        self._counts: Counter[int] = Counter()
        self.best: dict[str, _Tried] = {}
        self.is_tried = is_tried

    def failed(
        self, request: PlacementRequest, found: Placement, order: Sequence[QueuedPod], tries: Sequence[Placement]
    ) -> None:
        """Record what the next member lacks, if the domain is among the nearest."""
        del tries
        reached, place = len(found.placed), None
        if sum(count for other, count in self._counts.items() if other > reached) < self._limit:
            lacking = self._next_members.next_of(request, found, self._limit, with_events=self._with_events)
            place = PlaceFit(found.where.name or None, reached, request.needed, self.is_tried, lacking)
        self._add(_Tried(found.where, order, reached, found.is_error, self.is_tried, place))

    def stored(self, found: Placement, order: Sequence[QueuedPod]) -> None:
        """Record a domain that a group cycle skips, although the quorum is feasible there."""
        if not self.is_tried:
            self._add(_Tried(found.where, order, len(found.placed), is_error=False, is_tried=False, place=None))

    def _add(self, tried: _Tried) -> None:
        known = self.best.get(tried.where.name)
        if known is None or tried.reached > known.reached:
            self.best[tried.where.name] = tried
            self._counts[tried.reached] += 1
            if known is not None:
                self._counts[known.reached] -= 1

    def nearest(self) -> list[_Tried]:
        """Return the domains: errors first, because they ended the dry run, then by descending feasible members."""
        return sorted(self.best.values(), key=lambda each: (not each.is_error, -each.reached))[: self._limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDryRuns:
    """Dry-runs group cycles."""

    cache: ClusterCache
    nominator: NominatedPods
    reservations: GangReservations
    world: CycleWorld
    placing: GangPlacing
    next_members: NextMembers
    preemption: GangPreemption

    def examine(self, request: PlacementRequest, part: Gang, limit: int) -> GangExamination:
        """Dry-run a group cycle for a gang whose quorum waits, between two cycles; nothing is changed.

        Args:
            request: The gang, or the tree that it is a part of; it has its quorum and its PodGroup.

        Returns:
            The result. An error of a plugin ends the dry run and is contained in it.

        Raises:
            AttemptLimitError: The dry run took more steps than it may.
        """
        request = replace(request, instance=for_dry_run(request.instance))
        found = GangExamination(part.needed if request.gang.is_tree else request.needed)
        if not request.gang.is_tree:
            found.reserved_for_others = self._reserved_for_others(request)
        failure = refusal(self.cache, request)
        if failure is not None:
            found.refusal = failure.message
        else:
            alone = replace(request, instance=without_extenders(request.instance))
            with self.world.assumed.undone(), self.nominator.without(request.gang.waiting):
                if request.gang.is_tree:
                    self._run_tree(alone, part, found)
                else:
                    self._run(alone, found, limit)
        if found.placement is None and not found.error:
            found.preemption = self.preemption.preview(request.gang, request.instance)
            if found.preemption.plan is None and not request.instance.config.preemption.devices:
                found.device_preemption = self._freeing_devices(request)
        return found

    def _freeing_devices(self, request: PlacementRequest) -> GangPreview | None:
        if not any(has_claims(queued.info.pod) for queued in request.members):
            return None
        with request.instance.freeing_devices():
            preview = self.preemption.preview(request.gang, request.instance)
        return None if preview.plan is None else preview

    def _reserved_for_others(self, request: PlacementRequest) -> tuple[KeptOff, ...]:
        nodes, members = self.cache.columns, request.members
        blocking = self.reservations.blocking(request.gang.key, members[0].info) if members else []
        return tuple(KeptOff(str(key), tuple(sorted(map(nodes.node_name, rows.tolist())))) for key, rows in blocking)

    def _run(self, request: PlacementRequest, found: GangExamination, limit: int) -> None:
        """Set the domain in which the quorum is feasible, and the reasons in the nearest other ones."""
        recorder = _Recorder(self.next_members, limit)
        with self.world.dry_run():
            chosen, rejection = at_once(self.placing.place(request, Policy(unscreened=limit), recorder))
        _raise_limit(rejection)
        found.tried = len(recorder.best.keys() | rejection.ruled_out)
        found.device_search = rejection.device_search
        if not rejection.tries and chosen is None:
            found.refusal = of_rejection(request.instance, request.needed, rejection).message
        if chosen is not None:
            found.placement, found.domain = _nodes_of(chosen.placed), chosen.where.name
            found.is_reserved = chosen.is_reserved
            recorder.best.pop(found.domain, None)
            self.world.undo(chosen.placed)
        elif not rejection.is_error:
            self._run_small_domains(request, recorder, limit)
        nearest = recorder.nearest()
        found.places = tuple(
            tried.place if number and tried.place is not None else self._with_events(request, tried, limit)
            for number, tried in enumerate(nearest)
        )
        broken = (place.next_member for tried, place in zip(nearest, found.places, strict=True) if tried.is_error)
        found.error = next((f"{each.name}: {each.message}" for each in broken if each is not None), "")

    def _run_small_domains(self, request: PlacementRequest, recorder: _Recorder, limit: int) -> None:
        """Try also domains that a group cycle skips, because they have room for too few members."""
        recorder.is_tried = False

        def subsets(cache: ClusterCache, group: Group) -> Iterator[tuple[Where, int]]:
            for domain in group.domains(cache):
                if len(recorder.best) >= limit:
                    return
                if str(domain) not in recorder.best:
                    yield domain.where, domain.room

        self._search(request, Policy(lambda _: Verdict.STORED, subsets, as_given), recorder)

    def _with_events(self, request: PlacementRequest, tried: _Tried, limit: int) -> PlaceFit:
        """Repeat a placement, and compute the reasons and unblocking events of its next member before it is undone."""
        where = _as_long_as(tried.where, self.cache.columns.size)
        recorder = _Recorder(self.next_members, limit, with_events=True, is_tried=tried.is_tried)
        policy = Policy(lambda _: Verdict.REFUSED, lambda *_: [(where, 0)], lambda _: [tried.order])
        self._search(request, policy, recorder)
        place = recorder.best[where.name].place
        assert place is not None
        return place

    def _search(self, request: PlacementRequest, policy: Policy, observer: Observer) -> None:
        with self.world.dry_run():
            _, rejection = at_once(place(request, self.world, policy, observer))
        _raise_limit(rejection)

    def _run_tree(self, request: PlacementRequest, part: Gang, found: GangExamination) -> None:
        """Set the nodes of one gang of a tree, or why it has none."""
        with self.world.dry_run():
            chosen, rejection = at_once(place(request, self.world))
        _raise_limit(rejection)
        if chosen is not None:
            nodes = _nodes_of(each for each in chosen.placed if each.queued.group == part.key)
            self.world.undo(chosen.placed)
            if nodes:
                found.placement = nodes
                return
            lack = rejection.lacks.get(part.key, "no member fits")
            name = request.gang.key.name
            found.refusal = f'other groups of composite pod group "{name}" fit without it: {lack}'
        else:
            found.refusal = rejection.lack
        failed = [each for tried in (chosen, *rejection.tries) if tried is not None for each in tried.failed]
        rejected = (each for each in failed if each[0].queued.group == part.key)
        attempt, failure = next((each for each in failed if each[1].is_error), None) or next(rejected, (None, None))
        if attempt is not None and failure is not None:
            member = NextMember(attempt.info.key, failure.message)
            found.places = (PlaceFit(None, 0, found.needed, is_tried=True, next_member=member),)
            found.error = f"{member.name}: {member.message}" if failure.is_error else ""


def _raise_limit(rejection: Rejection) -> None:
    if rejection.limit is not None:
        raise rejection.limit


def _nodes_of(placed: Iterable[Attempt]) -> dict[str, str]:
    return {attempt.info.key: attempt.node_name for attempt in placed}


def _as_long_as(where: Where, size: int) -> Where:
    """Return the domain for columns that have grown: a hypothetical node leaves a free row."""
    former = where.mask
    if former is None or len(former) == size:
        return where
    among = np.zeros(size, dtype=np.bool_)
    among[: len(former)] = former
    return replace(where, subset=among)
