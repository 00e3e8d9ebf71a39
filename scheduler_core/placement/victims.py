"""Victims of a gang's preemption: pods of lower priority that are evicted so that the quorum fits.

::

    terminating pods removed ─▶ each member: a feasible node, or the node with the least harmful victims
                              │ quorum assumed                           │ too few members left
                              ▼                                          ▼
       reprieve victims if every member still fits, there or elsewhere   no plan
       members of several sizes: or if the smallest quorum fits

For groups of ``scheduling.k8s.io`` all pods of lower priority are removed first, a group cycle places the
members, and each unit that fits beside them on their nodes is reprieved. Members beyond the quorum count as well, and
the domain is the one that scores best without the pods of lower priority. So such a group may evict more pods than are
needed, and other ones. This follows kube-scheduler v1.37.1,
``pkg/scheduler/framework/preemption/podgrouppreemption.go``.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.cycle.filter_and_score import Feasible
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where, only
from scheduler_core.cycle.simulated_pod_removal import NodeDryRun, steps_of_removal
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PreemptionCandidate, SumsFilter
from scheduler_core.framework.gang_preemptor import GangPreemptor, VictimTerms
from scheduler_core.framework.group_view import DisruptionUnit, DisruptionUnits, Importance, split_by_budgets
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.model.pod_group import deletion_cost
from scheduler_core.placement.engine import Steps, at_once, place
from scheduler_core.placement.requests import Placement, PlacementRequest, Rejection
from scheduler_core.placement.worlds import CycleWorld, SearchWorld, steps_of_search
from scheduler_core.runtime.equivalence import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.interning import FIXED_RESOURCES
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_CANDIDATES_PER_STEP = 20
_STEPS_FOR_RETURN = 2_000
"""Steps of searches for other nodes of a quorum beside victims that are reprieved."""
_INFEASIBLE = Failure("infeasible even without the pods that may be evicted")
_ABOVE_ANY_PRIORITY = 2**31


@dataclass(frozen=True, slots=True)
class VictimRequest:
    """Which pods a gang may preempt.

    Attributes:
        preemptor: The profile's plugin that preempts for gangs.
        priority: Priority of the gang; only pods of lower priority are victims.
        units: Disruption units: pods that are evicted together.
        protected: UIDs of pods that are never victims, such as the gang's own.
        terminating: Pods of lower priority that are already being deleted.
        held: Claims whose devices are free when all their holders are evicted; None if devices stay in use.
    """

    placing: PlacementRequest
    preemptor: GangPreemptor
    priority: int
    units: DisruptionUnits
    protected: frozenset[str]
    terminating: tuple[PodInfo, ...]
    held: HeldClaims | None = None

    def may_end(self, info: PodInfo) -> bool:
        """Return whether the gang may preempt a pod."""
        return info.priority < self.priority and info.uid not in self.protected

    def preemptible_units(self, nodes: NodeColumns, rows: NDArray[np.intp]) -> list[DisruptionUnit]:
        """Return all units on some rows that the gang may preempt, terminating pods included."""
        pods = (info for row in rows.tolist() for info in nodes.pods[row].values())
        return list({id(unit): unit for unit in map(self.units.of, filter(self.may_end, pods))}.values())


@dataclass(frozen=True, slots=True)
class GangPlan:
    """Plan of a gang's preemption.

    Attributes:
        nodes: The node of each member of the quorum, by UID, in the order in which they were tried.
        victims: Pods to evict, most important first; none if terminating pods free enough room.
        awaited: Terminating pods on the members' nodes.
        pdb_violations: How many victims violate a PodDisruptionBudget.
        rejected_by: Plugins that reject members because of the victims; their events requeue the gang.
    """

    where: Where
    nodes: dict[str, str]
    victims: tuple[PodInfo, ...]
    awaited: tuple[PodInfo, ...]
    pdb_violations: int = 0
    rejected_by: frozenset[str] = frozenset()

    @property
    def victim_nodes(self) -> tuple[str, ...]:
        return tuple(sorted({info.node_name for info in self.victims}))

    @property
    def harm(self) -> tuple[int, int, int, int]:
        """Lowest is best: budget violations, highest priority, sum of shifted priorities, number of victims."""
        priorities = [info.priority for info in self.victims]
        highest = max(priorities, default=-_ABOVE_ANY_PRIORITY)
        total = sum(priority + _ABOVE_ANY_PRIORITY for priority in priorities)
        return self.pdb_violations, highest, total, len(priorities)


@dataclass(slots=True)
class _Pool:
    """Candidates for members of one pod class, by node, as of a position of the change log.

    Attributes:
        untried: Rows that have changed, whose candidates come last and are not computed yet.
    """

    candidates: dict[str, PreemptionCandidate]
    is_row_local: bool
    position: int
    untried: dict[int, None] = field(default_factory=dict)


def with_priority(info: PodInfo, priority: int) -> PodInfo:
    """Return a member with the priority of its gang."""
    if info.priority == priority:
        return info
    made = copy.copy(info)
    made.priority = priority
    return made


class VictimWorld(SearchWorld):
    """The nodes without the pods that a gang preempts: terminating pods first, then the victims of each member.

    An undo ends everything that was changed since :meth:`open`. Attempts have the priority of the gang.

    Args:
        keeps_nodes: Whether victims are reprieved only if every member still fits on its node.
    """

    is_minimal: ClassVar[bool] = True

    def __init__(
        self, search: SearchWorld, nominator: NominatedPods, request: VictimRequest, *, keeps_nodes: bool = False
    ) -> None:
        super().__init__(search.cache, search.assumed, search.selection, search.clock, search.steps)
        self._nominator = nominator
        self._request = request
        self._keeps_nodes = keeps_nodes
        self._instance = request.placing.instance
        self._overlay = ColumnsOverlay(self.nodes, held=request.held)
        self._by_uid: dict[str, Attempt] = {}

    def open(self, where: Where) -> None:
        """Begin a search in one domain, with nothing changed."""
        self._where = where
        self._overlay = ColumnsOverlay(self.nodes, held=self._request.held)
        self._overlay.__enter__()
        self._by_uid = {}
        self._by_row: defaultdict[int, dict[str, Attempt]] = defaultdict(dict)
        self._chosen: list[DisruptionUnit] = []
        self._pools: dict[object, _Pool] = {}
        self._is_row_local = True
        self._rejected_by: set[str] = set()
        self._tries_by_row: Counter[int] = Counter()
        self._stuck_rows_by_class: dict[object, set[int]] = {}
        self._terminating_rows = {info.uid: info.row for info in self._request.terminating}

    def undo(self, attempts: Sequence[Attempt] = ()) -> None:
        del attempts
        # Before the overlay is undone: members may be assumed in the room of victims.
        for attempt in reversed(self._by_uid.values()):
            self.assumed.release(attempt)
        self._by_uid.clear()
        self._overlay.undo()

    # -- members ------------------------------------------------------------------------------------------------

    def begin(self, instance: FrameworkInstance, queued: QueuedPod, where: Where, position: int = 0) -> Attempt:
        attempt = super().begin(instance, queued, where, position)
        attempt.info = with_priority(attempt.info, self._request.priority)
        return attempt

    def fill(
        self, instance: FrameworkInstance, found: Placement, members: Sequence[QueuedPod], needed: int
    ) -> Steps[None]:
        """Assume as many members as needed, with victims where they are infeasible otherwise."""
        self.open(found.where)
        if self._request.terminating:
            self._note_rejections(members)
        self._overlay.remove(self._request.terminating)
        yield from super().fill(instance, found, members, needed)

    def seat(self, attempt: Attempt) -> Steps[Failure | None]:
        """Assume a member on a feasible node, or on the node with the least harmful victims."""
        yield from ()
        feasible = self.find(attempt)
        if len(feasible.rows):
            return None if self._assume(attempt, feasible) else _INFEASIBLE
        self._rejected_by |= feasible.diagnosis.rejected_by
        for candidate in self._candidates(attempt, feasible.diagnosis):
            if self._replace_victims(attempt.queued, candidate):
                return None
        return _INFEASIBLE

    def feasible(self, instance: FrameworkInstance, queued: QueuedPod) -> Feasible | None:
        """Return where a member is feasible without terminating pods, now or after a preemption on that node."""
        self.open(ANYWHERE)
        try:
            self._overlay.remove(self._request.terminating)
            attempt = self.begin(instance, queued, ANYWHERE)
            self.steps.spend(steps_of_search(self.nodes))
            found = self.selection.find_all(attempt)
            candidates = self._dry_run(attempt, found.diagnosis, np.flatnonzero(self.nodes.alive).tolist()).candidates
            after = [self.nodes.row_of(name) for name in candidates]
            return Feasible(np.union1d(found.rows, np.array(after, dtype=np.intp)), found.diagnosis)
        except AttemptLimitError:
            raise
        except SchedulerCoreError:
            return None
        finally:
            self.undo()

    def plan(self) -> GangPlan | None:
        """Reprieve unneeded victims; return the plan, None if the members need no victims, or do not fit any more."""
        needed = len(self._by_uid)
        self._reprieve()
        if len(self._by_uid) < needed:
            return None
        if self._may_place_otherwise and self._reprieve_by_search(needed):
            # On their new nodes the members may need other victims no more.
            self._reprieve()
        nodes = {uid: attempt.node_name for uid, attempt in self._by_uid.items()}
        rows = {self.nodes.row_of(name) for name in nodes.values()}
        awaited = [info for info in self._request.terminating if self._terminating_rows[info.uid] in rows]
        chosen = [info for unit in sorted(self._chosen, key=self._importance) for info in unit.pods]
        awaited += (info for info in chosen if info.is_leaving)
        pods = tuple(info for info in chosen if not info.is_leaving)
        if not pods and not awaited:
            return None
        violating, _ = split_by_budgets(pods, self.nodes.disruption_budgets)
        return GangPlan(self._where, nodes, pods, tuple(awaited), len(violating), frozenset(self._rejected_by))

    def plan_as_reference(
        self, units: Sequence[DisruptionUnit], members: CycleWorld
    ) -> tuple[GangPlan | None, Rejection]:
        """Remove units, place the members as a group cycle does, and reprieve the units that fit beside them."""
        self.open(ANYWHERE)
        for unit in units:
            self.steps.spend(sum(map(steps_of_removal, unit.pods)))
            self._overlay.remove(unit.pods)
        self._chosen += units
        with members.dry_run():
            found, rejection = at_once(place(self._request.placing, members))
        plan = None
        if found is not None:
            seats = [(attempt.queued, self.nodes.row_of(attempt.node_name)) for attempt in found.placed]
            self._where = found.where
            # Assumed again by this world: its attempts have the priority of the gang.
            members.undo(found.placed)
            plan = self.plan() if all(self._assume_on(queued, row) for queued, row in seats) else None
        self.undo()
        return plan, rejection

    def _assume_on(self, queued: QueuedPod, row: int | None) -> bool:
        """Assume a member on a row, or on any node of the domain; return whether it is feasible there."""
        where = self._where if row is None else Where(only(self.nodes, self.nodes.node_name(row)))
        attempt = self.begin(self._instance, queued, where)
        feasible = self.find(attempt)
        return len(feasible.rows) > 0 and self._assume(attempt, feasible)

    def _note_rejections(self, members: Sequence[QueuedPod]) -> None:
        """Record the plugins that reject members while terminating pods still count."""
        # One member of each class, because filters return the same for the others.
        classes = {filter_class(self._instance, queued.info): queued for queued in members}
        for queued in classes.values():
            feasible = self.find(self.begin(self._instance, queued, self._where))
            self._rejected_by |= feasible.diagnosis.rejected_by

    def _assume(self, attempt: Attempt, feasible: Feasible) -> bool:
        return self._assume_tried(attempt, self.selection.select(attempt, feasible))

    def _assume_tried(self, attempt: Attempt, node_name: str) -> bool:
        if not self._assume_member(attempt, node_name):
            return False
        self._is_row_local = self._is_row_local and self._node_dry_run(attempt).is_row_local
        self._tries_by_row[self.nodes.row_of(attempt.node_name)] += 1
        return True

    def _assume_member(self, attempt: Attempt, node_name: str) -> bool:
        if self.assumed.reserve_or_release(attempt, node_name) is not None:
            return False
        self._by_uid[attempt.info.uid] = self._by_row[attempt.info.row][attempt.info.uid] = attempt
        return True

    def _release_member(self, attempt: Attempt) -> None:
        del self._by_uid[attempt.info.uid], self._by_row[attempt.info.row][attempt.info.uid]
        self.assumed.release(attempt)

    def _node_dry_run(self, attempt: Attempt) -> NodeDryRun:
        return NodeDryRun(
            attempt.instance,
            attempt.state,
            attempt.info,
            self.nodes,
            self._nominator,
            steps=self.steps,
            held=self._request.held,
        )

    def _replace_victims(self, queued: QueuedPod, candidate: PreemptionCandidate) -> bool:
        units = list({id(unit): unit for unit in map(self._request.units.of, candidate.victims)}.values())
        row = self.nodes.row_of(candidate.node_name)
        elsewhere = {info.row for unit in units for info in unit.pods} - {row}
        # Whole units leave, wherever their pods run, before the next member is tried: it may use their room as well.
        removed = self._overlay.remove(info for unit in units for info in unit.pods)
        if self._assume_on(queued, row):
            self._chosen += units
            self._tries_by_row.update(elsewhere)
            return True
        self._overlay.restore(reversed(removed))
        return False

    # -- candidates ---------------------------------------------------------------------------------------------

    def _candidates(self, attempt: Attempt, diagnosis: Diagnosis) -> Iterator[PreemptionCandidate]:
        """Yield candidates for a member, the least harmful first."""
        pod_class = filter_class(self._instance, attempt.queued.info)
        pool = self._pools.get(pod_class)
        if pool is None or not self._refresh(pool, attempt, diagnosis):
            pool = self._pools[pod_class] = self._dry_run(attempt, diagnosis, None)
        left = dict(pool.candidates)
        if self._has_units_or_budgets:
            left = {name: self._whole(candidate) for name, candidate in left.items()}
        while left:
            self.steps.pass_by(len(left) // _CANDIDATES_PER_STEP)
            best = self._request.preemptor.least_harmful(list(left.values()))
            if pool.untried and self._may_be_better(pool, best):
                left.update(self._try_changed(pool, attempt, diagnosis))
                best = self._request.preemptor.least_harmful(list(left.values()))
            del left[best.node_name]
            yield best
            if pool.untried and not left:
                left.update(self._try_changed(pool, attempt, diagnosis))

    @property
    def _has_units_or_budgets(self) -> bool:
        return len(self._request.units) > 0 or len(self.nodes.disruption_budgets) > 0

    def _may_be_better(self, pool: _Pool, best: PreemptionCandidate) -> bool:
        """Return whether a row that is not tried can have a better candidate; it loses to an equal one."""
        request, pods = self._request, self.nodes.pods
        running = [info for row in pool.untried for info in pods[row].values() if info.priority < request.priority]
        self.steps.pass_by(len(running) // _CANDIDATES_PER_STEP)
        return request.preemptor.may_be_better(running, best)

    def _refresh(self, pool: _Pool, attempt: Attempt, diagnosis: Diagnosis) -> bool:
        """Drop the candidates of changed rows; return False if all must be recomputed or none is left."""
        nodes = self.nodes
        changed = nodes.changes.since(pool.position)
        if changed is None or (changed and not pool.is_row_local):
            return False
        rows = sorted(set(changed))
        for row in rows:
            pool.candidates.pop(nodes.node_name(row), None)
            # To the end, because candidates are computed in the order in which the rows changed.
            pool.untried.pop(row, None)
            pool.untried[row] = None
        pool.position = nodes.changes.position
        # With units and budgets the harm of a candidate is not that of its victims alone.
        if pool.untried and (not pool.candidates or self._has_units_or_budgets):
            self._try_changed(pool, attempt, diagnosis)
        return bool(pool.candidates)

    def _try_changed(self, pool: _Pool, attempt: Attempt, diagnosis: Diagnosis) -> dict[str, PreemptionCandidate]:
        """Compute and return the candidates of the changed rows, in the order in which the rows changed."""
        found = self._dry_run(attempt, diagnosis, sorted(pool.untried)).candidates
        names = map(self.nodes.node_name, pool.untried)
        fresh = {name: found[name] for name in names if name in found}
        if self._has_units_or_budgets:
            # Those without budget violations are first.
            fresh = found
        pool.candidates.update(fresh)
        pool.untried.clear()
        return fresh

    def _dry_run(self, attempt: Attempt, diagnosis: Diagnosis, rows: Sequence[int] | None) -> _Pool:
        leaving = tuple(self._leaving()) if len(self.nodes.disruption_budgets) else ()
        # With a port that a pod of higher priority uses as well, the gang would preempt without success.
        terms = VictimTerms(self._request.protected, leaving, rows, frees_shared_ports=False, held=self._request.held)
        found = self._request.preemptor.candidates_for_member(attempt.state, attempt.info, diagnosis, terms)
        by_node = {candidate.node_name: candidate for candidate in found.candidates}
        return _Pool(by_node, found.is_row_local, self.nodes.changes.position)

    def _leaving(self) -> Iterable[PodInfo]:
        return (info for unit in self._chosen for info in unit.pods)

    def _whole(self, candidate: PreemptionCandidate) -> PreemptionCandidate:
        """Return a candidate with whole disruption units; its violations count after those of earlier victims."""
        victims = self._request.units.whole(candidate.victims)
        violating, _ = split_by_budgets(victims, self.nodes.disruption_budgets, self._leaving())
        return replace(candidate, victims=victims, pdb_violations=len(violating))

    # -- coming back --------------------------------------------------------------------------------------------

    def _reprieve(self) -> None:
        """Reprieve unneeded victims: those that violate a budget first, then by descending importance."""
        gone: set[int] = set()
        held = {row for row, members in self._by_row.items() if members}
        for unit in self._in_order_of_return():
            if self._is_apart(unit, held):
                # No filter has to run for it.
                gone.add(id(unit))
                continue
            self.steps.spend(sum(map(steps_of_removal, unit.pods)))
            rows = self._overlay.restore(reversed(unit.pods))
            if self._can_return(unit, rows):
                gone.add(id(unit))
        self._chosen = [unit for unit in self._chosen if id(unit) not in gone]

    @property
    def _may_place_otherwise(self) -> bool:
        """Return whether other members of the quorum, or other nodes for them, may need fewer victims."""
        placing = self._request.placing
        if self._keeps_nodes or placing.gang.is_tree or not self._chosen:
            return False
        return len({filter_class(self._instance, queued.info) for queued in placing.members}) > 1

    def _reprieve_by_search(self, needed: int) -> bool:
        """Reprieve victims beside which the quorum fits with other members or on other nodes; return whether any is.

        Bounded: if the searches take too many steps, the other victims leave. One victim is always left, because the
        gang was rejected without evictions: its cycle does not find the nodes that this search finds.
        """
        left, gone = _STEPS_FOR_RETURN, set[int]()
        smallest = sorted(self._request.placing.members, key=lambda queued: sorted(queued.info.fit))[:needed]
        orders = (smallest[::-1], smallest)
        for unit in self._in_order_of_return():
            left -= len(orders) * needed * steps_of_search(self.nodes)
            if left < 0:
                break
            if len(gone) + 1 == len(self._chosen) and not self._request.terminating:
                break
            self.steps.spend(sum(map(steps_of_removal, unit.pods)))
            self._overlay.restore(reversed(unit.pods))
            former = [(attempt, attempt.node_name) for attempt in self._by_uid.values()]
            self._release_all()
            if any(self._fill_tightly(order) for order in orders):
                gone.add(id(unit))
                continue
            self._overlay.remove(unit.pods)
            # Without filters: all of them were assumed on these nodes before the unit was restored.
            for attempt, node_name in former:
                self._assume_member(attempt, node_name)
        self._chosen = [unit for unit in self._chosen if id(unit) not in gone]
        return bool(gone)

    def _release_all(self) -> None:
        for attempt in reversed(list(self._by_uid.values())):
            self._release_member(attempt)

    def _fill_tightly(self, members: Sequence[QueuedPod]) -> bool:
        """Assume all of some members, each on the node with the least room for it; assume none if one does not fit."""
        nodes = self.nodes
        for queued in members:
            attempt = self.begin(self._instance, queued, self._where)
            rows = self.find(attempt).rows
            if len(rows):
                room = np.zeros(len(rows))
                for column, amount in queued.info.fit:
                    room += (nodes.allocatable[column, rows] - nodes.requested[column, rows]) / max(amount, 1)
                if self._assume_tried(attempt, nodes.node_name(int(rows[room.argmin()]))):
                    continue
            self._release_all()
            return False
        return True

    def _in_order_of_return(self) -> list[DisruptionUnit]:
        ordered = sorted(self._chosen, key=self._importance)
        pods = [info for unit in ordered for info in unit.pods]
        # As in kube-scheduler: each of these that is reprieved is one violation less.
        violating = {info.uid for info in split_by_budgets(pods, self.nodes.disruption_budgets)[0]}
        return sorted(ordered, key=lambda unit: violating.isdisjoint(info.uid for info in unit.pods))

    def _importance(self, unit: DisruptionUnit) -> tuple[Importance, int]:
        by_cost = self._instance.config.preemption.break_ties_by_deletion_cost
        cost = sum(deletion_cost(info.pod.metadata) for info in unit.pods) if by_cost else 0
        return unit.importance(self.clock.wall()), -cost

    def _is_apart(self, unit: DisruptionUnit, held: Container[int]) -> bool:
        """Return whether a unit cannot affect members, which keep their nodes; it is not restored then."""
        return (
            self._keeps_nodes
            and self._is_row_local
            and all(info.terms.is_empty and self.nodes.row_of(info.node_name) not in held for info in unit.pods)
        )

    def _can_return(self, unit: DisruptionUnit, rows: Iterable[int]) -> bool:
        """Return whether all members fit beside a restored unit, there or elsewhere; otherwise remove it again."""
        here = frozenset(rows)
        # A unit that filters of other rows do not read can only affect the members on its own rows.
        is_local = self._is_row_local and all(info.terms.is_empty for info in unit.pods)
        affected = (each for row in here for each in self._by_row[row].values()) if is_local else self._by_uid.values()
        left = [(attempt, attempt.node_name) for attempt in affected]
        moved: list[tuple[Attempt, str]] = []
        if self._request.held is not None:
            # All of them first: a claim that members share keeps its devices until the last one is released.
            moved = left
            for attempt, _ in left:
                self._release_member(attempt)
        for attempt, node_name in left:
            if self._request.held is None:
                moved.append((attempt, node_name))
                self._release_member(attempt)
            if not self._reassume(attempt, node_name, is_minimal=is_local and self._is_minimal(unit, here)):
                self._return_to(unit, moved)
                return False
        return True

    def _is_minimal(self, unit: DisruptionUnit, rows: Iterable[int]) -> bool:
        """Return whether the only change on a unit's rows was its removal for one member."""
        # The dry run for that member has then shown that the member does not fit beside the unit.
        return not self._keeps_nodes and len(unit.pods) == 1 and all(self._tries_by_row[row] == 1 for row in rows)

    def _reassume(self, attempt: Attempt, node_name: str, *, is_minimal: bool) -> bool:
        """Assume a released member on its former node, or else on another one; return whether it is assumed."""
        here = self.nodes.row_of(node_name)
        if not is_minimal and self._assume_on(attempt.queued, here):
            return True
        if self._keeps_nodes:
            return False
        pod_class = filter_class(self._instance, attempt.queued.info)
        # Otherwise each member beside a unit that may return would search all nodes.
        stuck = self._stuck_rows_by_class.setdefault(pod_class, set())
        # Members of this class on two rows found no other feasible row, so there is none for a further one.
        if self._is_row_local and len(stuck) > 1:
            return False
        if self._assume_on(attempt.queued, None):
            self._stuck_rows_by_class.clear()
            return True
        stuck.add(here)
        return False

    def _return_to(self, unit: DisruptionUnit, moved: Sequence[tuple[Attempt, str]]) -> None:
        """Remove a unit again, and assume the members that were moved on their former nodes."""
        self._overlay.remove(unit.pods)
        for attempt, _ in moved:
            now = self._by_uid.get(attempt.info.uid)
            if now is not None:
                self._release_member(now)
        # Without filters: all of them were assumed on these nodes before the unit was restored.
        for attempt, node_name in moved:
            self._assume_member(attempt, node_name)


def awaits_victims(
    world: SearchWorld, request: PlacementRequest, preemptor: GangPreemptor, nominator: NominatedPods
) -> bool:
    """Return whether victims still terminate on a nominated node of a member that may become feasible."""
    nodes, instance = world.nodes, request.instance
    for queued in request.members:
        name = nominator.node_of(queued.uid) or queued.info.pod.status.nominated_node_name
        row = nodes.row_of(name) if name else NO_ROW
        if row == NO_ROW or not preemptor.is_awaited(request.gang.priority, row):
            continue
        feasible = world.find(world.begin(instance, queued, Where(only(nodes, name))))
        if len(feasible.rows):
            return True
        diagnosis = feasible.diagnosis
        status = diagnosis.pre_filter if not diagnosis.pre_filter.is_success else diagnosis.status_of(row)
        if status.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return True
    return False


# -- room that preemption can free at most ----------------------------------------------------------------------------


_ABOVE_ANY_AMOUNT = 2**61
"""Amounts are cut here, so that the sum of two fits into an int64."""
_ROWS_AT_ONCE = 100
_PODS_PER_STEP = 5
"""Running pods whose amounts are added up in a step."""


class EvictableRoom:
    """Free amounts of each node once all pods that a gang may evict are gone.

    A quorum for which there is too little of it is infeasible; otherwise it may be infeasible all the same.
    """

    def __init__(self, nodes: NodeColumns, request: VictimRequest) -> None:
        members = [queued.info for queued in request.placing.members]
        self._needed = request.placing.needed
        self._counts_resources = any(isinstance(each, SumsFilter) for each in request.placing.instance.filters)
        # Plugin args may exempt extended resources, so these do not count.
        columns = [column for name in FIXED_RESOURCES if (column := nodes.resources.find(name)) is not None]
        self._wants = Counter(
            tuple((column, min(amount, _ABOVE_ANY_AMOUNT)) for column, amount in info.fit if column in columns)
            for info in members
        )
        """Amounts by column that members request, with the number of these members."""
        amounts = {
            column: sorted(dict(want).get(column, 0) for want in self._wants.elements())
            for column in dict.fromkeys(column for want in self._wants for column, _ in want)
        }
        self._smallest = {column: requested[0] for column, requested in amounts.items()}
        self._least = {column: sum(requested[: self._needed]) for column, requested in amounts.items()}
        freed: dict[int, list[int]] = {column: [0] * nodes.size for column in amounts}
        counts = [0] * nodes.size
        rows = np.flatnonzero(nodes.alive).tolist()
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            chunk = rows[start : start + _ROWS_AT_ONCE]
            nodes.steps.pass_by(1 + sum(len(nodes.pods[row]) for row in chunk) // _PODS_PER_STEP)
            for row in chunk:
                for info in nodes.pods[row].values():
                    if _may_end(info, request):
                        counts[row] += 1
                        for column, amount in info.accounted:
                            if column in freed:
                                freed[column][row] += amount
        self._free = {
            column: np.minimum(nodes.allocatable[column] - nodes.requested[column], _ABOVE_ANY_AMOUNT)
            + np.array([min(amount, _ABOVE_ANY_AMOUNT) for amount in of_rows], dtype=np.int64)
            for column, of_rows in freed.items()
        }
        ports = [set(info.host_ports) for info in members]
        # Members that have a host port in common need a node each.
        most = 1 if ports and set.intersection(*ports) else len(members)
        left = nodes.allowed_pods - nodes.pod_count + np.array(counts, dtype=np.int64)
        self._slots: NDArray[np.int64] = np.where(nodes.alive, np.clip(left, 0, most), 0)

    def is_enough(self, rows: NDArray[np.intp], *, for_each: bool) -> bool:
        """Return whether the quorum may be feasible on some rows."""
        if not self._counts_resources:
            # No filter of the profile rejects a node for its amounts.
            return True
        room, slots = self._slots[rows], self._slots[rows]
        free = {column: np.maximum(amounts[rows], 0) for column, amounts in self._free.items()}
        for column, amounts in free.items():
            if self._least[column] > sum(amounts.tolist()):
                return False
            if self._smallest[column]:
                room = np.minimum(room, amounts // self._smallest[column])
        if int(room.sum()) < self._needed:
            return False
        if not for_each:
            return True
        fitting = 0
        for want, count in self._wants.items():
            mask = slots > 0
            for column, amount in want:
                mask = mask & (free[column] >= amount)
            fitting += count if mask.any() else 0
        return fitting >= self._needed


def _may_end(info: PodInfo, request: VictimRequest) -> bool:
    if info.priority >= request.priority:
        return False
    return info.uid not in request.protected or info.pod.metadata.deletion_timestamp is not None
