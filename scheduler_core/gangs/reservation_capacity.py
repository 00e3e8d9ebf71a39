"""Capacity reserved for one gang: the nodes of its members, and the room that is left for other pods there.

The room beside the gang is stored by row and recomputed for the changed rows of the change log. Pods in the way count
as gone, because the gang waits for them; pods that came later count. When the last pod in the way has ended, there is
thus room for the whole gang.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.gangs.reservation_conflicts import can_conflict, conflicting_rows
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.model.pod_requests import LARGEST_REQUEST
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_MAX_NAMES = 3


class Slot(Struct, frozen=True):
    """Planned node of one member.

    Attributes:
        info: The member of the plan.
        pod_class: Filter class of the member; another member of this class may use the slot.
        node_name: The node.
    """

    info: PodInfo
    pod_class: object
    node_name: str


class Plan(Struct, frozen=True):
    """Planned nodes of a quorum, usable when the pods in the way have ended.

    Attributes:
        slots: Slots in the order in which members are tried.
        in_the_way: UIDs of the pods that must end first.
        weight: Cost of waiting for them; lower is better.
        domain: The topology domain, such as ``zone=a``; "" for none.
    """

    slots: tuple[Slot, ...]
    in_the_way: frozenset[str]
    weight: int = 0
    domain: str = ""

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes, sorted, without duplicates."""
        return tuple(sorted({slot.node_name for slot in self.slots}))

    def __str__(self) -> str:
        """Return the domain, or the first nodes."""
        if self.domain:
            return self.domain
        names = self.node_names
        more = len(names) - _MAX_NAMES
        return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


class Reservation:
    """A plan whose nodes are reserved.

    Args:
        key: Key of the gang.
        group_uid: UID of the PodGroup.
        priority: Priority of the gang; pods of higher priority are not blocked.
        plan: The plan.
        nodes: The columns.

    Attributes:
        rejected: UIDs of pods that the reservation may have made unschedulable.
        max_rejected: Size of ``rejected`` at which pods that have left the queue are dropped.
        rows: Rows of its nodes, ascending, as of the last refresh.
    """

    def __init__(self, key: GroupKey, group_uid: str, priority: int, plan: Plan, nodes: NodeColumns) -> None:
        self.key = key
        self.group_uid = group_uid
        self.priority = priority
        self.plan = plan
        self.rejected: set[str] = set()
        self.max_rejected = 1024
        self._nodes = nodes
        self._names = plan.node_names
        self._as_planned: tuple[Node | None, ...] = ()
        self._members: dict[str, list[PodInfo]] = {name: [] for name in self._names}
        for slot in plan.slots:
            self._members[slot.node_name].append(slot.info)
        self._own = frozenset(slot.info.uid for slot in plan.slots)
        self._one_per_class = tuple({slot.pod_class: slot.info for slot in plan.slots}.values())
        self._can_conflict = any(map(can_conflict, self._one_per_class))
        self._lowest = min((slot.info.priority for slot in plan.slots), default=0)
        self._version = -1
        self._position = 0
        self._index: dict[int, int] = {}
        self.rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._free: NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)
        self._slots: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.confirm()

    # -- the plan -----------------------------------------------------------------------------------------------

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
        found = []
        for name in self._names:
            row = self._nodes.row_of(name)
            if row != NO_ROW:
                pods = self._nodes.pods[row]
                found += [info for uid, info in pods.items() if uid in self.plan.in_the_way]
        return found

    def fits_now(self) -> bool:
        """Return whether the gang has room now, by resources and number of pods alone."""
        return self._has_room(are_gone=False)

    def fits_then(self) -> bool:
        """Return whether the gang has room once all pods in the way have ended."""
        return self._has_room(are_gone=True)

    def _has_room(self, *, are_gone: bool) -> bool:
        nodes = self._nodes
        for name, members in self._members.items():
            row = nodes.row_of(name)
            if row == NO_ROW:
                return False
            leaving = self._leaving(row) if are_gone else []
            if nodes.pod_count[row] - len(leaving) + len(members) > nodes.allowed_pods[row]:
                return False
            needed = _sum(members)
            freed = _sum_accounted(leaving)
            for column, amount in needed.items():
                free = nodes.allocatable.item(column, row) - nodes.exact_requested(column, row)
                if free + freed.get(column, 0) < amount:
                    return False
        return True

    def _leaving(self, row: int) -> list[PodInfo]:
        return [info for uid, info in self._nodes.pods[row].items() if uid in self.plan.in_the_way]

    # -- pods that come later -----------------------------------------------------------------------------------

    def refused_rows(self, pod: PodInfo, nominator: NominatedPods) -> NDArray[np.intp]:
        """Return the rows where a pod of the same or lower priority would use capacity that the gang needs.

        Args:
            pod: The pod.
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
        if not (self._can_conflict or pod.terms.required_anti):
            return refused
        return np.union1d(refused, conflicting_rows(pod, self._members, self._one_per_class, self._nodes))

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
        """Recompute the room of the changed rows."""
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
            stale = self._index.keys() & changed
        for row in stale:
            self._fill(row, self._index[row])
        self._position, self._version = nodes.changes.position, nodes.version

    def _fill(self, row: int, position: int) -> None:
        nodes = self._nodes
        leaving, members = self._leaving(row), self._members[nodes.node_name(row)]
        free, freed, needed = self._free[:, position], _sum_accounted(leaving), _sum(members)
        np.subtract(nodes.allocatable[:, row], nodes.requested[:, row], out=free)
        for column in freed.keys() | needed.keys():
            left = nodes.allocatable.item(column, row) - nodes.exact_requested(column, row)
            left += freed.get(column, 0) - needed.get(column, 0)
            free[column] = max(left, -LARGEST_REQUEST)
        self._slots[position] = nodes.allowed_pods[row] - nodes.pod_count[row] + len(leaving) - len(members)


def _sum(pods: Iterable[PodInfo]) -> dict[int, int]:
    total: dict[int, int] = {}
    for info in pods:
        for column, amount in info.fit:
            total[column] = total.get(column, 0) + amount
    return total


def _sum_accounted(pods: Iterable[PodInfo]) -> dict[int, int]:
    total: dict[int, int] = {}
    for info in pods:
        for column, amount in info.accounted:
            total[column] = total.get(column, 0) + amount
    return total
