"""Plans the nodes of a gang's members for the time after the pods that run there have ended.

Nodes are emptied one by one on the live columns, those with the least work to wait for first, and all extension points
run for the members there; everything is undone before the search returns.

Free room is used before any node is emptied, so that the gang waits for as few pods as possible. Pods of DaemonSets,
static pods and the gang's own members stay. Pods with ``restartPolicy: Always`` may be deleted by users, so nodes
without them are emptied first. Extenders are not called, because they cannot see hypothetically empty nodes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import NodeSelection
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where, only
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.gangs.placement_trial import GangTrial, steps_of_search
from scheduler_core.gangs.reservation_capacity import Plan, Reservation, Slot
from scheduler_core.gangs.topology_domains import Domain, candidate_domains, member_room
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from scheduler_core.step_counter import StepCounter

log = logging.getLogger(__name__)

_STAYING_OWNERS = frozenset(("DaemonSet", "Node"))
_RESTARTS = "Always"
_WEIGHT_OF_ENDLESS = 100
"""Weight of a pod with ``restartPolicy: Always``; other pods have weight 1."""
_MAX_DOMAINS = 4
"""Domains for which a complete plan is computed, those that lack least first; the lightest plan is used."""
_MAX_UNHELPFUL = 200
"""Consecutive nodes whose emptying places no member, after which the search ends."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A gang that needs a plan.

    Attributes:
        gang: The gang.
        instance: The profile's revision.
        members: Its waiting members, in the order in which they are tried.
        needed: How many of them must be scheduled.
        placed: Members that have a node already.
    """

    gang: Gang
    instance: FrameworkInstance
    members: Sequence[QueuedPod]
    needed: int
    placed: Sequence[PodInfo] = ()


def _ending(nodes: NodeColumns, row: int, members: Container[str]) -> list[PodInfo]:
    """Return the pods of a row that are expected to end: not members, and not pods that belong to the node."""
    return [
        info
        for uid, info in nodes.pods[row].items()
        if uid not in members and not any(owner.kind in _STAYING_OWNERS for owner in info.pod.metadata.owner_references)
    ]


_Put = Callable[[FrameworkInstance, QueuedPod, NDArray[np.bool_], GangTrial], Diagnosis | None]
"""Assumes one member on one of the given rows; returns the diagnosis if none is feasible, None otherwise."""


class _Fill:
    """A plan in progress: members are assumed on rows, and rows are emptied for them.

    Args:
        nodes: The columns.
        put: Assumes a member on one of some rows; returns the diagnosis if no node is feasible.
        request: The gang.
        trial: Receives the assumed members.

    Attributes:
        trial: The assumed members.
        classes: Pod class of each member, by UID.
    """

    def __init__(self, nodes: NodeColumns, put: _Put, request: PlanRequest, trial: GangTrial) -> None:
        self._nodes = nodes
        self._put = put
        self._request = request
        self.trial = trial
        self._left: dict[object, deque[QueuedPod]] = {}
        """Members without a node, by pod class."""
        for queued in request.members:
            self._left.setdefault(filter_class(request.instance, queued.info), deque()).append(queued)
        self.classes = {queued.uid: pod_class for pod_class, members in self._left.items() for queued in members}
        self._diagnoses: dict[object, Diagnosis] = {}
        """Last diagnosis of the pod classes that have no feasible node."""

    @property
    def is_complete(self) -> bool:
        """Whether the needed number of members is assumed."""
        return len(self.trial.placed) >= self._request.needed

    def fill(self, among: NDArray[np.bool_]) -> bool:
        """Assume up to the needed number of members, class by class; return whether any was feasible."""
        before = len(self.trial.placed)
        self._diagnoses = {}
        for pod_class, members in self._left.items():
            while members and not self.is_complete:
                diagnosis = self._put(self._request.instance, members[0], among, self.trial)
                if diagnosis is not None:
                    self._diagnoses[pod_class] = diagnosis
                    break
                members.popleft()
        return len(self.trial.placed) > before

    def empty_and_fill(self, overlay: ColumnsOverlay, among: NDArray[np.bool_], *, is_greedy: bool) -> None:
        """Empty rows one by one until the plan is complete; rows where no member becomes feasible are restored."""
        nodes, members = self._nodes, self._request.gang.placed
        one = np.zeros_like(among)
        unhelpful = 0
        for row in self._rows_in_order(among, is_greedy=is_greedy):
            if self.is_complete or unhelpful >= _MAX_UNHELPFUL:
                break
            removed = overlay.remove(_ending(nodes, row, members))
            one[row] = True
            if self.fill(one):
                unhelpful = 0
            else:
                overlay.restore(removed)
                unhelpful += 1
            one[row] = False

    def _rows_in_order(self, among: NDArray[np.bool_], *, is_greedy: bool) -> list[int]:
        """Return the rows to empty, by ascending work for each member that gets room."""
        nodes, members = self._nodes, self._request.gang.placed
        # One member of each class that has members without a node.
        infos = [waiting[0].info for waiting in self._left.values() if waiting]
        now, then = member_room(nodes, infos), member_room(nodes, infos, when_empty=True)
        hopeful = np.zeros_like(among) if is_greedy else among.copy()
        for diagnosis in self._diagnoses.values():
            if diagnosis.pre_filter.is_success:
                hopeful[diagnosis.rows_with(Code.UNSCHEDULABLE)] = True
            elif diagnosis.pre_filter.code is Code.UNSCHEDULABLE:
                hopeful |= nodes.alive
        hopeful &= among & (then > 0)

        def order(row: int) -> tuple[bool, float, int, int]:
            gained = int(then[row] - now[row])
            work = sum(map(_weight, _ending(nodes, row, members))) / max(1, gained)
            name_hash = int(nodes.name_hashes[row])
            if is_greedy:
                return gained <= 0, work, -gained, name_hash
            return False, -float(then[row]), gained, name_hash

        return sorted(np.flatnonzero(hopeful).tolist(), key=order)


def _search_spaces(nodes: NodeColumns, request: PlanRequest, allowed: NDArray[np.bool_]) -> list[Where]:
    """Return where a plan may succeed, by ascending lack of room, then in the order in which a gang tries domains."""
    assert request.gang.group is not None
    topology = request.gang.group.topology
    infos = [queued.info for queued in request.members]
    now, then = member_room(nodes, infos), member_room(nodes, infos, when_empty=True)
    ranked: list[tuple[int, int, Domain | None]] = []

    def rank(rows: NDArray[np.intp], domain: Domain | None) -> None:
        if then[rows].sum() >= request.needed:
            ranked.append((max(0, request.needed - int(now[rows].sum())), len(ranked), domain))

    if topology is not None:
        for domain in candidate_domains(nodes, topology, infos, request.needed, placed=request.placed):
            rows = domain.subset.rows
            rank(rows[allowed[rows]], domain)
    if topology is None or not topology.is_required:
        rank(np.flatnonzero(allowed), None)
    nearest = [domain for _, _, domain in sorted(ranked, key=lambda each: each[:2])[:_MAX_DOMAINS]]
    return [Where(allowed) if each is None else Where(each.subset.mask & allowed, "", str(each)) for each in nearest]


def _weight(info: PodInfo) -> int:
    return _WEIGHT_OF_ENDLESS if info.pod.spec.restart_policy == _RESTARTS else 1


def _is_together(plan: Plan, nodes: NodeColumns, request: PlanRequest) -> bool:
    """Return whether all nodes of a plan are in one domain, if the group requires one."""
    assert request.gang.group is not None
    topology = request.gang.group.topology
    if topology is None or (not topology.is_required and not plan.domain):
        return True
    level = plan.domain.partition("=")[0]
    if level not in (topology.key, *topology.levels):
        return False
    rows = [nodes.row_of(name) for name in plan.node_names]
    if NO_ROW in rows:
        return False
    columns = [nodes.label_column(key) for key in {topology.key, level}]
    return all(len(set(column.ids[rows].tolist())) == 1 and column.ids[rows[0]] >= 0 for column in columns)


def assignment(
    nodes: NodeColumns, reservation: Reservation, request: PlanRequest
) -> list[tuple[QueuedPod, str]] | None:
    """Assign members to the slots of a plan: their own, or for new members those of deleted members of their class.

    Returns:
        The needed number of members with their nodes; None if the plan has too few slots for them, or if its nodes no
        longer satisfy the group's topology.
    """
    if not _is_together(reservation.plan, nodes, request):
        return None
    waiting = {queued.uid: queued for queued in request.members}
    newcomers = dict(waiting)
    for slot in reservation.plan.slots:
        newcomers.pop(slot.info.uid, None)
    by_class: dict[object, list[QueuedPod]] = {}
    for queued in newcomers.values():
        by_class.setdefault(filter_class(request.instance, queued.info), []).append(queued)
    pairs: list[tuple[QueuedPod, str]] = []
    for slot in reservation.plan.slots:
        member = waiting.get(slot.info.uid)
        if member is None and by_class.get(slot.pod_class):
            member = by_class[slot.pod_class].pop(0)
        if member is not None:
            pairs.append((member, slot.node_name))
    return pairs[: request.needed] if len(pairs) >= request.needed else None


class PlacementPlans:
    """Makes plans, and checks whether they are still feasible.

    Args:
        nodes: The columns.
        selection: Searches and selects nodes.
        assumed: Assumes members while a plan is made.
        clock: Time.
        steps: Counts the steps of the cycle.
    """

    def __init__(
        self, nodes: NodeColumns, selection: NodeSelection, assumed: AssumedPods, clock: Clock, *, steps: StepCounter
    ) -> None:
        self._steps = steps
        self._nodes = nodes
        self._selection = selection
        self._assumed = assumed
        self._clock = clock

    def find(self, request: PlanRequest, allowed: NDArray[np.bool_]) -> Plan | None:
        """Return the plan for a quorum that waits for the least work; changes nothing.

        Args:
            request: The gang.
            allowed: bool per row, the nodes that may be used.

        Returns:
            The plan; None if the quorum is infeasible even after all pods that can end have ended, or if a plugin
            failed.

        Raises:
            AttemptLimitError: The search took more steps than it may.
        """
        best: Plan | None = None
        try:
            for where in _search_spaces(self._nodes, request, allowed):
                for is_greedy in (True, False):
                    plan = self._plan_in(request, where, is_greedy=is_greedy)
                    if plan is not None:
                        best = plan if best is None or plan.weight < best.weight else best
                        break
        except AttemptLimitError:
            raise
        except SchedulerCoreError as error:
            log.warning(
                "no capacity can be planned for gang %s: %s",
                request.gang.key,
                error,
                extra={"podgroup": str(request.gang.key)},
            )
        return best

    def is_still_valid(self, request: PlanRequest, reservation: Reservation) -> bool:
        """Return whether the plan is feasible once the pods in the way have ended; changes nothing."""
        nodes = self._nodes
        pairs = assignment(nodes, reservation, request)
        if pairs is None or not reservation.fits_then():
            return False
        trial, instance = GangTrial(ANYWHERE), request.instance
        with ColumnsOverlay(nodes) as overlay:
            overlay.remove(reservation.waited_for())
            try:
                return all(self._put(instance, queued, only(nodes, name), trial) is None for queued, name in pairs)
            except AttemptLimitError:
                raise
            except SchedulerCoreError:
                return False
            finally:
                trial.undo(self._assumed)

    def _plan_in(self, request: PlanRequest, where: Where, *, is_greedy: bool) -> Plan | None:
        """Plan in one domain: use free room first if *is_greedy*, else empty nodes by descending capacity."""
        nodes, among = self._nodes, where.among
        assert among is not None
        fill = _Fill(nodes, self._put, request, GangTrial(where))
        with ColumnsOverlay(nodes) as overlay:
            try:
                if is_greedy:
                    fill.fill(among)
                if not fill.is_complete:
                    fill.empty_and_fill(overlay, among, is_greedy=is_greedy)
                if not fill.is_complete:
                    return None
                slots = tuple(
                    Slot(attempt.info, fill.classes[attempt.info.uid], attempt.node_name)
                    for attempt in fill.trial.placed
                )
                weights = {info.uid: _weight(info) for info in overlay.removed}
                return Plan(slots, frozenset(weights), sum(weights.values()), where.name)
            finally:
                fill.trial.undo(self._assumed)

    def _put(
        self, instance: FrameworkInstance, queued: QueuedPod, among: NDArray[np.bool_], trial: GangTrial
    ) -> Diagnosis | None:
        """Assume and reserve one member; return the diagnosis if no node is feasible, None otherwise."""
        self._steps.spend(steps_of_search(self._nodes))
        attempt = Attempt(queued, queued.info, instance, self._clock.now())
        attempt.among, attempt.among_reason = among, "node(s) are not in the plan"
        feasible = self._selection.find_feasible(attempt, everywhere=True)
        if not len(feasible.rows):
            return feasible.diagnosis
        if self._assumed.reserve_or_release(attempt, self._selection.select(attempt, feasible)) is not None:
            return feasible.diagnosis
        trial.placed.append(attempt)
        return None
