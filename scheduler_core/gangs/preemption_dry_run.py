"""Victims of a gang's preemption in one domain or the whole cluster: one dry run for all of its members.

::

    terminating pods removed ─▶ each member: a feasible node, or the node with the least harmful victims
                              │ quorum assumed                           │ too few members left
                              ▼                                          ▼
       reprieve victims if every member still fits, there or elsewhere   no plan

The victims of a member are removed with their whole disruption units, wherever these run, before the next member is
tried. Everything is undone before the search returns. For groups of ``scheduling.k8s.io``,
:mod:`scheduler_core.gangs.native_preemption` places the members, and they keep their nodes when victims are reprieved.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import Feasible, NodeSelection
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.cycle.simulated_pod_removal import NodeDryRun, steps_of_removal
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.gang_preemptor import VictimTerms
from scheduler_core.framework.group_view import DisruptionUnit, Importance, split_by_budgets
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.placement_trial import steps_of_search
from scheduler_core.gangs.preemption_plan import GangPlan, GangRequest
from scheduler_core.ports import Clock
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter


@dataclass(slots=True)
class _Pool:
    """Candidates for members of one pod class, by node, as of a position of the change log."""

    candidates: dict[str, PreemptionCandidate]
    is_row_local: bool
    position: int


@dataclass(slots=True, kw_only=True)
class VictimSearch:
    """Search in one domain, and the members that it has assumed.

    With ``keeps_nodes``, victims are reprieved only if every member still fits on its node.
    """

    nodes: NodeColumns
    nominator: NominatedPods
    selection: NodeSelection
    pods: AssumedPods
    clock: Clock
    steps: StepCounter
    request: GangRequest
    where: Where
    overlay: ColumnsOverlay
    keeps_nodes: bool = False
    assumed: dict[str, Attempt] = field(default_factory=dict)
    by_row: defaultdict[int, dict[str, Attempt]] = field(default_factory=lambda: defaultdict(dict))
    chosen: list[DisruptionUnit] = field(default_factory=list)
    pools: dict[object, _Pool] = field(default_factory=dict)
    is_row_local: bool = True
    rejected_by: set[str] = field(default_factory=set)
    tries_by_row: Counter[int] = field(default_factory=Counter)
    crowded: dict[object, set[int]] = field(default_factory=dict)

    # -- members ------------------------------------------------------------------------------------------------

    def plan(self, members: Sequence[QueuedPod], place: Callable[[], bool] | None = None) -> GangPlan | None:
        """Return the plan for a quorum of the members; None for none.

        Args:
            members: The members in the order in which they are tried.
            place: Removes victims and assumes a quorum, and returns whether it could; None for the least harmful ones.
        """
        terminating_rows = {info.uid: info.row for info in self.request.terminating}
        if self.request.terminating:
            self._note_rejections(members)
        self.overlay.remove(self.request.terminating)
        if not (self._place_all(members) if place is None else place()):
            return None
        needed = len(self.assumed)
        self._reprieve()
        return self._planned(terminating_rows) if len(self.assumed) >= needed else None

    def choose(self, units: Sequence[DisruptionUnit]) -> None:
        """Remove units as victims."""
        for unit in units:
            self.steps.spend(sum(map(steps_of_removal, unit.pods)))
            self.overlay.remove(unit.pods)
        self.chosen += units

    def reachable(self, queued: QueuedPod) -> Feasible:
        """Return where a member is feasible without terminating pods, now or after a preemption on that node."""
        self.overlay.remove(self.request.terminating)
        attempt = self._attempt(queued)
        feasible = self.selection.find_all(attempt)
        rows = np.flatnonzero(self.nodes.alive)
        found = self._dry_run(attempt, feasible.diagnosis, rows.tolist())
        after = [self.nodes.row_of(name) for name in found.candidates]
        return Feasible(np.union1d(feasible.rows, np.array(after, dtype=np.intp)), feasible.diagnosis)

    def assume_on(self, queued: QueuedPod, row: int | None) -> bool:
        """Assume a member on a row, or on any node of the domain; return whether it is feasible there."""
        attempt = self._attempt(queued, row)
        feasible = self.selection.find_feasible(attempt, everywhere=True)
        return len(feasible.rows) > 0 and self._assume(attempt, feasible)

    def _place_all(self, members: Sequence[QueuedPod]) -> bool:
        """Assume as many members as needed; return whether so many are feasible. On failure some may be assumed."""
        refused: set[object] = set()
        needed = self.request.needed
        for position, queued in enumerate(members):
            missing = needed - len(self.assumed)
            if missing <= 0 or len(members) - position < missing:
                break
            pod_class = filter_class(self.request.instance, queued.info)
            if pod_class not in refused and not self._place(queued, pod_class):
                refused.add(pod_class)
        return len(self.assumed) >= needed

    def _note_rejections(self, members: Sequence[QueuedPod]) -> None:
        """Record the plugins that reject members while terminating pods still count."""
        classes = {filter_class(self.request.instance, queued.info): queued for queued in members}
        for queued in classes.values():
            feasible = self.selection.find_feasible(self._attempt(queued), everywhere=True)
            self.rejected_by |= feasible.diagnosis.rejected_by

    def _planned(self, terminating_rows: dict[str, int]) -> GangPlan | None:
        nodes = {uid: attempt.node_name for uid, attempt in self.assumed.items()}
        rows = {self.nodes.row_of(name) for name in nodes.values()}
        awaited = [info for info in self.request.terminating if terminating_rows[info.uid] in rows]
        chosen = [info for unit in sorted(self.chosen, key=self._importance) for info in unit.pods]
        awaited += (info for info in chosen if info.is_leaving)
        pods = tuple(info for info in chosen if not info.is_leaving)
        if not pods and not awaited:
            return None
        violating, _ = split_by_budgets(pods, self.nodes.disruption_budgets)
        return GangPlan(self.where, nodes, pods, tuple(awaited), len(violating), frozenset(self.rejected_by))

    def _attempt(self, queued: QueuedPod, row: int | None = None) -> Attempt:
        self.steps.spend(steps_of_search(self.nodes))
        info = queued.info
        if info.priority != self.request.priority:
            info = copy.copy(info)
            info.priority = self.request.priority
        attempt = Attempt(queued, info, self.request.instance, self.clock.now())
        attempt.among, attempt.among_reason = self.where.among, self.where.reason
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
        self.tries_by_row[self.nodes.row_of(attempt.node_name)] += 1
        return True

    def _assume_member(self, attempt: Attempt, node_name: str) -> bool:
        if self.pods.reserve_or_release(attempt, node_name) is not None:
            return False
        self.assumed[attempt.info.uid] = self.by_row[attempt.info.row][attempt.info.uid] = attempt
        return True

    def _release_member(self, attempt: Attempt) -> None:
        del self.assumed[attempt.info.uid], self.by_row[attempt.info.row][attempt.info.uid]
        self.pods.release(attempt)

    def _node_dry_run(self, attempt: Attempt) -> NodeDryRun:
        return NodeDryRun(attempt.instance, attempt.state, attempt.info, self.nodes, self.nominator, steps=self.steps)

    def _replace_victims(self, queued: QueuedPod, candidate: PreemptionCandidate) -> bool:
        units = list({id(unit): unit for unit in map(self.request.units.of, candidate.victims)}.values())
        row = self.nodes.row_of(candidate.node_name)
        elsewhere = {info.row for unit in units for info in unit.pods} - {row}
        removed = self.overlay.remove(info for unit in units for info in unit.pods)
        if self.assume_on(queued, row):
            self.chosen += units
            self.tries_by_row.update(elsewhere)
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
        terms = VictimTerms(self.request.protected, leaving, rows, frees_shared_ports=False)
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
        held = {row for row, members in self.by_row.items() if members}
        for unit in self._in_order_of_return():
            if self._is_apart(unit, held):
                gone.add(id(unit))
                continue
            self.steps.spend(sum(map(steps_of_removal, unit.pods)))
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

    def _is_apart(self, unit: DisruptionUnit, held: Container[int]) -> bool:
        """Return whether a unit cannot affect members, which keep their nodes; it is not restored then.

        Args:
            unit: The unit.
            held: Rows of the members.
        """
        return (
            self.keeps_nodes
            and self.is_row_local
            and all(info.terms.is_empty and self.nodes.row_of(info.node_name) not in held for info in unit.pods)
        )

    def _can_return(self, unit: DisruptionUnit, rows: Iterable[int]) -> bool:
        """Return whether all members fit beside a restored unit; otherwise remove it again.

        Members that do not keep their nodes may fit elsewhere.
        """
        here = frozenset(rows)
        is_local = self.is_row_local and all(info.terms.is_empty for info in unit.pods)
        moved: list[tuple[Attempt, str]] = []
        affected = (each for row in here for each in self.by_row[row].values()) if is_local else self.assumed.values()
        for attempt in list(affected):
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
        return not self.keeps_nodes and len(unit.pods) == 1 and all(self.tries_by_row[row] == 1 for row in rows)

    def _reassume(self, attempt: Attempt, node_name: str, *, is_minimal: bool) -> bool:
        """Assume a released member on its former node, or else on another one; return whether it is assumed."""
        here = self.nodes.row_of(node_name)
        if not is_minimal and self.assume_on(attempt.queued, here):
            return True
        if self.keeps_nodes:
            return False
        pod_class = filter_class(self.request.instance, attempt.queued.info)
        crowded = self.crowded.setdefault(pod_class, set())
        # Members of this class on two rows found no other feasible row, so there is none for a further one.
        if self.is_row_local and len(crowded) > 1:
            return False
        if self.assume_on(attempt.queued, None):
            self.crowded.clear()
            return True
        crowded.add(here)
        return False

    def _return_to(self, unit: DisruptionUnit, moved: Sequence[tuple[Attempt, str]]) -> None:
        """Remove a unit again, and assume the members that were moved on their former nodes."""
        self.overlay.remove(unit.pods)
        for attempt, _ in moved:
            now = self.assumed.get(attempt.info.uid)
            if now is not None:
                self._release_member(now)
        for attempt, node_name in moved:
            self._assume_member(attempt, node_name)
