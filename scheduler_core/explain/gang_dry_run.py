"""Dry run of one group cycle, with the result for each domain.

Each try of a group cycle is repeated on the live columns in the cycle's order and undone. For the nearest domains, the
reasons for the next member are computed while the others are assumed there. Each try is the function that a group cycle
runs, without Permit and without writes.

Extenders are not called, because a dry run must not await: members are tried as if the profile had none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler_core.cycle.gang_constraints import ANYWHERE, Where, only
from scheduler_core.explain.gang_member_dry_runs import NextMember, NextMembers
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.device_backtracking import DeviceBacktracking
from scheduler_core.gangs.domain_screen import DomainScreen
from scheduler_core.gangs.dry_trials import DryTrials, for_dry_run, without_extenders
from scheduler_core.gangs.failure_handler import of_trials
from scheduler_core.gangs.placement_search import DomainTries, GroupCycle, backtracked
from scheduler_core.gangs.placement_trial import GangTrial
from scheduler_core.gangs.preemption import GangPreemption, GangPreview
from scheduler_core.gangs.reservation_capacity import Reservation
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.gangs.reservation_planning import assignment
from scheduler_core.gangs.topology_domains import candidate_domains
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.snapshot.cluster_cache import ClusterCache


@dataclass(frozen=True, slots=True)
class ExaminedPlace:
    """Result of the dry run in one domain.

    Attributes:
        name: The domain, such as ``zone=a``; "" for all nodes.
        nodes: Node by ``namespace/name`` of each feasible member, in the order in which members are tried.
        needed: How many members must be feasible.
        next_member: The first infeasible member; None if no member was rejected.
        is_error: Whether that member met an error rather than a rejection.
        is_tried: Whether a group cycle tries this domain; if not, it has room for too few members.
    """

    name: str
    nodes: dict[str, str]
    needed: int
    next_member: NextMember | None = None
    is_error: bool = False
    is_tried: bool = True


@dataclass(frozen=True, slots=True)
class ReservedNodes:
    """Nodes that are reserved for another gang."""

    key: GroupKey
    node_names: tuple[str, ...]


@dataclass(slots=True)
class GangExamination:
    """Result of a dry run of a group cycle.

    Attributes:
        needed: How many members must be scheduled together.
        refusal: Why no domain is tried, such as ``minResources`` that are not free; "" if domains are tried.
        chosen: The domain in which the quorum is feasible; None for none.
        is_reserved: Whether that is the capacity that is reserved for the gang.
        places: Infeasible domains, the nearest first; at most as many as requested.
        tried: How many domains were tried.
        device_search: Why no other choice of nodes and devices helps; "" if that was not searched, or if one does.
        preemption: Result of a dry run of preemption; None if the quorum is feasible or an error ended the dry run.
        reserved_for_others: Nodes that are reserved for other gangs.
    """

    needed: int
    refusal: str = ""
    chosen: ExaminedPlace | None = None
    is_reserved: bool = False
    places: tuple[ExaminedPlace, ...] = ()
    tried: int = 0
    device_search: str = ""
    preemption: GangPreview | None = None
    reserved_for_others: tuple[ReservedNodes, ...] = ()

    @property
    def error(self) -> str:
        """Error that ended the dry run; "" for none."""
        broken = (place.next_member for place in self.places if place.is_error)
        return next((f"{each.pod.key}: {each.message}" for each in broken if each is not None), "")


@dataclass(slots=True)
class _Try:
    """One try: a domain, an order of members, and the result.

    Attributes:
        where: The domain.
        order: The members in the order in which they are tried.
        reached: How many are feasible.
        is_error: Whether a member met an error.
        is_tried: Whether a group cycle tries this domain.
        place: The result without unblocking events; None if the domain is not among the nearest.
    """

    where: Where
    order: Sequence[QueuedPod]
    reached: int = 0
    is_error: bool = False
    is_tried: bool = True
    place: ExaminedPlace | None = None


@dataclass(slots=True)
class _Tries:
    """All tries; of several tries in one domain only the best is stored.

    Attributes:
        limit: For how many domains the reasons are computed.
        best: Tries by domain.
        counts: How many of them have each number of feasible members.
    """

    limit: int
    best: dict[str, _Try] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)

    def is_near(self, each: _Try) -> bool:
        """Return whether a try may be among the nearest domains."""
        return sum(count for reached, count in self.counts.items() if reached > each.reached) < self.limit

    def add(self, each: _Try) -> None:
        known = self.best.get(each.where.name)
        if known is None or each.reached > known.reached:
            self.best[each.where.name] = each
            self.counts[each.reached] += 1
            if known is not None:
                self.counts[known.reached] -= 1

    def nearest(self) -> list[_Try]:
        """Return the tries: errors first, because they ended the dry run, then by descending feasible members."""
        return sorted(self.best.values(), key=lambda each: (not each.is_error, -each.reached))


class GangExaminer:
    """Dry-runs group cycles.

    Args:
        cache: The nodes, and the members that have a node.
        nominator: Nominations.
        reservations: Capacity reserved for gangs.
        trials: Tries members.
        next_members: Finds out what members lack.
        backtracking: Searches nodes and devices of the members together.
        preemption: Dry-runs preemptions.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        nominator: NominatedPods,
        reservations: GangReservations,
        trials: DryTrials,
        next_members: NextMembers,
        backtracking: DeviceBacktracking,
        preemption: GangPreemption,
    ) -> None:
        self._cache = cache
        self._nominator = nominator
        self._reservations = reservations
        self._trials = trials
        self._next_members = next_members
        self._backtracking = backtracking
        self._preemption = preemption

    def examine(self, cycle: GroupCycle, limit: int) -> GangExamination:
        """Dry-run a group cycle for a gang whose quorum waits, between two cycles; nothing is changed.

        Args:
            cycle: The gang, which has its quorum and its PodGroup, and the profile.
            limit: For how many domains the reasons are computed, and for how many nodes in each.

        Returns:
            The result. An error of a plugin ends the dry run and is contained in it.
        """
        gang = cycle.gang
        found = GangExamination(cycle.needed)
        instance = for_dry_run(cycle.instance)
        found.reserved_for_others = self._reserved_for_others(cycle)
        assert gang.group is not None
        refusal = cycle.refusal(self._cache)
        if refusal is not None:
            found.refusal = refusal.message
        else:
            alone = GroupCycle(cycle.entry, gang, without_extenders(instance))
            reservation = self._reservations.of(gang.key)
            with self._trials.undone(), self._nominator.without(gang.waiting):
                _DryRun(
                    cache=self._cache,
                    trials=self._trials,
                    next_members=self._next_members,
                    cycle=alone,
                    reservation=reservation,
                    limit=limit,
                ).run(found)
                if found.chosen is None and not found.error and found.tried:
                    self._search_devices(alone, found)
        if found.chosen is None and not found.error:
            found.preemption = self._preemption.preview(gang, instance)
        return found

    def _search_devices(self, cycle: GroupCycle, found: GangExamination) -> None:
        """Set the placement that a search over nodes and devices finds, or why it finds none."""
        searched = backtracked(self._backtracking, self._cache, cycle)
        if searched is None:
            return
        found.device_search = searched.message
        if searched.placement:
            nodes = {choice.queued.info.key: choice.node_name for choice in searched.placement}
            found.chosen = ExaminedPlace(searched.where.name, nodes, cycle.needed)

    def _reserved_for_others(self, cycle: GroupCycle) -> tuple[ReservedNodes, ...]:
        nodes = self._cache.columns
        blocking = self._reservations.blocking(cycle.gang.key, cycle.members[0].info) if cycle.members else []
        return tuple(ReservedNodes(key, tuple(sorted(map(nodes.node_name, rows.tolist())))) for key, rows in blocking)


class _DryRun:
    """Tries of one group cycle.

    Args:
        cache: The nodes, and the members that have a node.
        trials: Tries members.
        next_members: Finds out what members lack.
        cycle: The group cycle; its profile has no extenders.
        reservation: Capacity reserved for the gang; None for none.
        limit: For how many domains the reasons are computed, and for how many nodes in each.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        trials: DryTrials,
        next_members: NextMembers,
        cycle: GroupCycle,
        reservation: Reservation | None,
        limit: int,
    ) -> None:
        self._cache = cache
        self._trials = trials
        self._next_members = next_members
        self._cycle = cycle
        self._reservation = reservation
        self._limit = limit
        self._tries = _Tries(limit)

    def run(self, found: GangExamination) -> None:
        """Run the tries and set their result."""
        tries, cycle = self._tries, self._cycle
        screen = DomainScreen(cycle.instance, cycle.needed, self._trials.feasible_rows)
        domains = DomainTries(self._cache, cycle.gang, cycle.members, cycle.needed, screen=screen, least=self._limit)
        for where, order in domains:
            each = _Try(where, order)
            found.chosen = self._run_try(each, domains)
            if found.chosen is not None or each.is_error:
                break
        if found.chosen is None:
            found.chosen = self._as_reserved()
            found.is_reserved = found.chosen is not None
        found.tried = len(tries.best.keys() | screen.ruled_out.keys())
        if not found.tried:
            found.refusal = of_trials(cycle.instance, cycle.needed, ()).message
        if found.chosen is not None:
            tries.best.pop(found.chosen.name, None)
        elif not any(each.is_error for each in tries.best.values()):
            self._try_small_domains()
        nearest = tries.nearest()[: self._limit]
        found.places = tuple(
            each.place if number and each.place is not None else self._with_events(each)
            for number, each in enumerate(nearest)
        )

    def _try_small_domains(self) -> None:
        """Try also domains that a group cycle skips, because they have room for too few members."""
        cycle, tries = self._cycle, self._tries
        assert cycle.gang.group is not None
        topology = cycle.gang.group.topology
        if topology is None:
            return
        infos = [queued.info for queued in cycle.members]
        nodes, placed = self._cache.columns, cycle.placed(self._cache)
        for domain in candidate_domains(nodes, topology, infos, cycle.needed, placed=placed):
            if len(tries.best) >= tries.limit:
                return
            if str(domain) not in tries.best:
                self._run_try(_Try(domain.where, cycle.members, is_tried=False))

    def _run_try(self, each: _Try, domains: DomainTries | None = None) -> ExaminedPlace | None:
        """Run one try and undo it; return the domain if the quorum is feasible, and the group cycle uses the try."""
        trial, needed = GangTrial(each.where), self._cycle.needed
        try:
            self._trials.fill(self._cycle.instance, each.order, needed, trial)
            each.reached, each.is_error = len(trial.placed), trial.is_error
            if each.reached >= needed:
                if domains is not None and not domains.accepts(trial, each.order):
                    return None
                place = _place(needed, trial, each)
                self._tries.add(each)
                return place if each.is_tried else None
            if self._tries.is_near(each):
                each.place = _place(needed, trial, each, self._next_member(trial, with_events=False))
            self._tries.add(each)
            if domains is not None:
                domains.rejected(trial, each.order)
            return None
        finally:
            self._trials.undo(trial)

    def _as_reserved(self) -> ExaminedPlace | None:
        """Return the result on the capacity reserved for the gang, if the quorum is feasible there now."""
        cycle, reservation = self._cycle, self._reservation
        request = cycle.request(self._cache)
        pairs = None if reservation is None else assignment(self._cache.columns, reservation, request)
        if reservation is None or pairs is None or not reservation.fits_now():
            return None
        trial = GangTrial(ANYWHERE)
        try:
            for queued, name in pairs:
                trial.where = Where(only(self._cache.columns, name), "node(s) were not planned for this member")
                held = len(trial.placed)
                self._trials.fill(cycle.instance, [queued], held + 1, trial)
                if len(trial.placed) == held:
                    return None
            trial.where = Where(name=reservation.plan.domain)
            return _place(cycle.needed, trial, _Try(trial.where, cycle.members))
        finally:
            self._trials.undo(trial)

    def _with_events(self, each: _Try) -> ExaminedPlace:
        """Repeat a try, and compute the reasons and unblocking events of its next member before it is undone."""
        trial, needed = GangTrial(_as_long_as(each.where, self._cache.columns.size)), self._cycle.needed
        try:
            self._trials.fill(self._cycle.instance, each.order, needed, trial)
            return _place(needed, trial, each, self._next_member(trial, with_events=True))
        finally:
            self._trials.undo(trial)

    def _next_member(self, trial: GangTrial, *, with_events: bool) -> NextMember | None:
        return self._next_members.next_of(self._cycle, trial, self._limit, with_events=with_events)


def _place(needed: int, trial: GangTrial, each: _Try, lacking: NextMember | None = None) -> ExaminedPlace:
    nodes = {attempt.info.key: attempt.node_name for attempt in trial.placed}
    return ExaminedPlace(trial.where.name, nodes, needed, lacking, trial.is_error, each.is_tried)


def _as_long_as(where: Where, size: int) -> Where:
    """Return the domain for columns that have grown: a hypothetical node leaves a free row."""
    former = where.among
    if former is None or len(former) == size:
        return where
    among = np.zeros(size, dtype=np.bool_)
    among[: len(former)] = former
    return replace(where, subset=among)
