"""Capacity that is kept for one gang: which pod is to go where, and what else fits beside it.

Owns the arithmetic of one reservation. Nodes are known by name and read by row; what is left beside the gang is kept
per row and computed anew where the change log says that a row is another. Must not know how the plan was found, nor
when a reservation begins and ends.

Why pods in the way are counted as gone: the gang waits for them, so what they take is free when it comes. Everything
that came since counts, so that when the last of them has ended, there is room for the whole gang whatever was let in.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.cycle.reservation_peace import disturbed_rows, is_touchy
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.model.pod_requests import LARGEST_REQUEST
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_NAMES_TOLD = 3


class Slot(Struct, frozen=True):
    """Where one member is to go.

    Attributes:
        info: The member for whom it was found.
        kind: What members that may take its place equal it in.
        node_name: The node.
    """

    info: PodInfo
    kind: object
    node_name: str


class Plan(Struct, frozen=True):
    """Where a quorum goes when the pods in the way have ended.

    Attributes:
        slots: In the order in which members are to be placed.
        in_the_way: UIDs of the pods that are waited for.
        weight: What there is to wait for; of two plans the lighter is better.
        domain: The topology domain, such as ``zone=a``; "" for none.
    """

    slots: tuple[Slot, ...]
    in_the_way: frozenset[str]
    weight: int = 0
    domain: str = ""

    @property
    def node_names(self) -> tuple[str, ...]:
        """Its nodes, each once, by name."""
        return tuple(sorted({slot.node_name for slot in self.slots}))

    def __str__(self) -> str:
        """The domain, or the first nodes."""
        if self.domain:
            return self.domain
        names = self.node_names
        more = len(names) - _NAMES_TOLD
        return ", ".join(names[:_NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")


class Reservation:
    """A plan that is kept.

    Args:
        key: Whose it is.
        group_uid: UID of the PodGroup.
        priority: The gang's: pods of a higher one need not keep off.
        plan: Where its members go.
        nodes: The columns.

    Attributes:
        turned_away: UIDs of pods that were kept off.
        most_away: At how many of them those that are gone are dropped.
        rows: Rows of its nodes, ascending, as they were when a pod was last judged.
    """

    def __init__(self, key: GroupKey, group_uid: str, priority: int, plan: Plan, nodes: NodeColumns) -> None:
        self.key = key
        self.group_uid = group_uid
        self.priority = priority
        self.plan = plan
        self.turned_away: set[str] = set()
        self.most_away = 1024
        self._nodes = nodes
        self._names = plan.node_names
        self._as_planned: tuple[Node | None, ...] = ()
        self._members: dict[str, list[PodInfo]] = {name: [] for name in self._names}
        for slot in plan.slots:
            self._members[slot.node_name].append(slot.info)
        self._own = frozenset(slot.info.uid for slot in plan.slots)
        self._kinds = tuple({slot.kind: slot.info for slot in plan.slots}.values())
        self._is_touchy = any(map(is_touchy, self._kinds))
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
        """The plan holds for the nodes as they are now."""
        self._as_planned = tuple(self._node(name) for name in self._names)

    @property
    def is_doubtful(self) -> bool:
        """Whether a node was changed or is gone since the plan was last found to hold."""
        return any(self._node(name) is not known for name, known in zip(self._names, self._as_planned, strict=True))

    def _node(self, name: str) -> Node | None:
        row = self._nodes.row_of(name)
        return None if row == NO_ROW else self._nodes.nodes[row]

    def waited_for(self) -> list[PodInfo]:
        """The pods in the way that still run."""
        found = []
        for name in self._names:
            row = self._nodes.row_of(name)
            if row != NO_ROW:
                pods = self._nodes.pods[row]
                found += [info for uid, info in pods.items() if uid in self.plan.in_the_way]
        return found

    def fits_now(self) -> bool:
        """Whether there is room for the gang as things are, by resources and number of pods alone."""
        return self._has_room(are_gone=False)

    def fits_then(self) -> bool:
        """Whether there is room for it once all pods in the way have ended."""
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
        """Rows where a pod of no higher priority would take what the gang needs.

        Args:
            pod: The pod; it takes its requests beside those of the gang, if they go together.
            nominator: Promised nodes: what equals of the members were promised is theirs already.

        Returns:
            intp[k], ascending. Beside the reserved rows these are all rows of a topology domain in which the pod would
            keep members off by what it is.
        """
        self._refresh()
        free, slots = self._without_promised(pod, nominator)
        fits = slots >= 1
        for column, amount in pod.fit:
            if column < len(free):
                fits &= free[column] >= amount
        refused = self.rows[~fits]
        if not (self._is_touchy or pod.terms.required_anti):
            return refused
        return np.union1d(refused, disturbed_rows(pod, self._members, self._kinds, self._nodes))

    def _without_promised(self, pod: PodInfo, nominator: NominatedPods) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        free, slots = self._free, self._slots
        if not len(nominator):
            return free, slots
        promised = [
            (self._index[row], other)
            for name in nominator.nodes()
            if name in self._members and (row := self._nodes.row_of(name)) in self._index
            for other in nominator.nominated_pods(name)
            if other.uid != pod.uid and other.row == NO_ROW
            if other.priority >= self._lowest and other.uid not in self._own
        ]
        if promised:
            free, slots = free.copy(), slots.copy()
            for position, other in promised:
                slots[position] -= 1
                for column, amount in other.accounted:
                    free[column, position] = max(free.item(column, position) - amount, -LARGEST_REQUEST)
        return free, slots

    def _refresh(self) -> None:
        """Bring what is left per row up to date."""
        nodes = self._nodes
        changed = nodes.changes.since(self._position)
        if changed is None or self._version != nodes.version or len(self._free) != len(nodes.allocatable):
            self._version = nodes.version
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
        self._position = nodes.changes.position

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
