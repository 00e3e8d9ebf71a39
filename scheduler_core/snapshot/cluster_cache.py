"""What the scheduler believes about nodes and placed pods, ahead of what the API server has told it.

Owns the state of every placed pod::

                  assume                  confirmed by a watch event
    (unknown) ───────────▶ ASSUMED ─────────────────────────────────▶ ADDED ──┐ update
        ▲                   │   │ bind answered                        ▲      └──┘
        │      forget       │   ▼                                      │
        ├───────────────────┘  BOUND ──────────────────────────────────┤
        │                       │  late: the pod is read, then         │
        │                       └─ confirmed or forgotten              │ add (bound by another)
        └──────────────────────────────── remove ──────────────────────┴───────────── (unknown)

Must not know queues or plugins. Confirming is idempotent and may come before the bind's own answer, since a watch is
often faster. An assumed pod never expires by time alone, as it did in older kube-schedulers: whoever asks for
:meth:`ClusterCache.overdue` reads the pod and settles it, because a wrong guess either way overcommits or leaks a node.

Pods on nodes that are not known (yet, or any more) are kept aside and are accounted when their node comes.
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.errors import CacheError
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import grants_alike
from scheduler_core.snapshot.bounds import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo


class Placement(Enum):
    """How sure a pod's placement is."""

    ASSUMED = auto()
    BOUND = auto()
    ADDED = auto()


class PlacedPod(Struct):
    """A pod on a node; ``bound_at`` is the clock's time at which its bind was answered."""

    info: PodInfo
    placement: Placement
    bound_at: float = 0.0


class ClusterCache:
    """Nodes and placed pods.

    Args:
        bounds: Most entries of the columns' tables.

    Attributes:
        columns: What cycles read.
    """

    def __init__(self, bounds: SnapshotBounds = DEFAULT_BOUNDS) -> None:
        self.columns = NodeColumns(bounds)
        self._placed: dict[str, PlacedPod] = {}
        self._unconfirmed: dict[str, PlacedPod] = {}
        self._homeless: dict[str, dict[str, PodInfo]] = {}

    # -- nodes --------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Add a node, or update one that is known; pods that were waiting for it are accounted.

        Raises:
            QuantityError: A quantity of the node cannot be read.
        """
        columns = self.columns
        name = node.metadata.name
        if columns.row_of(name) != NO_ROW:
            columns.update_node(node)
            return
        row = columns.add_node(node)
        for info in self._homeless.pop(name, {}).values():
            columns.add_pod(info, row)

    def update_node(self, node: Node) -> None:
        """Take over a changed node; one that is not known is added."""
        self.add_node(node)

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods are kept aside until they go too or it comes back."""
        if self.columns.row_of(name) == NO_ROW:
            return
        pods = self.columns.remove_node(name)
        if pods:
            self._homeless.setdefault(name, {}).update((info.uid, info) for info in pods)

    # -- placed pods --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._placed)

    @property
    def assumed_count(self) -> int:
        """Pods that no watch event has confirmed yet."""
        return len(self._unconfirmed)

    def get(self, uid: str) -> PlacedPod | None:
        """The placed pod of this UID."""
        return self._placed.get(uid)

    def placed_pods(self) -> list[PlacedPod]:
        """Every placed pod, assumed ones included."""
        return list(self._placed.values())

    def assume(self, info: PodInfo, node_name: str) -> None:
        """Account a pod on a node before it is bound.

        Raises:
            CacheError: The pod is placed already.
        """
        if info.uid in self._placed:
            raise CacheError(
                f"pod {info.key} is on node {self._placed[info.uid].info.node_name} already; forget it first"
            )
        placed = PlacedPod(info, Placement.ASSUMED)
        self._placed[info.uid] = self._unconfirmed[info.uid] = placed
        self._settle(info, node_name)

    def finish_binding(self, uid: str, now: float) -> None:
        """Note that the bind of an assumed pod was answered; nothing to note when a watch was faster."""
        placed = self._unconfirmed.get(uid)
        if placed is not None:
            placed.placement = Placement.BOUND
            placed.bound_at = now

    def forget(self, info: PodInfo) -> None:
        """Undo an assumption; nothing to undo when the pod is confirmed or gone meanwhile.

        The pod goes by its UID: whoever gives up may hold a pod that was compiled anew since it was assumed.
        """
        placed = self._unconfirmed.pop(info.uid, None)
        if placed is not None:
            del self._placed[info.uid]
            self._unsettle(placed.info)
            placed.info.node_name = ""

    def overdue(self, before: float) -> list[PodInfo]:
        """Pods whose bind was answered before the time ``before`` and that no watch event has confirmed."""
        return [
            placed.info
            for placed in self._unconfirmed.values()
            if placed.placement is Placement.BOUND and placed.bound_at < before
        ]

    def add_pod(self, pod: Pod) -> PodInfo:
        """Take up a pod that has a node, confirm one that was assumed, or update one that is known.

        A pod that was assumed elsewhere is moved: the API server is right.

        Raises:
            QuantityError: A quantity of the pod cannot be read.
        """
        uid = pod.metadata.uid
        placed = self._placed.get(uid)
        if placed is not None:
            self._unconfirmed.pop(uid, None)
            placed.placement = Placement.ADDED
            same_node = placed.info.node_name == pod.spec.node_name
            if same_node and _compiles_alike(placed.info.pod, pod):
                self._take_over(placed.info, pod)
                return placed.info
            info = self.columns.compile_pod(pod)
            if same_node and _counts_alike(placed.info, info):
                placed.info.pod = pod
                return placed.info
            self._unsettle(placed.info)
            placed.info = info
        else:
            info = self.columns.compile_pod(pod)
            self._placed[uid] = PlacedPod(info, Placement.ADDED)
        self._settle(info, pod.spec.node_name)
        return info

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Forget a placed pod that is gone; None if it was not known."""
        placed = self._placed.pop(uid, None)
        if placed is None:
            return None
        self._unconfirmed.pop(uid, None)
        self._unsettle(placed.info)
        return placed.info

    def _take_over(self, info: PodInfo, pod: Pod) -> None:
        """Let a compiled pod hold another version, which compiles alike."""
        if info.row != NO_ROW and info.pod.metadata.labels != pod.metadata.labels:
            self.columns.relabel_pod(info, pod)
        else:
            info.pod = pod

    def _settle(self, info: PodInfo, node_name: str) -> None:
        info.node_name = node_name
        row = self.columns.row_of(node_name)
        if row == NO_ROW:
            self._homeless.setdefault(node_name, {})[info.uid] = info
        else:
            self.columns.add_pod(info, row)

    def _unsettle(self, info: PodInfo) -> None:
        if info.row != NO_ROW:
            self.columns.remove_pod(info)
            return
        pods = self._homeless.get(info.node_name, {})
        pods.pop(info.uid, None)
        if not pods:
            self._homeless.pop(info.node_name, None)


def _compiles_alike(old: Pod, new: Pod) -> bool:
    """Whether nothing changed from which a pod is compiled: true of most updates, and cheaper than compiling.

    Neither node nor labels are compiled. By its bind a pod gets the one, and by the API server its topology's labels.
    """
    was, is_now = old.spec, new.spec
    if was.node_name != is_now.node_name:
        was = replace(was, node_name=is_now.node_name)
    return was == is_now and grants_alike(old, new) and _is_ending(old) == _is_ending(new)


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _stands_alike(old: Pod, new: Pod) -> bool:
    """Whether labels, and whether the pod is being deleted, are as they were."""
    return _is_ending(old) == _is_ending(new) and old.metadata.labels == new.metadata.labels


def _counts_alike(old: PodInfo, new: PodInfo) -> bool:
    """Whether a changed pod counts for its node just as it did."""
    return old.requests == new.requests and old.host_ports == new.host_ports and _stands_alike(old.pod, new.pod)
