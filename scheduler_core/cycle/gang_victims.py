"""Who would have to leave so that a gang's quorum fits: one dry run for all of its members.

Owns the search in one place, be it a domain or the whole cluster::

    ending pods are off ─▶ members one by one: a node that fits, or the node where the least harmful victims leave
                              │ quorum held                                          │ too few are left
                              ▼                                                      ▼
       victims come back if every member still fits, there or elsewhere           no plan

Victims of a member leave with all that leave together with them, wherever they run, before the next member is looked
at. Must not know what is done with the plan. Everything is undone when it returns.

Why member by member, where kube-scheduler v1.36.3 (``framework/preemption/podgrouppreemption.go``) takes every pod of
lower priority off the cluster, places the group, and puts each back that the group allows: that costs a group cycle for
each pod that runs, and its members go to the nodes that look best when they are empty, not to those where the least
harm is done.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.gang_overlay import GangOverlay
from scheduler_core.cycle.gang_trial import Where
from scheduler_core.cycle.node_selection import Feasible, find_feasible, select_node
from scheduler_core.cycle.what_if import NodeDryRun
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.disruption_units import DisruptionUnit, DisruptionUnits, Importance, split_by_budgets
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.gang_preemptor import GangPreemptor, VictimTerms
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class GangRequest:
    """Who preempts.

    Attributes:
        instance: The profile's revision that decides.
        preemptor: Its plugin that makes room.
        priority: The gang's; only pods below it leave.
        needed: How many members must find a node.
        units: Which pods leave together.
        spared: UIDs of pods that stay whatever their priority, the gang's own among them.
        going: Pods of lower priority that are ending anyway.
    """

    instance: FrameworkInstance
    preemptor: GangPreemptor
    priority: int
    needed: int
    units: DisruptionUnits
    spared: frozenset[str]
    going: tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class GangPlan:
    """What a gang would preempt.

    Attributes:
        where: Where its members are to go.
        nodes: The node of each member of the quorum, by UID, in the order of placing them.
        victims: Pods that would be evicted, most important first; none if those that end anyway leave room enough.
        awaited: Pods that end anyway and run where members are to go.
        pdb_violations: How many victims a PodDisruptionBudget protects.
        rejected_by: Plugins in whose way victims are: their events tell when there is room.
    """

    where: Where
    nodes: dict[str, str]
    victims: tuple[PodInfo, ...]
    awaited: tuple[PodInfo, ...]
    pdb_violations: int = 0
    rejected_by: frozenset[str] = frozenset()

    @property
    def victim_nodes(self) -> tuple[str, ...]:
        """Nodes that victims would leave, sorted."""
        return tuple(sorted({info.node_name for info in self.victims}))

    @property
    def harm(self) -> tuple[int, int, int, int]:
        """What is to be least: violations, the highest priority, the sum of priorities above the lowest, the count."""
        priorities = [info.priority for info in self.victims]
        highest = max(priorities, default=-_ABOVE_ANY_PRIORITY)
        total = sum(priority + _ABOVE_ANY_PRIORITY for priority in priorities)
        return self.pdb_violations, highest, total, len(priorities)


_ABOVE_ANY_PRIORITY = 2**31


def plan_in(context: CycleContext, request: GangRequest, where: Where, members: Sequence[QueuedPod]) -> GangPlan | None:
    """Look for victims.

    Args:
        context: The shared parts; they are as before when this returns.
        request: Who preempts.
        where: Where members may go.
        members: The members in the order in which they are to be placed.

    Returns:
        The plan; None if the quorum would not fit, or fits as things are.

    Raises:
        SchedulerCoreError: A plugin failed, or there are no nodes.
    """
    with GangOverlay(context) as overlay:
        return _Search(context, request, where, overlay).plan(members)


@dataclass(slots=True)
class _Pool:
    """Candidates for members that read alike, by node, as of a position of the change log."""

    candidates: dict[str, PreemptionCandidate]
    is_row_local: bool
    position: int


@dataclass(slots=True)
class _Search:
    context: CycleContext
    request: GangRequest
    where: Where
    overlay: GangOverlay
    chosen: list[DisruptionUnit] = field(default_factory=list)
    pools: dict[object, _Pool] = field(default_factory=dict)
    is_row_local: bool = True
    rejected_by: set[str] = field(default_factory=set)
    steps: Counter[int] = field(default_factory=Counter)
    crowded: dict[object, set[int]] = field(default_factory=dict)

    # -- members ------------------------------------------------------------------------------------------------

    def plan(self, members: Sequence[QueuedPod]) -> GangPlan | None:
        going_rows = {info.uid: info.row for info in self.request.going}
        if self.request.going:
            self._note_rejections(members)
        self.overlay.take(self.request.going)
        refused: set[object] = set()
        for position, queued in enumerate(members):
            missing = self.request.needed - len(self.overlay.held)
            if missing <= 0 or len(members) - position < missing:
                break
            kind = filter_class(self.request.instance, queued.info)
            if kind not in refused and not self._place(queued, kind):
                refused.add(kind)
        if len(self.overlay.held) < self.request.needed:
            return None
        self._reprieve()
        return self._planned(going_rows) if len(self.overlay.held) >= self.request.needed else None

    def _note_rejections(self, members: Sequence[QueuedPod]) -> None:
        """Note what turns members away while those who end are still there."""
        kinds = {filter_class(self.request.instance, queued.info): queued for queued in members}
        for queued in kinds.values():
            feasible = find_feasible(self.context, self._attempt(queued), everywhere=True)
            self.rejected_by |= feasible.diagnosis.rejected_by

    def _planned(self, going_rows: dict[str, int]) -> GangPlan | None:
        nodes = {uid: attempt.node_name for uid, attempt in self.overlay.held.items()}
        rows = {self.context.cache.columns.row_of(name) for name in nodes.values()}
        awaited = tuple(info for info in self.request.going if going_rows[info.uid] in rows)
        if not self.chosen and not awaited:
            return None
        pods = [info for unit in sorted(self.chosen, key=self._importance) for info in unit.pods]
        violating, _ = split_by_budgets(pods, self.context.cache.columns.disruption_budgets)
        return GangPlan(self.where, nodes, tuple(pods), awaited, len(violating), frozenset(self.rejected_by))

    def _attempt(self, queued: QueuedPod, row: int | None = None) -> Attempt:
        info = queued.info
        if info.priority != self.request.priority:
            info = copy.copy(info)
            info.priority = self.request.priority
        attempt = Attempt(queued, info, self.request.instance, self.context.clock.now())
        attempt.among, attempt.among_reason = self.where.among, self.where.reason
        if row is not None:
            attempt.among = np.zeros(self.context.cache.columns.size, dtype=np.bool_)
            attempt.among[row] = True
        return attempt

    def _place(self, queued: QueuedPod, kind: object) -> bool:
        attempt = self._attempt(queued)
        feasible = find_feasible(self.context, attempt, everywhere=True)
        if len(feasible.rows):
            return self._hold(attempt, feasible)
        self.rejected_by |= feasible.diagnosis.rejected_by
        for candidate in self._candidates(attempt, feasible.diagnosis, kind):
            if self._place_instead(queued, candidate):
                return True
        return False

    def _hold(self, attempt: Attempt, feasible: Feasible) -> bool:
        if not self.overlay.hold(attempt, select_node(self.context, attempt, feasible)):
            return False
        self.is_row_local = self.is_row_local and self._node_dry_run(attempt).is_row_local
        self.steps[self.context.cache.columns.row_of(attempt.node_name)] += 1
        return True

    def _node_dry_run(self, attempt: Attempt) -> NodeDryRun:
        nodes, nominator = self.context.cache.columns, self.context.queue.nominator
        return NodeDryRun(attempt.instance, attempt.state, attempt.info, nodes, nominator)

    def _place_instead(self, queued: QueuedPod, candidate: PreemptionCandidate) -> bool:
        units = list({id(unit): unit for unit in map(self.request.units.of, candidate.victims)}.values())
        row = self.context.cache.columns.row_of(candidate.node_name)
        elsewhere = {info.row for unit in units for info in unit.pods} - {row}
        taken = self.overlay.take(info for unit in units for info in unit.pods)
        attempt = self._attempt(queued, row)
        feasible = find_feasible(self.context, attempt, everywhere=True)
        if len(feasible.rows) and self._hold(attempt, feasible):
            self.chosen += units
            self.steps.update(elsewhere)
            return True
        self.overlay.put_back(reversed(taken))
        return False

    # -- candidates ---------------------------------------------------------------------------------------------

    def _candidates(self, attempt: Attempt, diagnosis: Diagnosis, kind: object) -> Iterator[PreemptionCandidate]:
        """Where the member could go, the least harmful first; each as things are when it is asked for."""
        pool = self.pools.get(kind)
        if pool is None or not self._refresh(pool, attempt, diagnosis):
            pool = self.pools[kind] = self._dry_run(attempt, diagnosis, None)
        left = dict(pool.candidates)
        if len(self.request.units) or len(self.context.cache.columns.disruption_budgets):
            left = {name: self._whole(candidate) for name, candidate in left.items()}
        while left:
            best = self.request.preemptor.least_harmful(list(left.values()))
            del left[best.node_name]
            yield best

    def _refresh(self, pool: _Pool, attempt: Attempt, diagnosis: Diagnosis) -> bool:
        """Bring candidates up to date where rows have changed; whether any is left."""
        nodes = self.context.cache.columns
        changed = nodes.changes.since(pool.position)
        if changed is None or (changed and not pool.is_row_local):
            return False
        rows = sorted(set(changed))
        for row in rows:
            pool.candidates.pop(nodes.node_name(row), None)
        if rows:
            anew = self._dry_run(attempt, diagnosis, rows)
            pool.candidates.update(anew.candidates)
        pool.position = nodes.changes.position
        return bool(pool.candidates)

    def _dry_run(self, attempt: Attempt, diagnosis: Diagnosis, rows: Sequence[int] | None) -> _Pool:
        leaving = tuple(self._leaving()) if len(self.context.cache.columns.disruption_budgets) else ()
        terms = VictimTerms(self.request.spared, leaving, rows)
        found = self.request.preemptor.candidates_for_member(attempt.state, attempt.info, diagnosis, terms)
        by_node = {candidate.node_name: candidate for candidate in found.candidates}
        return _Pool(by_node, found.is_row_local, self.context.cache.columns.changes.position)

    def _leaving(self) -> Iterable[PodInfo]:
        return (info for unit in self.chosen for info in unit.pods)

    def _whole(self, candidate: PreemptionCandidate) -> PreemptionCandidate:
        """A candidate with all who leave together, its violations counted after those of the victims so far."""
        victims = self.request.units.whole(candidate.victims)
        violating, _ = split_by_budgets(victims, self.context.cache.columns.disruption_budgets, self._leaving())
        return replace(candidate, victims=victims, pdb_violations=len(violating))

    # -- coming back --------------------------------------------------------------------------------------------

    def _reprieve(self) -> None:
        """Let victims come back whose going is not needed: those that a budget protects first, then by importance."""
        gone: set[int] = set()
        for unit in self._in_order_of_return():
            rows = self.overlay.put_back(reversed(unit.pods))
            if self._can_return(unit, rows):
                gone.add(id(unit))
        self.chosen = [unit for unit in self.chosen if id(unit) not in gone]

    def _in_order_of_return(self) -> list[DisruptionUnit]:
        ordered = sorted(self.chosen, key=self._importance)
        pods = [info for unit in ordered for info in unit.pods]
        violating = {info.uid for info in split_by_budgets(pods, self.context.cache.columns.disruption_budgets)[0]}
        return sorted(ordered, key=lambda unit: violating.isdisjoint(info.uid for info in unit.pods))

    def _importance(self, unit: DisruptionUnit) -> Importance:
        return unit.importance(self.context.clock.wall())

    def _can_return(self, unit: DisruptionUnit, rows: Iterable[int]) -> bool:
        """Whether all members fit with a unit back on its rows, where they are or elsewhere; if not it is off again."""
        nodes, here = self.context.cache.columns, frozenset(rows)
        is_local = self.is_row_local and all(info.terms.is_empty for info in unit.pods)
        moved: list[tuple[Attempt, str]] = []
        for attempt in list(self.overlay.held.values()):
            if is_local and nodes.row_of(attempt.node_name) not in here:
                continue
            moved.append((attempt, attempt.node_name))
            self.overlay.let_go(attempt)
            if not self._held_again(*moved[-1], is_minimal=is_local and self._is_minimal(unit, here)):
                self._return_to(unit, moved)
                return False
        return True

    def _is_minimal(self, unit: DisruptionUnit, rows: Iterable[int]) -> bool:
        """Whether nothing has happened on a unit's row but that its going made room for one member.

        The dry run of that member has then found that it does not fit there beside the unit.
        """
        return not unit.is_group and all(self.steps[row] == 1 for row in rows)

    def _held_again(self, attempt: Attempt, node_name: str, *, is_minimal: bool) -> bool:
        """Whether a member that was let go has its node again, since it still fits there, or another."""
        here = self.context.cache.columns.row_of(node_name)
        if not is_minimal and self._held_at(attempt, here):
            return True
        kind = filter_class(self.request.instance, attempt.queued.info)
        crowded = self.crowded.setdefault(kind, set())
        # Members of that kind on two rows have found no room on any other: there is none for a further one anywhere.
        if self.is_row_local and len(crowded) > 1:
            return False
        if self._held_at(attempt, None):
            self.crowded.clear()
            return True
        crowded.add(here)
        return False

    def _held_at(self, attempt: Attempt, row: int | None) -> bool:
        anew = self._attempt(attempt.queued, row)
        feasible = find_feasible(self.context, anew, everywhere=True)
        return len(feasible.rows) > 0 and self._hold(anew, feasible)

    def _return_to(self, unit: DisruptionUnit, moved: Sequence[tuple[Attempt, str]]) -> None:
        """Take a unit off again, and give members that were moved for its sake their nodes again."""
        self.overlay.take(unit.pods)
        for attempt, _ in moved:
            now = self.overlay.held.get(attempt.info.uid)
            if now is not None:
                self.overlay.let_go(now)
        for attempt, node_name in moved:
            self.overlay.hold(attempt, node_name)
