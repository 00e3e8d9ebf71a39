"""Room that is held for workloads of Kueue, from their admission until their pods have nodes.

The nodes of the pods were found by a dry run before the pods existed. A pod belongs to a workload by a label with the
workload's UID, which the admission adds to it; each of its pods that gets a node takes the slot of one pod of its pod
set. Taken slots follow from the pods that nodes have now, so that hypothetical pods take slots, too, until they are
undone.

A pod of the workload may use any node, as long as the other slots keep their room. Other pods are blocked as by the
reservation of a gang; pods of other admitted workloads are blocked whatever their priority is, because another
controller has admitted the workload for this room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, held_key
from scheduler_core.placement.reservations import Plan, Reservation, Slot
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

WORKLOAD_LABEL = "bayplan.dev/admitted-workload"
"""Label of the pods of an admitted workload; its value is the UID of the workload."""
POD_SET_LABEL = "bayplan.dev/admitted-pod-set"
"""Label with the name of a pod's pod set in its workload."""


class HeldWorkload(Struct, frozen=True):
    """A workload for which room is held."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> GroupKey:
        return held_key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod that does not exist yet, and its node."""

    info: PodInfo
    pod_set: str
    node_name: str


class HeldRoom:
    """Room for the pods of one workload.

    Args:
        in_the_way: UIDs of the pods on these nodes that the workload evicts, or whose end it awaits.

    Attributes:
        settled: UIDs of pods of the workload that need no slot: their slots are given up for good.
    """

    def __init__(
        self, workload: HeldWorkload, pods: Sequence[HeldPod], in_the_way: frozenset[str], nodes: NodeColumns
    ) -> None:
        self.workload = workload
        self.settled: set[str] = set()
        slots = tuple(Slot(each.info, each.pod_set, each.node_name) for each in pods)
        priority = max((each.info.priority for each in pods), default=0)
        self.reservation = Reservation(workload.key, workload.uid, priority, Plan(slots, in_the_way), nodes)
        self._nodes = nodes
        self._free: dict[str, dict[str, list[Slot]]] = defaultdict(lambda: defaultdict(list))
        """Slots that no pod has taken, by pod set and node."""
        self._taken: dict[str, tuple[Slot, str]] = {}
        """Slots that pods have taken, by UID, each with the node of the pod."""
        for slot in slots:
            self._free[str(slot.pod_class)][slot.node_name].append(slot)

    @property
    def free(self) -> int:
        """Number of slots that no pod has taken."""
        return sum(len(slots) for by_node in self._free.values() for slots in by_node.values())

    def nodes_of(self, pod_set: str) -> set[str]:
        """Return the nodes with free slots of a pod set; those of all sets if the pod set is unknown."""
        sets = [self._free[pod_set]] if pod_set in self._free else list(self._free.values())
        return {name for by_node in sets for name, slots in by_node.items() if slots}

    def refused_rows(self, pod: PodInfo, nominator: NominatedPods) -> NDArray[np.intp]:
        """Return the rows where a pod of the workload would use the room of its other pods, intp[k] ascending."""
        refused = self.reservation.refused_rows(pod, nominator)
        if not len(refused):
            return refused
        own = (self._nodes.row_of(name) for name in self.nodes_of(_pod_set(pod.pod)))
        return np.setdiff1d(refused, np.array([row for row in own if row != NO_ROW], dtype=np.intp))

    def take(self, uid: str, pod: Pod, node_name: str) -> None:
        """Give a pod of the workload that got a node the slot there, or another one of its pod set."""
        if uid in self.settled or uid in self._taken:
            return
        pod_set = _pod_set(pod)
        sets = [self._free[pod_set]] if pod_set in self._free else list(self._free.values())
        here = (by_node[node_name] for by_node in sets if by_node.get(node_name))
        elsewhere = (slots for by_node in sets for slots in by_node.values() if slots)
        slots = next(here, None) or next(elsewhere, None)
        if slots:
            slot = slots.pop()
            self._taken[uid] = slot, node_name
            self.reservation.give_up(slot)

    def give_back(self, uid: str) -> None:
        """Free the slot of a pod that has lost its node."""
        slot, _ = self._taken.pop(uid, (None, ""))
        if slot is not None:
            self._free[str(slot.pod_class)][slot.node_name].append(slot)
            self.reservation.take_back(slot)

    def settle(self) -> bool:
        """Give up the slots of pods that have nodes for good; return whether one of them is on another node."""
        moved = any(slot.node_name != node_name for slot, node_name in self._taken.values())
        self.settled.update(self._taken)
        self._taken.clear()
        return moved


class HeldRooms:
    """Room that is held for workloads.

    Args:
        on_end: Called with a reservation that has ended or become smaller.
    """

    def __init__(
        self,
        nodes: NodeColumns,
        nominator: NominatedPods,
        table: dict[GroupKey, Reservation],
        on_end: Callable[[Reservation], None],
    ) -> None:
        self._nodes = nodes
        self._nominator = nominator
        self._table = table
        self._on_end = on_end
        self._by_uid: dict[str, HeldRoom] = {}
        self._keys: set[GroupKey] = set()
        self._position = -1
        self._on_row: dict[int, dict[str, str]] = {}
        """Pods of held workloads by row: UID of the workload by UID of the pod."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[HeldRoom]:
        return iter(tuple(self._by_uid.values()))

    def of(self, uid: str) -> HeldRoom | None:
        """Return the room of the workload with this UID, as it is now."""
        if uid in self._by_uid:
            self._refresh()
        return self._by_uid.get(uid)

    # -- beginning and end --------------------------------------------------------------------------------------

    def begin(self, held: HeldRoom, beside: Sequence[Reservation]) -> bool:
        """Hold room for the pods of a workload that have no nodes yet and for which nothing is held.

        Args:
            beside: Reservations beside which the room must exist.

        Returns:
            Whether the room exists, by resources and number of pods; if not, nothing is held.
        """
        workload = held.workload
        if not held.reservation.fits_then(beside):
            return False
        # Its pods that have nodes already need no slot.
        held.settled.update(uid for uid, _ in self._pods_of(workload))
        self._by_uid[workload.uid] = held
        self._keys.add(workload.key)
        self._table[workload.key] = held.reservation
        self._position = -1
        return True

    def _pods_of(self, workload: HeldWorkload) -> Iterator[tuple[str, PodInfo]]:
        for pods in self._nodes.pods:
            for uid, info in pods.items():
                if self._workload_of(info.pod) == workload.uid and info.pod.metadata.namespace == workload.namespace:
                    yield uid, info

    def end(self, uid: str) -> None:
        """End what is held for a workload, if anything, and activate the pods that it blocked."""
        ended = self._by_uid.pop(uid, None)
        if ended is None:
            return
        self._keys.discard(ended.workload.key)
        self._table.pop(ended.workload.key, None)
        self._on_end(ended.reservation)

    def settle(self) -> list[HeldWorkload]:
        """Give up slots of pods that have nodes, between two cycles.

        Returns:
            The workloads all of whose pods have nodes; their room has ended.
        """
        if not self._by_uid:
            return []
        self._refresh()
        complete = []
        for held in list(self._by_uid.values()):
            if held.settle():
                self._on_end(held.reservation)
            if not held.free:
                complete.append(held.workload)
                self.end(held.workload.uid)
        return complete

    # -- pods ---------------------------------------------------------------------------------------------------

    def blocking(self, pod: PodInfo, priority: int) -> list[tuple[GroupKey, NDArray[np.intp]]]:
        """Return the workloads whose room blocks nodes for a pod, each with the rows, intp[k] ascending, k > 0.

        Args:
            priority: Priority of the pod, or of its group.
        """
        self._refresh()
        uid, nominator, found = self._workload_of(pod.pod), self._nominator, []
        for held in self._by_uid.values():
            if held.workload.uid == uid and held.workload.namespace == pod.pod.metadata.namespace:
                rows = held.refused_rows(pod, nominator)
            elif uid or held.reservation.priority >= priority:
                rows = held.reservation.refused_rows(pod, nominator)
            else:
                continue
            if len(rows):
                found.append((held.workload.key, rows))
        return found

    @staticmethod
    def _workload_of(pod: Pod) -> str:
        return pod.metadata.labels.get(WORKLOAD_LABEL, "")

    def _refresh(self) -> None:
        """Let the pods that nodes have now take slots, and free the slots of others."""
        nodes = self._nodes
        changed = None if self._position < 0 else nodes.changes.since(self._position)
        self._position = nodes.changes.position
        rows: Iterable[int] = range(len(nodes.pods)) if changed is None else set(changed)
        gone: list[tuple[str, str]] = []
        come: list[tuple[str, str, PodInfo]] = []
        for row in rows:
            before = self._on_row.get(row, {})
            now = {
                uid: workload
                for uid, info in nodes.pods[row].items()
                if (workload := self._workload_of(info.pod)) in self._by_uid
                and info.pod.metadata.namespace == self._by_uid[workload].workload.namespace
            }
            gone += (each for each in before.items() if each[0] not in now)
            come += ((uid, workload, nodes.pods[row][uid]) for uid, workload in now.items())
            if now:
                self._on_row[row] = now
            else:
                self._on_row.pop(row, None)
        for uid, workload in gone:
            if workload in self._by_uid:
                self._by_uid[workload].give_back(uid)
        for uid, workload, info in come:
            self._by_uid[workload].take(uid, info.pod, nodes.node_name(info.row))


def _pod_set(pod: Pod) -> str:
    return pod.metadata.labels.get(POD_SET_LABEL, "")
