"""Cache of nodes and scheduled pods, ahead of what the API server has reported.

States of a pod::

                  assume                  confirmed by a watch event
    (unknown) ───────────▶ ASSUMED ─────────────────────────────────▶ ADDED ──┐ update
        ▲                   │   │ bind succeeded                       ▲      └──┘
        │      forget       │   ▼                                      │
        ├───────────────────┘  BOUND ──────────────────────────────────┤
        │                       │  overdue: the pod is read, then      │
        │                       └─ confirmed or forgotten              │ add (bound by another scheduler)
        └──────────────────────────────── remove ──────────────────────┴───────────── (unknown)

Confirming is idempotent and may happen before the response to the bind, because a watch is often faster. An assumed pod
never expires by time alone, as in older kube-schedulers: the caller of :meth:`ClusterCache.overdue` reads the pod from
the API server, because a wrong guess would overcommit the node or leak its resources.

Pods on unknown nodes are stored separately and counted when their node is added.

:func:`differences` compares nodes, scheduled pods, and every sum that cycles read. Sums are compared in addition to
objects, because a pod that is counted twice leaves every object right and the node wrong.

It has the same purpose as in kube-scheduler v1.37.1 (``backend/cache/debugger``), which compares names only.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.errors import CacheError
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import same_granted_resources
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.interning import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo


class PodState(Enum):
    """State of a pod in the cache."""

    ASSUMED = auto()
    BOUND = auto()
    ADDED = auto()


class CachedPod(Struct):
    """A scheduled pod; ``bound_at`` is the time of the response to its bind, in the clock's seconds."""

    info: PodInfo
    state: PodState
    bound_at: float = 0.0


class ClusterCache:
    """Nodes and scheduled pods.

    Args:
        devices: Index of claims and devices; None for an empty one with the default feature gates.

    Attributes:
        placed: All scheduled pods by UID; only for reading.
    """

    def __init__(self, bounds: SnapshotBounds = DEFAULT_BOUNDS, devices: DeviceIndex | None = None) -> None:
        self.columns = NodeColumns(bounds, devices)
        self.placed: dict[str, CachedPod] = {}
        self._unconfirmed: dict[str, CachedPod] = {}
        self._without_node = self.columns.pods_without_row

    # -- nodes --------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Add or update a node; pods that were added before it are counted.

        Raises:
            QuantityError: A quantity of the node is invalid.
        """
        columns = self.columns
        name = node.metadata.name
        row = columns.update_node(node) if columns.row_of(name) != NO_ROW else columns.add_node(node)
        pods = self._without_node.get(name)
        while pods:
            columns.add_pod(next(iter(pods.values())), row)
            del pods[next(iter(pods))]
        self._without_node.pop(name, None)

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods are stored separately until they are removed or the node returns."""
        row = self.columns.row_of(name)
        if row == NO_ROW:
            return
        # Copied first: a pod that is on no row must be here, whatever raises.
        pods = dict(self.columns.pods[row])
        self.columns.remove_node(name)
        if pods:
            self._without_node.setdefault(name, {}).update(pods)

    def pods_of_unknown_node(self, name: str) -> list[PodInfo]:
        """Return the pods that are counted as soon as the node of this name is added."""
        return list(self._without_node.get(name, {}).values())

    # -- placed pods --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.placed)

    @property
    def assumed_count(self) -> int:
        """Number of pods that no watch event has confirmed yet."""
        return len(self._unconfirmed)

    def get(self, uid: str) -> CachedPod | None:
        """Return the scheduled pod of this UID, None if there is none."""
        return self.placed.get(uid)

    def placed_pods(self) -> list[CachedPod]:
        """Return all scheduled pods, including assumed pods."""
        return list(self.placed.values())

    def assume(self, info: PodInfo, node_name: str) -> None:
        """Count a pod on a node before it is bound; raise CacheError if the pod is scheduled already."""
        if info.uid in self.placed:
            raise CacheError(
                f"pod {info.key} is on node {self.placed[info.uid].info.node_name} already; forget it first"
            )
        placed = CachedPod(info, PodState.ASSUMED)
        self.placed[info.uid] = self._unconfirmed[info.uid] = placed
        try:
            self._attach(info, node_name)
        except BaseException:
            self.forget(info)
            raise

    def finish_binding(self, uid: str, now: float) -> None:
        """Record that an assumed pod was bound; no effect if a watch event was faster."""
        placed = self._unconfirmed.get(uid)
        if placed is not None:
            placed.state = PodState.BOUND
            placed.bound_at = now

    def forget(self, info: PodInfo) -> None:
        """Remove an assumed pod; no effect if it was confirmed or removed.

        The pod is found by its UID, because the caller's PodInfo may be newer than the assumed one.
        """
        placed = self._unconfirmed.get(info.uid)
        if placed is not None:
            # Detached first: a pod whose removal raised is still known, and can be forgotten again.
            self._detach(placed.info)
            del self.placed[info.uid], self._unconfirmed[info.uid]
            placed.info.node_name = ""
            placed.info.is_cancelled = False

    def overdue(self, before: float) -> list[PodInfo]:
        """Return the pods that were bound before the time ``before`` and that no watch event has confirmed."""
        return [
            placed.info
            for placed in self._unconfirmed.values()
            if placed.state is PodState.BOUND and placed.bound_at < before
        ]

    def add_pod(self, pod: Pod) -> PodInfo:
        """Add a pod that has a node, confirm an assumed pod, or update a known pod.

        A pod that was assumed on another node is moved, because the API server is right.

        Raises:
            QuantityError: A quantity of the pod is invalid.
        """
        uid = pod.metadata.uid
        placed = self.placed.get(uid)
        old: PodInfo | None = None
        if placed is not None:
            self._unconfirmed.pop(uid, None)
            placed.state = PodState.ADDED
            placed.info.is_cancelled = False
            same_node = placed.info.node_name == pod.spec.node_name
            if same_node and _compile_equally(placed.info.pod, pod):
                self._replace_equal(placed.info, pod)
                return placed.info
            info = self.columns.compile_pod(pod)
            if same_node and _count_equally(placed.info, info):
                placed.info.pod = pod
                return placed.info
            old = placed.info
            self._detach(old)
            placed.info = info
        else:
            info = self.columns.compile_pod(pod)
            placed = self.placed[uid] = CachedPod(info, PodState.ADDED)
        try:
            self._attach(info, pod.spec.node_name)
        except BaseException:
            del self.placed[uid]
            if old is not None:
                # Its last version counts until this one is added again.
                self._attach(old, old.node_name)
                placed.info, self.placed[uid] = old, placed
            raise
        return info

    def confirm(self, placed: CachedPod, pod: Pod) -> bool:
        """Confirm an assumed pod by a version with no more than what a bind writes; return False for others."""
        info = placed.info
        if placed.state is PodState.ADDED or info.node_name != pod.spec.node_name:
            return False
        if not _compile_equally(info.pod, pod):
            return False
        self._unconfirmed.pop(info.uid, None)
        placed.state = PodState.ADDED
        placed.info.is_cancelled = False
        # As _replace_equal, which is not called, because every bound pod passes here.
        if info.row != NO_ROW and info.pod.metadata.labels != pod.metadata.labels:
            self.columns.relabel_pod(info, pod)
        else:
            info.pod = pod
        return True

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a scheduled pod that was deleted; None if it was not known."""
        placed = self.placed.get(uid)
        if placed is None:
            return None
        self._detach(placed.info)
        del self.placed[uid]
        self._unconfirmed.pop(uid, None)
        return placed.info

    def replace_pod(self, info: PodInfo, pod: Pod) -> None:
        """Replace the pod of a scheduled pod's PodInfo by a version that is being deleted."""
        node_name, old = info.node_name, info.pod
        self._detach(info)
        info.pod = pod
        try:
            self._attach(info, node_name)
        except BaseException:
            info.pod = old
            self._attach(info, node_name)
            raise

    def _replace_equal(self, info: PodInfo, pod: Pod) -> None:
        """Replace the pod of a PodInfo by another version that compiles to the same."""
        if info.row != NO_ROW and info.pod.metadata.labels != pod.metadata.labels:
            self.columns.relabel_pod(info, pod)
        else:
            info.pod = pod

    def _attach(self, info: PodInfo, node_name: str) -> None:
        info.node_name = node_name
        row = self.columns.row_by_name.get(node_name, NO_ROW)
        if row == NO_ROW:
            self._without_node.setdefault(node_name, {})[info.uid] = info
        else:
            self.columns.add_pod(info, row)

    def _detach(self, info: PodInfo) -> None:
        if info.row != NO_ROW:
            self.columns.remove_pod(info)
            return
        pods = self._without_node.get(info.node_name, {})
        pods.pop(info.uid, None)
        if not pods:
            self._without_node.pop(info.node_name, None)


def _compile_equally(old: Pod, new: Pod) -> bool:
    """Return whether all compiled fields are equal, which is true for most updates and cheaper than compiling.

    Node name and labels are not compiled. The bind sets the one, and the API server adds topology labels.
    """
    was, is_now = old.spec, new.spec
    if was.node_name != is_now.node_name:
        was = replace(was, node_name=is_now.node_name)
    if was != is_now or (old.metadata.deletion_timestamp is None) != (new.metadata.deletion_timestamp is None):
        return False
    return same_granted_resources(old, new)


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _count_equally(old: PodInfo, new: PodInfo) -> bool:
    """Return whether a changed pod counts for its node as before."""
    return (
        old.requests == new.requests
        and old.host_ports == new.host_ports
        and _is_ending(old.pod) == _is_ending(new.pod)
        and old.pod.metadata.labels == new.pod.metadata.labels
    )


class CacheDifference(Struct, frozen=True, order=True):
    """A difference between the cache and the API server.

    Attributes:
        kind: Node or Pod.
    """

    kind: str
    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.what}"


def differences(cache: ClusterCache, expected: ClusterCache) -> list[CacheDifference]:
    """Return the differences of a cache from one built of the API server's objects, sorted by kind and name.

    Pods that only ``cache`` assumes are added to *expected*, because an assumed pod is not a difference.
    """
    for placed in cache.placed_pods():
        info = placed.info
        if placed.state is not PodState.ADDED and expected.get(info.uid) is None:
            expected.assume(expected.columns.compile_pod(info.pod), info.node_name)
    return sorted((*_nodes(cache.columns, expected.columns), *_pods(cache, expected)))


def _pods(cache: ClusterCache, expected: ClusterCache) -> Iterator[CacheDifference]:
    known = {placed.info.uid: placed.info for placed in cache.placed_pods()}
    for placed in expected.placed_pods():
        info = placed.info
        ours = known.pop(info.uid, None)
        if ours is None:
            yield CacheDifference("Pod", info.key, f"is bound to node {info.node_name} and not in the cache")
        elif ours.node_name != info.node_name:
            what = f"is bound to node {info.node_name}, the cache has it on {ours.node_name}"
            yield CacheDifference("Pod", info.key, what)
    for info in known.values():
        what = f"is in the cache on node {info.node_name}; the API server has no such running pod"
        yield CacheDifference("Pod", info.key, what)


def _nodes(ours: NodeColumns, expected: NodeColumns) -> Iterator[CacheDifference]:
    names = {name for name in ours.names if name is not None}
    expected_names = {name for name in expected.names if name is not None}
    for name in expected_names - names:
        yield CacheDifference("Node", name, "is not in the cache")
    for name in names - expected_names:
        yield CacheDifference("Node", name, "is in the cache; the API server has no such node")
    for name in names & expected_names:
        for what in _of_node(ours, expected, ours.row_of(name), expected.row_of(name)):
            yield CacheDifference("Node", name, what)


def _of_node(ours: NodeColumns, expected: NodeColumns, row: int, expected_row: int) -> Iterator[str]:
    assert NO_ROW not in (row, expected_row)
    for title, actual, wanted in (
        ("allocatable", ours.allocatable[:, row], expected.allocatable[:, expected_row]),
        ("requested", ours.requested[:, row], expected.requested[:, expected_row]),
    ):
        amounts, expected_amounts = _amounts(ours, actual), _amounts(expected, wanted)
        for resource in sorted(amounts.keys() | expected_amounts.keys()):
            amount, expected_amount = amounts.get(resource, 0), expected_amounts.get(resource, 0)
            if amount != expected_amount:
                yield f"{title} {resource} is {expected_amount}, the cache has {amount}"
    for title, value, expected_value in (
        ("nonzero requested cpu", ours.nonzero_requested[0, row], expected.nonzero_requested[0, expected_row]),
        ("nonzero requested memory", ours.nonzero_requested[1, row], expected.nonzero_requested[1, expected_row]),
        ("pods", ours.pod_count[row], expected.pod_count[expected_row]),
        ("allowed pods", ours.allowed_pods[row], expected.allowed_pods[expected_row]),
        ("unschedulable", ours.unschedulable[row], expected.unschedulable[expected_row]),
    ):
        if value != expected_value:
            yield f"{title} is {expected_value}, the cache has {value}"
    node, expected_node = ours.nodes[row], expected.nodes[expected_row]
    if node is not None and expected_node is not None:
        yield from _of_objects(node, expected_node)


def _amounts(columns: NodeColumns, values: NDArray[np.int64]) -> dict[str, int]:
    return {columns.resources.keys[column]: int(value) for column, value in enumerate(values.tolist()) if value}


def _of_objects(node: Node, expected: Node) -> Iterator[str]:
    for title, value, expected_value in (
        ("labels", node.metadata.labels, expected.metadata.labels),
        ("taints", node.spec.taints, expected.spec.taints),
        ("images", node.status.images, expected.status.images),
    ):
        if value != expected_value:
            yield f"{title} are not those of the API server"
