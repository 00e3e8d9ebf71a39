"""Victims of a gang's preemption in one domain or the whole cluster: one dry run for all of its members.

::

    terminating pods removed ─▶ each member: a feasible node, or the node with the least harmful victims
                              │ quorum assumed                           │ too few members left
                              ▼                                          ▼
       reprieve victims if every member still fits, there or elsewhere   no plan

The victims of a member are removed with their whole disruption units, wherever these run, before the next member is
tried. Everything is undone before the search returns.

kube-scheduler v1.37.1 (``framework/preemption/podgrouppreemption.go``) removes all pods of lower priority, schedules
the group, and restores each pod that then still fits. That costs a group cycle for each running pod, and its members
go to the nodes that score best when empty rather than to those with the least harm, so victims are chosen member by
member here.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import Feasible, NodeSelection
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.cycle.simulated_pod_removal import NodeDryRun
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.disruption_units import DisruptionUnit, Importance, split_by_budgets
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.gang_preemptor import VictimTerms
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.preemption_plan import GangPlan, GangRequest, Progress, Step, harm_of
from scheduler_core.ports import Clock
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(slots=True)
class _Pool:
    """Candidates for members of one pod class, by node, as of a position of the change log."""

    candidates: dict[str, PreemptionCandidate]
    is_row_local: bool
    position: int


@dataclass(slots=True, kw_only=True)
class VictimSearch:
    """Search in one domain, and the members that it has assumed, with the domains of those of a tree."""

    nodes: NodeColumns
    nominator: NominatedPods
    selection: NodeSelection
    pods: AssumedPods
    clock: Clock
    request: GangRequest
    where: Where
    overlay: ColumnsOverlay
    assumed: dict[str, Attempt] = field(default_factory=dict)
    chosen: list[DisruptionUnit] = field(default_factory=list)
    pools: dict[object, _Pool] = field(default_factory=dict)
    is_row_local: bool = True
    rejected_by: set[str] = field(default_factory=set)
    steps: Counter[int] = field(default_factory=Counter)
    crowded: dict[object, set[int]] = field(default_factory=dict)
    places: dict[str, Where] = field(default_factory=dict)

    # -- members ------------------------------------------------------------------------------------------------

    def plan(self, members: Sequence[QueuedPod], place: Callable[[], bool] | None = None) -> GangPlan | None:
        """Return the plan for a quorum of the members; None for none.

        Args:
            members: The members in the order in which they are tried.
            place: Assumes a quorum and returns whether it could; None for as many members as are needed.
        """
        terminating_rows = {info.uid: info.row for info in self.request.terminating}
        if self.request.terminating:
            self._note_rejections(members)
        self.overlay.remove(self.request.terminating)
        if not (self.place(members, self.request.needed, self.where) if place is None else place()):
            return None
        needed = len(self.assumed)
        self._reprieve()
        return self._planned(terminating_rows) if len(self.assumed) >= needed else None

    def place(self, members: Sequence[QueuedPod], needed: int, where: Where) -> bool:
        """Assume as many members as needed in a domain; return whether so many are feasible.

        On failure some may be assumed.
        """
        refused: set[object] = set()
        begun = len(self.assumed)
        for position, queued in enumerate(members):
            missing = needed - (len(self.assumed) - begun)
            if missing <= 0 or len(members) - position < missing:
                break
            pod_class = (filter_class(self.request.instance, queued.info), where.name)
            self.places[queued.uid] = where
            if pod_class not in refused and not self._place(queued, pod_class):
                refused.add(pod_class)
        return len(self.assumed) - begun >= needed

    # -- steps of a tree ----------------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """How far the search is."""
        return Progress(len(self.assumed), len(self.chosen))

    def take_back(self, begun: Progress) -> Step:
        """Release the members and restore the victims that were added since."""
        members = [(each, each.node_name, self._where(uid)) for uid, each in self.assumed.items()][begun.members :]
        units = tuple(self.chosen[begun.units :])
        del self.chosen[begun.units :]
        victims = [info for unit in units for info in unit.pods]
        violating, _ = split_by_budgets(victims, self.nodes.disruption_budgets, self._leaving())
        for attempt, _, _ in reversed(members):
            self._release_member(attempt)
        self.overlay.restore(reversed(victims))
        return Step(tuple(members), units, harm_of(victims, len(violating)))

    def apply(self, step: Step) -> bool:
        """Apply a step again; return whether all of its members could be assumed; if not, nothing is changed."""
        begun = self.progress
        self.overlay.remove(info for unit in step.units for info in unit.pods)
        self.chosen += step.units
        for attempt, node_name, where in step.members:
            self.places[attempt.info.uid] = where
            if not self._assume_member(attempt, node_name):
                self.take_back(begun)
                return False
        return True

    def _where(self, uid: str) -> Where:
        return self.places.get(uid, self.where)

    def _note_rejections(self, members: Sequence[QueuedPod]) -> None:
        """Record the plugins that reject members while terminating pods still count."""
        classes = {filter_class(self.request.instance, queued.info): queued for queued in members}
        for queued in classes.values():
            feasible = self.selection.find_feasible(self._attempt(queued), everywhere=True)
            self.rejected_by |= feasible.diagnosis.rejected_by

    def _planned(self, terminating_rows: dict[str, int]) -> GangPlan | None:
        nodes = {uid: attempt.node_name for uid, attempt in self.assumed.items()}
        rows = {self.nodes.row_of(name) for name in nodes.values()}
        awaited = tuple(info for info in self.request.terminating if terminating_rows[info.uid] in rows)
        if not self.chosen and not awaited:
            return None
        pods = [info for unit in sorted(self.chosen, key=self._importance) for info in unit.pods]
        violating, _ = split_by_budgets(pods, self.nodes.disruption_budgets)
        return GangPlan(self.where, nodes, tuple(pods), awaited, len(violating), frozenset(self.rejected_by))

    def _attempt(self, queued: QueuedPod, row: int | None = None) -> Attempt:
        info = queued.info
        if info.priority != self.request.priority:
            info = copy.copy(info)
            info.priority = self.request.priority
        attempt = Attempt(queued, info, self.request.instance, self.clock.now())
        where = self._where(info.uid)
        attempt.among, attempt.among_reason = where.among, where.reason
        if row is not None:
            attempt.among = np.zeros(self.nodes.size, dtype=np.bool_)
            attempt.among[row] = True
        return attempt

    def _place(self, queued: QueuedPod, pod_class: object) -> bool:
        attempt = self._attempt(queued)
        feasible = self.selection.find_feasible(attempt, everywhere=True)
        if len(feasible.rows):
            return self._assume(attempt, feasible)
        self.rejected_by |= feasible.diagnosis.rejected_by
        for candidate in self._candidates(attempt, feasible.diagnosis, pod_class):
            if self._replace_victims(queued, candidate):
                return True
        return False

    def _assume(self, attempt: Attempt, feasible: Feasible) -> bool:
        if not self._assume_member(attempt, self.selection.select(attempt, feasible)):
            return False
        self.is_row_local = self.is_row_local and self._node_dry_run(attempt).is_row_local
        self.steps[self.nodes.row_of(attempt.node_name)] += 1
        return True

    def _assume_member(self, attempt: Attempt, node_name: str) -> bool:
        if self.pods.reserve_or_release(attempt, node_name) is not None:
            return False
        self.assumed[attempt.info.uid] = attempt
        return True

    def _release_member(self, attempt: Attempt) -> None:
        del self.assumed[attempt.info.uid]
        self.pods.release(attempt)

    def _node_dry_run(self, attempt: Attempt) -> NodeDryRun:
        return NodeDryRun(attempt.instance, attempt.state, attempt.info, self.nodes, self.nominator)

    def _replace_victims(self, queued: QueuedPod, candidate: PreemptionCandidate) -> bool:
        units = list({id(unit): unit for unit in map(self.request.units.of, candidate.victims)}.values())
        row = self.nodes.row_of(candidate.node_name)
        elsewhere = {info.row for unit in units for info in unit.pods} - {row}
        removed = self.overlay.remove(info for unit in units for info in unit.pods)
        attempt = self._attempt(queued, row)
        feasible = self.selection.find_feasible(attempt, everywhere=True)
        if len(feasible.rows) and self._assume(attempt, feasible):
            self.chosen += units
            self.steps.update(elsewhere)
            return True
        self.overlay.restore(reversed(removed))
        return False

    # -- candidates ---------------------------------------------------------------------------------------------

    def _candidates(self, attempt: Attempt, diagnosis: Diagnosis, pod_class: object) -> Iterator[PreemptionCandidate]:
        """Yield candidates for a member, the least harmful first."""
        pool = self.pools.get(pod_class)
        if pool is None or not self._refresh(pool, attempt, diagnosis):
            pool = self.pools[pod_class] = self._dry_run(attempt, diagnosis, None)
        left = dict(pool.candidates)
        if len(self.request.units) or len(self.nodes.disruption_budgets):
            left = {name: self._whole(candidate) for name, candidate in left.items()}
        while left:
            best = self.request.preemptor.least_harmful(list(left.values()))
            del left[best.node_name]
            yield best

    def _refresh(self, pool: _Pool, attempt: Attempt, diagnosis: Diagnosis) -> bool:
        """Recompute candidates on changed rows; return False if all must be recomputed or none is left."""
        nodes = self.nodes
        changed = nodes.changes.since(pool.position)
        if changed is None or (changed and not pool.is_row_local):
            return False
        rows = sorted(set(changed))
        for row in rows:
            pool.candidates.pop(nodes.node_name(row), None)
        if rows:
            fresh = self._dry_run(attempt, diagnosis, rows)
            pool.candidates.update(fresh.candidates)
        pool.position = nodes.changes.position
        return bool(pool.candidates)

    def _dry_run(self, attempt: Attempt, diagnosis: Diagnosis, rows: Sequence[int] | None) -> _Pool:
        leaving = tuple(self._leaving()) if len(self.nodes.disruption_budgets) else ()
        # With a port that a pod of higher priority uses as well, the gang would preempt without success.
        terms = VictimTerms(self.request.spared, leaving, rows, frees_shared_ports=False)
        found = self.request.preemptor.candidates_for_member(attempt.state, attempt.info, diagnosis, terms)
        by_node = {candidate.node_name: candidate for candidate in found.candidates}
        return _Pool(by_node, found.is_row_local, self.nodes.changes.position)

    def _leaving(self) -> Iterable[PodInfo]:
        return (info for unit in self.chosen for info in unit.pods)

    def _whole(self, candidate: PreemptionCandidate) -> PreemptionCandidate:
        """Return a candidate with whole disruption units; its violations count after those of earlier victims."""
        victims = self.request.units.whole(candidate.victims)
        violating, _ = split_by_budgets(victims, self.nodes.disruption_budgets, self._leaving())
        return replace(candidate, victims=victims, pdb_violations=len(violating))

    # -- coming back --------------------------------------------------------------------------------------------

    def _reprieve(self) -> None:
        """Reprieve unneeded victims: those that violate a budget first, then by descending importance."""
        gone: set[int] = set()
        for unit in self._in_order_of_return():
            rows = self.overlay.restore(reversed(unit.pods))
            if self._can_return(unit, rows):
                gone.add(id(unit))
        self.chosen = [unit for unit in self.chosen if id(unit) not in gone]

    def _in_order_of_return(self) -> list[DisruptionUnit]:
        ordered = sorted(self.chosen, key=self._importance)
        pods = [info for unit in ordered for info in unit.pods]
        violating = {info.uid for info in split_by_budgets(pods, self.nodes.disruption_budgets)[0]}
        return sorted(ordered, key=lambda unit: violating.isdisjoint(info.uid for info in unit.pods))

    def _importance(self, unit: DisruptionUnit) -> Importance:
        return unit.importance(self.clock.wall())

    def _can_return(self, unit: DisruptionUnit, rows: Iterable[int]) -> bool:
        """Return whether all members fit beside a restored unit, there or elsewhere; otherwise remove it again."""
        nodes, here = self.nodes, frozenset(rows)
        is_local = self.is_row_local and all(info.terms.is_empty for info in unit.pods)
        moved: list[tuple[Attempt, str]] = []
        for attempt in list(self.assumed.values()):
            if is_local and nodes.row_of(attempt.node_name) not in here:
                continue
            moved.append((attempt, attempt.node_name))
            self._release_member(attempt)
            if not self._reassume(*moved[-1], is_minimal=is_local and self._is_minimal(unit, here)):
                self._return_to(unit, moved)
                return False
        return True

    def _is_minimal(self, unit: DisruptionUnit, rows: Iterable[int]) -> bool:
        """Return whether the only change on a unit's rows was its removal for one member.

        The dry run for that member has then shown that the member does not fit beside the unit.
        """
        return not unit.is_group and all(self.steps[row] == 1 for row in rows)

    def _reassume(self, attempt: Attempt, node_name: str, *, is_minimal: bool) -> bool:
        """Assume a released member on its former node, or else on another one; return whether it is assumed."""
        here = self.nodes.row_of(node_name)
        if not is_minimal and self._assume_on(attempt, here):
            return True
        pod_class = (filter_class(self.request.instance, attempt.queued.info), self._where(attempt.info.uid).name)
        crowded = self.crowded.setdefault(pod_class, set())
        # Members of this class on two rows found no other feasible row, so there is none for a further one.
        if self.is_row_local and len(crowded) > 1:
            return False
        if self._assume_on(attempt, None):
            self.crowded.clear()
            return True
        crowded.add(here)
        return False

    def _assume_on(self, attempt: Attempt, row: int | None) -> bool:
        fresh = self._attempt(attempt.queued, row)
        feasible = self.selection.find_feasible(fresh, everywhere=True)
        return len(feasible.rows) > 0 and self._assume(fresh, feasible)

    def _return_to(self, unit: DisruptionUnit, moved: Sequence[tuple[Attempt, str]]) -> None:
        """Remove a unit again, and assume the members that were moved on their former nodes."""
        self.overlay.remove(unit.pods)
        for attempt, _ in moved:
            now = self.assumed.get(attempt.info.uid)
            if now is not None:
                self._release_member(now)
        for attempt, node_name in moved:
            self._assume_member(attempt, node_name)
