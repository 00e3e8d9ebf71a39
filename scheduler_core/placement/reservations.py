"""Reservations for gangs: planned nodes of a quorum for the time after the pods that run there have ended.

To make a plan, nodes are emptied one by one, those with the least work to wait for first, and members are placed there.
Extenders are not called, because they cannot see hypothetically empty nodes.

The room beside the gang is stored by row and recomputed for the changed rows of the change log.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.errors import SchedulerCoreError, SelectorError
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.model.devices import AllocationResult
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.model.pod_requests import LARGEST_REQUEST
from scheduler_core.model.pod_volumes import NO_VOLUMES
from scheduler_core.model.selectors import AffinityTerm, compile_label_selector
from scheduler_core.placement.engine import Policy, Steps, Verdict, as_given, at_once, place
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.subsets import Domain, candidate_domains, exempted_resources, member_room
from scheduler_core.placement.worlds import SearchWorld, Seat, SeatedWorld, seated_in
from scheduler_core.runtime.equivalence import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo, ports_conflict

log = logging.getLogger(__name__)

_MAX_NAMES = 3
_STAYING_OWNERS = frozenset(("DaemonSet", "Node"))
_RESTARTS = "Always"
_WEIGHT_OF_ENDLESS = 100
"""Weight of a pod with ``restartPolicy: Always``; other pods have weight 1."""
_MAX_DOMAINS = 4
"""Domains for which a complete plan is computed, those that lack least first; the lightest plan is used."""
_MAX_UNHELPFUL = 200
"""Consecutive nodes whose emptying places no member, after which the search ends."""


class Slot(Struct, frozen=True):
    """Planned node of one member.

    Attributes:
        pod_class: Filter class of the member; another member of this class may use the slot.
        devices: Devices that are held with the slot.
    """

    info: PodInfo
    pod_class: object
    node_name: str
    devices: tuple[AllocationResult, ...] = ()


class Plan(Struct, frozen=True):
    """Planned nodes of a quorum, usable when the pods in the way have ended.

    Attributes:
        slots: Slots in the order in which members are tried.
        in_the_way: UIDs of the pods that must end first.
        domain: The topology domain, such as ``zone=a``; "" for none.
    """

    slots: tuple[Slot, ...]
    in_the_way: frozenset[str]
    domain: str = ""

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes, sorted, without duplicates."""
        return tuple(sorted({slot.node_name for slot in self.slots}))

    def __str__(self) -> str:
        if self.domain:
            return self.domain
        names = self.node_names
        more = len(names) - _MAX_NAMES
        return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


class ReservedNodes(Struct, frozen=True):
    """A plan with UIDs of the members in place of pods; fields as in :class:`Plan`.

    Attributes:
        weight: Cost of waiting for the pods in the way; lower is better.
    """

    slots: tuple[tuple[str, str], ...]
    in_the_way: tuple[str, ...]
    weight: int
    domain: str

    def plan(self, nodes: NodeColumns, request: PlacementRequest) -> Plan | None:
        """Return the plan; None if a node or a member is gone."""
        infos = {queued.uid: queued.info for queued in request.members}
        if any(uid not in infos or nodes.row_of(node_name) == NO_ROW for uid, node_name in self.slots):
            return None
        slots = tuple(
            Slot(infos[uid], filter_class(request.instance, infos[uid]), node_name) for uid, node_name in self.slots
        )
        return Plan(slots, frozenset(self.in_the_way), self.domain)


class Reservation:
    """A plan whose nodes are reserved.

    Args:
        priority: Priority of the gang; pods of higher priority are not blocked.

    Attributes:
        rejected: UIDs of pods that the reservation may have made unschedulable, as keys in the order in which they are
            activated; the order of a set differs between processes.
        number: Number of the reservation in the order in which they began.
        max_rejected: Size of ``rejected`` at which pods that have left the queue are dropped.
        rows: Rows of its nodes, ascending, as of the last refresh.
        can_conflict: Whether pods without terms of their own can conflict with its members.
    """

    def __init__(self, key: GroupKey, group_uid: str, priority: int, plan: Plan, nodes: NodeColumns) -> None:
        self.key = key
        self.group_uid = group_uid
        self.priority = priority
        self.plan = plan
        self.number = 0
        self.rejected: dict[str, None] = {}
        self.max_rejected = 1024
        self._nodes = nodes
        self._names = plan.node_names
        self._as_planned: tuple[Node | None, ...] = ()
        self._members: dict[str, list[PodInfo]] = {name: [] for name in self._names}
        for slot in plan.slots:
            self._members[slot.node_name].append(slot.info)
        self._own = frozenset(slot.info.uid for slot in plan.slots)
        self._one_per_class = tuple({slot.pod_class: slot.info for slot in plan.slots}.values())
        self.can_conflict = any(map(can_conflict, self._one_per_class))
        self._resized: set[str] = set()
        """Nodes on which slots were given up or taken back since the last refresh."""
        self._lowest = min((slot.info.priority for slot in plan.slots), default=0)
        self._version = -1
        self._position = 0
        self._index: dict[int, int] = {}
        self.rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._free: NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)
        self._slots: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.confirm()

    # -- the plan -----------------------------------------------------------------------------------------------

    @property
    def has_devices(self) -> bool:
        """Whether devices are held with slots."""
        return any(slot.devices for slot in self.plan.slots)

    def confirm(self) -> None:
        """Record that the plan is feasible on the current nodes."""
        self._as_planned = tuple(self._node(name) for name in self._names)

    @property
    def is_doubtful(self) -> bool:
        """Whether a node was changed or deleted since :meth:`confirm`."""
        return any(self._node(name) is not known for name, known in zip(self._names, self._as_planned, strict=True))

    def _node(self, name: str) -> Node | None:
        row = self._nodes.row_of(name)
        return None if row == NO_ROW else self._nodes.nodes[row]

    def waited_for(self) -> list[PodInfo]:
        """Return the pods in the way that still run."""
        rows = (self._nodes.row_of(name) for name in self._names)
        return [info for row in rows if row != NO_ROW for info in self.leaving(row)]

    def fits_now(self) -> bool:
        """Return whether the gang has room now, by resources and number of pods alone."""
        return self._has_room(are_gone=False)

    def fits_then(self, beside: Sequence[Reservation] = ()) -> bool:
        """Return whether the gang has room once all pods in the way have ended, beside that of other reservations."""
        return self._has_room(are_gone=True, beside=beside)

    def give_up(self, slot: Slot) -> None:
        """Release the room of a slot, because its member has a node."""
        members = self._members[slot.node_name]
        del members[next(number for number, info in enumerate(members) if info is slot.info)]
        self._resized.add(slot.node_name)

    def take_back(self, slot: Slot) -> None:
        """Reserve the room of a slot that was given up."""
        self._members[slot.node_name].append(slot.info)
        self._resized.add(slot.node_name)

    def _has_room(self, *, are_gone: bool, beside: Sequence[Reservation] = ()) -> bool:
        nodes, names = self._nodes, self._members
        near = defaultdict[str, list[PodInfo]](list)
        for other in beside:
            for name in other.names_among(names):
                near[name] += other.members_on(name)
        gone = set[str]().union(*(each.plan.in_the_way for each in (self, *beside))) if are_gone else ()
        for name, own in names.items():
            if not own:
                continue
            row = nodes.row_of(name)
            if row == NO_ROW:
                return False
            leaving = [info for uid, info in nodes.pods[row].items() if uid in gone] if gone else []
            if not room_beside(nodes, row, [*own, *near[name]], leaving).fits:
                return False
        return True

    def names_among(self, names: Container[str]) -> list[str]:
        """Return those of some nodes on which members have slots now."""
        return [name for name, here in self._members.items() if here and name in names]

    def members_on(self, node_name: str) -> Sequence[PodInfo]:
        """Return the members that have slots on a node."""
        return self._members.get(node_name, ())

    def leaving(self, row: int) -> list[PodInfo]:
        """Return the pods in the way on a row that still run."""
        return [info for uid, info in self._nodes.pods[row].items() if uid in self.plan.in_the_way]

    # -- pods that come later -----------------------------------------------------------------------------------

    @property
    def room(self) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """The rows; free amounts beside the members there, int64[resource, row]; and free pod slots, int64[row]."""
        self._refresh()
        return self.rows, self._free, self._slots

    def refused_rows(self, pod: PodInfo, nominator: NominatedPods) -> NDArray[np.intp]:
        """Return the rows where a pod of the same or lower priority would use capacity that the gang needs.

        Args:
            nominator: Nominations; those of pods of at least the members' priority count on the reserved nodes.

        Returns:
            intp[k], ascending: reserved rows without room for the pod, and all rows of topology domains in which it
            would conflict with members by ports, volumes, claims or affinity.
        """
        self._refresh()
        free, slots = self._without_nominated(pod, nominator)
        fits = slots >= 1
        for column, amount in pod.fit:
            if column < len(free):
                fits &= free[column] >= amount
        refused = self.rows[~fits]
        if not (self.can_conflict or pod.terms.required_anti):
            return refused
        members = {name: here for name, here in self._members.items() if here}
        return np.union1d(refused, conflicting_rows(pod, members, self._one_per_class, self._nodes))

    def _without_nominated(self, pod: PodInfo, nominator: NominatedPods) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        free, slots = self._free, self._slots
        if not len(nominator):
            return free, slots
        nominated = [
            (self._index[row], other)
            for name in nominator.nodes()
            if name in self._members and (row := self._nodes.row_of(name)) in self._index
            for other in nominator.nominated_pods(name)
            if other.uid != pod.uid and other.row == NO_ROW
            if other.priority >= self._lowest and other.uid not in self._own
        ]
        if nominated:
            free, slots = free.copy(), slots.copy()
            for position, other in nominated:
                slots[position] -= 1
                for column, amount in other.accounted:
                    free[column, position] = max(free.item(column, position) - amount, -LARGEST_REQUEST)
        return free, slots

    def _refresh(self) -> None:
        nodes = self._nodes
        changed = nodes.changes.since(self._position)
        if changed is None or self._version != nodes.version or len(self._free) != len(nodes.allocatable):
            # If this raises, everything is computed again.
            self._version = -1
            rows = sorted(row for name in self._names if (row := nodes.row_of(name)) != NO_ROW)
            self.rows = np.array(rows, dtype=np.intp)
            self._index = {row: position for position, row in enumerate(rows)}
            self._free = np.zeros((len(nodes.allocatable), len(rows)), dtype=np.int64)
            self._slots = np.zeros(len(rows), dtype=np.int64)
            stale: Iterable[int] = rows
        else:
            resized = (nodes.row_of(name) for name in self._resized)
            stale = self._index.keys() & {*changed, *resized}
        self._resized.clear()
        for row in stale:
            self._fill(row, self._index[row])
        self._position, self._version = nodes.changes.position, nodes.version

    def _fill(self, row: int, position: int) -> None:
        # Pods in the way count as gone, because the gang waits for them, and pods that came later count. So there is
        # room for the whole gang when the last pod in the way has ended.
        members = self._members[self._nodes.node_name(row)]
        self._free[:, position], self._slots[position], _ = room_beside(self._nodes, row, members, self.leaving(row))


class FreeRoom(NamedTuple):
    """What a node has free beside pods: int64 per column, and pod slots; and whether these pods themselves fit."""

    amounts: NDArray[np.int64]
    slots: int
    fits: bool


def room_beside(nodes: NodeColumns, row: int, members: Collection[PodInfo], leaving: Collection[PodInfo]) -> FreeRoom:
    """Return what a node has free beside pods when others have left."""
    freed, needed = _total(info.accounted for info in leaving), _total(info.fit for info in members)
    free: NDArray[np.int64] = nodes.allocatable[:, row] - nodes.requested[:, row]
    slots = nodes.allowed_pods.item(row) - nodes.pod_count.item(row) + len(leaving) - len(members)
    fits = slots >= 0
    for column in freed.keys() | needed.keys():
        left = nodes.allocatable.item(column, row) - nodes.exact_requested(column, row)
        left += freed.get(column, 0) - needed.get(column, 0)
        free[column] = max(left, -LARGEST_REQUEST)
        fits = fits and (left >= 0 or column not in needed)
    return FreeRoom(free, slots, fits)


def _total(amounts: Iterable[Iterable[tuple[int, int]]]) -> dict[int, int]:
    """Return the sums by resource column."""
    total: dict[int, int] = {}
    for column, amount in chain.from_iterable(amounts):
        total[column] = total.get(column, 0) + amount
    return total


# -- plans --------------------------------------------------------------------------------------------------------


class EmptiedWorld(SearchWorld):
    """The nodes after pods that run there have ended; nodes are emptied while members are placed."""

    def __init__(self, search: SearchWorld, request: PlacementRequest) -> None:
        super().__init__(search.cache, search.assumed, search.selection, search.clock, search.steps)
        self._request = request
        self._needed = request.needed
        self._classes = {queued.uid: filter_class(request.instance, queued.info) for queued in request.members}
        self._left: dict[object, deque[QueuedPod]] = {}
        """Members without a node, by pod class."""
        self._diagnoses: dict[object, Diagnosis] = {}
        """Last diagnosis of the pod classes that have no feasible node."""
        self._overlay = ColumnsOverlay(self.nodes)

    def undo(self, attempts: Sequence[Attempt]) -> None:
        """Release members and restore all pods."""
        super().undo(attempts)
        self._overlay.undo()

    def fill(
        self, instance: FrameworkInstance, found: Placement, members: Sequence[QueuedPod], needed: int
    ) -> Steps[None]:
        """Assume the quorum: use free room first, then empty nodes; or else empty nodes by descending capacity."""
        yield from ()
        del instance
        among = found.where.mask
        assert among is not None
        # The second pass may wait for more pods, but finds a place for members that need most of a large node.
        for is_greedy in (True, False):
            self._left = {}
            for queued in members:
                self._left.setdefault(self._classes[queued.uid], deque()).append(queued)
            self._diagnoses = {}
            self._overlay.__enter__()
            if is_greedy:
                # Free room first, so that the gang waits for as few pods as possible.
                self._use(found, among)
            if len(found.placed) < needed:
                self._empty_and_use(found, among, is_greedy=is_greedy)
            if len(found.placed) >= needed:
                return
            self.undo(found.placed)
            found.placed.clear()

    def _use(self, found: Placement, among: NDArray[np.bool_]) -> bool:
        """Assume up to the needed number of members, class by class; return whether any was feasible."""
        before = len(found.placed)
        self._diagnoses = {}
        where = Where(among, "node(s) are not in the plan")
        for pod_class, members in self._left.items():
            while members and len(found.placed) < self._needed:
                attempt = self.begin(self._request.instance, members[0], where)
                feasible = self.find(attempt)
                if not len(feasible.rows) or self.assume(attempt, feasible) is not None:
                    self._diagnoses[pod_class] = feasible.diagnosis
                    break
                found.placed.append(attempt)
                members.popleft()
        return len(found.placed) > before

    def _empty_and_use(self, found: Placement, among: NDArray[np.bool_], *, is_greedy: bool) -> None:
        """Empty rows one by one until the plan is complete; rows where no member becomes feasible are restored."""
        one = np.zeros_like(among)
        unhelpful = 0
        for row in self._rows_in_order(among, is_greedy=is_greedy):
            if len(found.placed) >= self._needed or unhelpful >= _MAX_UNHELPFUL:
                break
            removed = self._overlay.remove(_ending(self.nodes, row, self._request.gang.placed))
            one[row] = True
            if self._use(found, one):
                unhelpful = 0
            else:
                # A plan must not wait for pods whose end helps no member.
                self._overlay.restore(removed)
                unhelpful += 1
            one[row] = False

    def _rows_in_order(self, among: NDArray[np.bool_], *, is_greedy: bool) -> list[int]:
        """Return the rows to empty, by ascending work for each member that gets room."""
        nodes, members = self.nodes, self._request.gang.placed
        # One member of each class that has members without a node.
        infos = [waiting[0].info for waiting in self._left.values() if waiting]
        exempts = exempted_resources(self._request.instance)
        now = member_room(nodes, infos, exempts=exempts)
        then = member_room(nodes, infos, when_empty=True, exempts=exempts)
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

    def plan(self, found: Placement) -> ReservedNodes:
        slots = tuple((attempt.info.uid, attempt.node_name) for attempt in found.placed)
        weights = {info.uid: _weight(info) for info in self._overlay.removed}
        return ReservedNodes(slots, tuple(sorted(weights)), sum(weights.values()), found.where.name)


def find_plan(search: SearchWorld, request: PlacementRequest, allowed: NDArray[np.bool_]) -> ReservedNodes | None:
    """Return the plan for a quorum that waits for the least work; changes nothing.

    Args:
        allowed: bool per row, the nodes that may be used.

    Returns:
        The plan; None if the quorum is infeasible even after all pods that can end have ended, or if a plugin failed.

    Raises:
        AttemptLimitError: The search took more steps than it may.
    """
    world, best = EmptiedWorld(search, request), list[ReservedNodes]()

    def accept(found: Placement) -> Verdict:
        best.append(world.plan(found))
        return Verdict.STORED

    spaces = [(where, 0) for where in _search_spaces(world.cache, request, allowed)]
    try:
        _, rejection = at_once(place(request, world, Policy(accept, lambda *_: spaces, as_given)))
    except SchedulerCoreError as error:
        text = "no capacity can be planned for gang %s: %s"
        log.warning(text, request.gang.key, error, extra={"podgroup": str(request.gang.key)})
    else:
        if rejection.limit is not None:
            raise rejection.limit
    return min(best, key=lambda plan: plan.weight, default=None)


def is_still_valid(search: SearchWorld, request: PlacementRequest, reservation: Reservation) -> bool:
    """Return whether a plan is feasible once the pods in the way have ended; changes nothing.

    Raises:
        AttemptLimitError: The search took more steps than it may.
    """
    seats = assignment(search.nodes, reservation, request)
    if seats is None or not reservation.fits_then():
        return False
    with search.assumed.undone(), ColumnsOverlay(search.nodes) as overlay:
        overlay.remove(reservation.waited_for())
        try:
            found, rejection = at_once(place(request, SeatedWorld(search, seats), seated_in("")))
        except SchedulerCoreError:
            return False
    if rejection.limit is not None:
        raise rejection.limit
    return found is not None


def _is_together(plan: Plan, nodes: NodeColumns, request: PlacementRequest) -> bool:
    """Return whether all nodes of a plan are in one domain, if the group requires one."""
    assert request.gang.group is not None
    topology = request.gang.group.topology
    # Labels of nodes, and the group's topology, may have changed since the plan was made.
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


def assignment(nodes: NodeColumns, reservation: Reservation, request: PlacementRequest) -> list[Seat] | None:
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
    pairs: list[Seat] = []
    for slot in reservation.plan.slots:
        member = waiting.get(slot.info.uid)
        if member is None and by_class.get(slot.pod_class):
            # A controller has replaced the member of the plan; filters return the same for its replacement.
            member = by_class[slot.pod_class].pop(0)
        if member is not None:
            pairs.append((member, slot.node_name))
    return pairs[: request.needed] if len(pairs) >= request.needed else None


def _search_spaces(cache: ClusterCache, request: PlacementRequest, allowed: NDArray[np.bool_]) -> list[Where]:
    """Return where a plan may succeed, by ascending lack of room, then in the order in which a gang tries domains."""
    assert request.gang.group is not None
    nodes, topology = cache.columns, request.gang.group.topology
    infos = [queued.info for queued in request.members]
    exempts = exempted_resources(request.instance)
    now = member_room(nodes, infos, exempts=exempts)
    then = member_room(nodes, infos, when_empty=True, exempts=exempts)
    ranked: list[tuple[int, int, Domain | None]] = []

    def rank(rows: NDArray[np.intp], domain: Domain | None) -> None:
        if then[rows].sum() >= request.needed:
            ranked.append((max(0, request.needed - int(now[rows].sum())), len(ranked), domain))

    if topology is not None:
        placed = request.placed(cache)
        for domain in candidate_domains(nodes, topology, infos, request.needed, placed=placed, exempts=exempts):
            rows = domain.subset.rows
            rank(rows[allowed[rows]], domain)
    if topology is None or not topology.is_required:
        rank(np.flatnonzero(allowed), None)
    # Where the least room is missing, the fewest pods must end.
    nearest = [domain for _, _, domain in sorted(ranked, key=lambda each: each[:2])[:_MAX_DOMAINS]]
    return [Where(allowed) if each is None else Where(each.subset.mask & allowed, "", str(each)) for each in nearest]


def _ending(nodes: NodeColumns, row: int, members: Container[str]) -> list[PodInfo]:
    """Return the pods of a row that are expected to end: not members, and not pods that belong to the node."""
    return [
        info
        for uid, info in nodes.pods[row].items()
        if uid not in members and not any(owner.kind in _STAYING_OWNERS for owner in info.pod.metadata.owner_references)
    ]


def _weight(info: PodInfo) -> int:
    # Such a pod ends only if a user deletes it, so nodes without them are emptied first.
    return _WEIGHT_OF_ENDLESS if info.pod.spec.restart_policy == _RESTARTS else 1


# -- conflicts --------------------------------------------------------------------------------------------------------


# In doubt a pod conflicts: otherwise the gang might have to wait for it. Affinity of members to other pods cannot be
# violated by a new pod.


_REQUIRED = "DoNotSchedule"


def can_conflict(member: PodInfo) -> bool:
    """Return whether pods without terms of their own can conflict with a member."""
    spec = member.pod.spec
    return bool(
        member.host_ports
        or member.volumes is not NO_VOLUMES
        or spec.resource_claims
        or member.terms.required_anti
        or spec.topology_spread_constraints
    )


def conflicting_rows(
    pod: PodInfo, members: Mapping[str, Sequence[PodInfo]], classes: Sequence[PodInfo], nodes: NodeColumns
) -> NDArray[np.intp]:
    """Return the rows where a pod would make members infeasible.

    Args:
        classes: One member of each pod class; filters return the same for the others.

    Returns:
        intp[k], ascending, without duplicates.
    """
    found: set[int] = set()
    if pod.host_ports or pod.volumes is not NO_VOLUMES or pod.pod.spec.resource_claims:
        for name, here in members.items():
            row = nodes.row_of(name)
            if row != NO_ROW and any(_dispute(pod, member) for member in here):
                found.add(row)
    keys = {key for member in classes for key in _disputed_domains(pod, member, nodes)}
    # A pod anywhere in the domain of a member is in its way.
    for key in keys:
        found.update(_rows_of_domains(key, members, nodes))
    return np.array(sorted(found), dtype=np.intp)


def _dispute(pod: PodInfo, member: PodInfo) -> bool:
    """Return whether two pods may conflict on one node."""
    if pod.host_ports and member.host_ports and ports_conflict(pod.host_ports, member.host_ports):
        return True
    if pod.volumes is not NO_VOLUMES and member.volumes is not NO_VOLUMES:
        return True
    return bool(pod.pod.spec.resource_claims and member.pod.spec.resource_claims)


def _disputed_domains(pod: PodInfo, member: PodInfo, nodes: NodeColumns) -> Iterator[str]:
    """Yield the topology keys in whose domains the pod and the member conflict."""
    for one, other in ((pod, member), (member, pod)):
        if one.terms.required_anti:
            yield from (term.topology_key for term in one.terms.required_anti if _means(term, other, nodes))
    meta = pod.pod.metadata
    if meta.namespace == member.pod.metadata.namespace:
        for constraint in member.pod.spec.topology_spread_constraints:
            if constraint.when_unsatisfiable == _REQUIRED:
                try:
                    counts = compile_label_selector(constraint.label_selector).matches(meta.labels)
                except SelectorError:
                    continue
                if counts:
                    yield constraint.topology_key


def _means(term: AffinityTerm, other: PodInfo, nodes: NodeColumns) -> bool:
    meta = other.pod.metadata
    return term.query.matches(meta.namespace, meta.labels, nodes.namespaces.get(meta.namespace))


def _rows_of_domains(key: str, members: Mapping[str, Sequence[PodInfo]], nodes: NodeColumns) -> list[int]:
    ids = nodes.label_column(key).ids
    rows = [row for name in members if (row := nodes.row_of(name)) != NO_ROW and ids[row] >= 0]
    return np.flatnonzero(np.isin(ids, ids[rows]) & nodes.alive).tolist() if rows else []
