"""Where a gang's members would go if the pods that run there had ended.

Owns the search for a plan, the try of a plan, and the question whether a plan still holds. Nodes are emptied one by
one on the live columns, the least work to wait for first, and members go through the profile's whole path there; all of
it is undone before anyone else looks. Must not know when a plan is wanted, nor what is done with it.

Why free room is filled before any node is emptied: nobody has to be waited for there, so the wait is for the rest.
Pods that do not end by themselves are no room to wait for: those of DaemonSets, static pods and the gang's own members
stay; those that restart always may be ended by somebody, so that other nodes are emptied first.

Extenders are not asked: they know nothing of nodes that are only thought to be empty.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.gang_domains import candidate_domains, member_room
from scheduler_core.cycle.gang_trial import ANYWHERE, GangTrial, Where, undo
from scheduler_core.cycle.node_selection import find_feasible, select_node
from scheduler_core.cycle.reservation import Plan, Reservation, Slot
from scheduler_core.cycle.scheduling import release, reserve
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.queueing.gang import Gang
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

log = logging.getLogger(__name__)

_STAYING_OWNERS = frozenset(("DaemonSet", "Node"))
_RESTARTS = "Always"
_WEIGHT_OF_ENDLESS = 100
"""So many pods that end by themselves are rather waited for than one that restarts always."""
_MOST_PLACES = 4
"""Domains, those that lack least first, for which a whole plan is made; the lightest is taken."""
_MOST_IN_VAIN = 200
"""Nodes in a row that are emptied for nothing before the search ends."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Who is to be planned for.

    Attributes:
        gang: The gang.
        instance: The profile's revision.
        members: Its members, in the order in which they are to be placed.
        needed: How many of them must be.
        placed: Members that have a node already.
    """

    gang: Gang
    instance: FrameworkInstance
    members: Sequence[QueuedPod]
    needed: int
    placed: Sequence[PodInfo] = ()


class EmptiedNodes:
    """Running pods taken off the live columns until :meth:`restore`.

    Args:
        nodes: The columns.
        staying: UIDs of pods that are not waited for.
    """

    def __init__(self, nodes: NodeColumns, staying: set[str]) -> None:
        self._nodes = nodes
        self._staying = staying
        self._taken: dict[int, tuple[dict[str, PodInfo], list[PodInfo]]] = {}

    def empty(self, row: int) -> None:
        """Take off a row what is expected to end."""
        self.take(row, self.leaving(row))

    def take(self, row: int, pods: Sequence[PodInfo]) -> None:
        """Take pods off a row."""
        if row not in self._taken:
            self._taken[row] = (dict(self._nodes.pods[row]), list(pods))
            for info in pods:
                self._nodes.remove_pod(info)

    def leaving(self, row: int) -> list[PodInfo]:
        """The pods of a row that are expected to end."""
        return [info for info in self._nodes.pods[row].values() if not self._stays(info)]

    def _stays(self, info: PodInfo) -> bool:
        owners = info.pod.metadata.owner_references
        return info.uid in self._staying or any(owner.kind in _STAYING_OWNERS for owner in owners)

    def refill(self, row: int) -> None:
        """Put back what was taken off a row, in its place among the row's pods."""
        order, pods = self._taken.pop(row)
        for info in pods:
            self._nodes.add_pod(info, row)
        here = self._nodes.pods[row]
        ordered = {uid: here[uid] for uid in (*order, *here) if uid in here}
        here.clear()
        here.update(ordered)

    def restore(self) -> None:
        """Put back everything."""
        for row in reversed(list(self._taken)):
            self.refill(row)

    @property
    def taken(self) -> list[PodInfo]:
        """All pods that are off now."""
        return [info for _, pods in self._taken.values() for info in pods]


class _Fill:
    """Members being put on rows.

    Attributes:
        trial: What is held.
        left: Members that have no node yet, by kind.
        diagnoses: Why they have none, by kind, as last found.
    """

    def __init__(self, trial: GangTrial, wish: Wish) -> None:
        self.trial = trial
        self.left: dict[object, deque[QueuedPod]] = {}
        for queued in wish.members:
            self.left.setdefault(filter_class(wish.instance, queued.info), deque()).append(queued)
        self.kinds = {queued.uid: kind for kind, alike in self.left.items() for queued in alike}
        self.diagnoses: dict[object, Diagnosis] = {}

    def fill(self, context: CycleContext, wish: Wish, among: NDArray[np.bool_]) -> bool:
        """Place as many members as are needed and fit, kind by kind in the order of their first; whether any did."""
        before = len(self.trial.placed)
        self.diagnoses = {}
        for kind, alike in self.left.items():
            while alike and len(self.trial.placed) < wish.needed:
                diagnosis = _put(context, wish.instance, alike[0], among, self.trial)
                if diagnosis is not None:
                    self.diagnoses[kind] = diagnosis
                    break
                alike.popleft()
        return len(self.trial.placed) > before

    def waiting(self) -> list[PodInfo]:
        """One member of each kind of which some are left."""
        return [alike[0].info for alike in self.left.values() if alike]


def _put(
    context: CycleContext,
    instance: FrameworkInstance,
    queued: QueuedPod,
    among: NDArray[np.bool_],
    trial: GangTrial,
) -> Diagnosis | None:
    """Assume and reserve one member; why it fits nowhere, None if it does."""
    attempt = Attempt(queued, queued.info, instance, context.clock.now())
    attempt.among, attempt.among_reason = among, "node(s) are not in the plan"
    feasible = find_feasible(context, attempt, everywhere=True)
    if not len(feasible.rows):
        return feasible.diagnosis
    try:
        failure = reserve(context, attempt, select_node(context, attempt, feasible))
    except BaseException:
        release(context, attempt)
        raise
    if failure is not None:
        release(context, attempt)
        return feasible.diagnosis
    trial.placed.append(attempt)
    return None


def find_plan(context: CycleContext, wish: Wish, allowed: NDArray[np.bool_]) -> Plan | None:
    """Plan where a quorum goes, with the least work to wait for.

    Args:
        context: The shared parts; everything is as it was when this returns.
        wish: Who is to be planned for.
        allowed: bool per row, which nodes may be used.

    Returns:
        The plan; None if the quorum does not fit even when all pods that end have ended, or if a plugin failed.
    """
    best: Plan | None = None
    try:
        for where in _places(context, wish, allowed):
            for is_greedy in (True, False):
                plan = _plan_in(context, wish, where, is_greedy=is_greedy)
                if plan is not None:
                    best = plan if best is None or plan.weight < best.weight else best
                    break
    except SchedulerCoreError as error:
        log.warning(
            "no capacity can be planned for gang %s: %s", wish.gang.key, error, extra={"podgroup": str(wish.gang.key)}
        )
    return best


def _places(context: CycleContext, wish: Wish, allowed: NDArray[np.bool_]) -> list[Where]:
    """Where a plan may succeed, what lacks least first; equals in the order in which a gang would try them."""
    assert wish.gang.group is not None
    nodes, topology = context.cache.columns, wish.gang.group.topology
    infos = [queued.info for queued in wish.members]
    now, then = member_room(nodes, infos), emptied_room(nodes, infos)
    wheres: list[Where] = []
    if topology is not None:
        found = candidate_domains(nodes, topology, infos, wish.needed, wish.placed)
        wheres = [Where(domain.among & allowed, "", str(domain)) for domain in found]
    if topology is None or not topology.is_required:
        wheres.append(Where(allowed))
    ranked: list[tuple[int, Where]] = []
    for where in wheres:
        among = where.among
        if among is not None and then[among].sum() >= wish.needed:
            ranked.append((max(0, wish.needed - int(now[among].sum())), where))
    ranked.sort(key=lambda pair: pair[0])
    return [where for _, where in ranked[:_MOST_PLACES]]


def emptied_room(nodes: NodeColumns, members: Sequence[PodInfo]) -> NDArray[np.int64]:
    """int64 per row: how many members of the smallest size a node would hold without any pod; never too few."""
    smallest: dict[int, int] = dict(members[0].fit) if members else {}
    for info in members:
        amounts = dict(info.fit)
        smallest = {column: min(amount, amounts[column]) for column, amount in smallest.items() if column in amounts}
    room = nodes.allowed_pods.astype(np.int64)
    for column, amount in smallest.items():
        room = np.minimum(room, nodes.allocatable[column] // amount)
    return np.where(nodes.alive, room, 0)


def _plan_in(context: CycleContext, wish: Wish, where: Where, *, is_greedy: bool) -> Plan | None:
    """Plan in one place: with what is free there first, or from the largest nodes on alone."""
    nodes, among = context.cache.columns, where.among
    assert among is not None
    emptied = EmptiedNodes(nodes, wish.gang.placed)
    fill = _Fill(GangTrial(where), wish)
    weights: dict[str, int] = {}
    try:
        if is_greedy:
            fill.fill(context, wish, among)
        if len(fill.trial.placed) < wish.needed:
            _empty_and_fill(context, wish, among, (emptied, fill, is_greedy))
        if len(fill.trial.placed) < wish.needed:
            return None
        slots = tuple(
            Slot(attempt.info, fill.kinds[attempt.info.uid], attempt.node_name) for attempt in fill.trial.placed
        )
        weights = {info.uid: _weight(info) for info in emptied.taken}
        return Plan(slots, frozenset(weights), sum(weights.values()), where.name)
    finally:
        undo(context, fill.trial)
        emptied.restore()


def _weight(info: PodInfo) -> int:
    return _WEIGHT_OF_ENDLESS if info.pod.spec.restart_policy == _RESTARTS else 1


def _empty_and_fill(
    context: CycleContext, wish: Wish, among: NDArray[np.bool_], parts: tuple[EmptiedNodes, _Fill, bool]
) -> None:
    emptied, fill, is_greedy = parts
    one = np.zeros_like(among)
    in_vain = 0
    for row in _rows_in_order(context.cache.columns, fill, among, (emptied, is_greedy)):
        if len(fill.trial.placed) >= wish.needed or in_vain >= _MOST_IN_VAIN:
            break
        emptied.empty(row)
        one[row] = True
        if fill.fill(context, wish, one):
            in_vain = 0
        else:
            emptied.refill(row)
            in_vain += 1
        one[row] = False


def _rows_in_order(
    nodes: NodeColumns, fill: _Fill, among: NDArray[np.bool_], how: tuple[EmptiedNodes, bool]
) -> list[int]:
    """Rows that may help when they are emptied, the least work for each member that it makes room for first."""
    emptied, is_greedy = how
    infos = fill.waiting()
    now, then = member_room(nodes, infos), emptied_room(nodes, infos)
    hopeful = np.zeros_like(among) if is_greedy else among.copy()
    for diagnosis in fill.diagnoses.values():
        if diagnosis.pre_filter.is_success:
            hopeful[diagnosis.rows_with(Code.UNSCHEDULABLE)] = True
        elif diagnosis.pre_filter.code is Code.UNSCHEDULABLE:
            hopeful |= nodes.alive
    hopeful &= among & (then > 0)

    def order(row: int) -> tuple[bool, float, int, int]:
        gained = int(then[row] - now[row])
        work = sum(map(_weight, emptied.leaving(row))) / max(1, gained)
        name_hash = int(nodes.name_hashes[row])
        if is_greedy:
            return gained <= 0, work, -gained, name_hash
        return False, -float(then[row]), gained, name_hash

    return sorted(np.flatnonzero(hopeful).tolist(), key=order)


# -- a plan that was made ------------------------------------------------------------------------------------------


def _is_together(plan: Plan, nodes: NodeColumns, wish: Wish) -> bool:
    """Whether all nodes of a plan are in one domain, where one is asked for."""
    assert wish.gang.group is not None
    topology = wish.gang.group.topology
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


def assignment(context: CycleContext, reservation: Reservation, wish: Wish) -> list[tuple[QueuedPod, str]] | None:
    """Who goes where by a plan: each to its own place, newcomers to those of members like them that are gone.

    Returns:
        As many members with their nodes as are needed; None if the plan has no places for them, or if its nodes are
        not what the group's topology asks for any more.
    """
    if not _is_together(reservation.plan, context.cache.columns, wish):
        return None
    waiting = {queued.uid: queued for queued in wish.members}
    newcomers = dict(waiting)
    for slot in reservation.plan.slots:
        newcomers.pop(slot.info.uid, None)
    by_kind: dict[object, list[QueuedPod]] = {}
    for queued in newcomers.values():
        by_kind.setdefault(filter_class(wish.instance, queued.info), []).append(queued)
    pairs: list[tuple[QueuedPod, str]] = []
    for slot in reservation.plan.slots:
        member = waiting.get(slot.info.uid)
        if member is None and by_kind.get(slot.kind):
            member = by_kind[slot.kind].pop(0)
        if member is not None:
            pairs.append((member, slot.node_name))
    return pairs[: wish.needed] if len(pairs) >= wish.needed else None


def still_holds(context: CycleContext, wish: Wish, reservation: Reservation) -> bool:
    """Whether all members would fit by the plan if the pods in the way had ended; nothing is changed."""
    pairs = assignment(context, reservation, wish)
    if pairs is None or not reservation.fits_then():
        return False
    nodes = context.cache.columns
    emptied, trial = EmptiedNodes(nodes, set()), GangTrial(ANYWHERE)
    by_row: dict[int, list[PodInfo]] = {}
    for info in reservation.waited_for():
        by_row.setdefault(info.row, []).append(info)
    try:
        for row, pods in by_row.items():
            emptied.take(row, pods)
        return all(_put(context, wish.instance, queued, only(nodes, name), trial) is None for queued, name in pairs)
    except SchedulerCoreError:
        return False
    finally:
        undo(context, trial)
        emptied.restore()


def only(nodes: NodeColumns, name: str) -> NDArray[np.bool_]:
    """The node of this name alone, bool per row; no row if there is none."""
    mask = np.zeros(nodes.size, dtype=np.bool_)
    row = nodes.row_of(name)
    if row != NO_ROW:
        mask[row] = True
    return mask
