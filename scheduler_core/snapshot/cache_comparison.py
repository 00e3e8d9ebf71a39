"""How a cache differs from one that was just made of what the API server has.

Owns what counts as a difference: nodes, placed pods, and every sum that cycles read. Must not know where either cache
comes from. Why sums are compared beside objects: a pod counted twice leaves every object right and the node wrong.

Follows kube-scheduler v1.36.3 (``backend/cache/debugger``) in purpose; that one compares names only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.model.node import Node
from scheduler_core.snapshot.cluster_cache import ClusterCache, Placement
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW


class CacheDifference(Struct, frozen=True, order=True):
    """One thing that the cache has otherwise.

    Attributes:
        kind: Node or Pod.
        name: The node, or the pod as ``namespace/name``.
        what: In which way, in words.
    """

    kind: str
    name: str
    what: str

    def __str__(self) -> str:
        """Kind, name and what differs."""
        return f"{self.kind} {self.name}: {self.what}"


def differences(cache: ClusterCache, told: ClusterCache) -> list[CacheDifference]:
    """Compare a cache with the truth.

    Args:
        cache: The one in use; it is only read.
        told: Made of the API server's nodes and placed pods. Pods that the cache assumes and that it does not have are
            added to it, since an assumption is no difference.

    Returns:
        Sorted by kind and name; empty when both agree.
    """
    for placed in cache.placed_pods():
        info = placed.info
        if placed.placement is not Placement.ADDED and told.get(info.uid) is None:
            told.assume(told.columns.compile_pod(info.pod), info.node_name)
    return sorted((*_nodes(cache.columns, told.columns), *_pods(cache, told)))


def _pods(cache: ClusterCache, told: ClusterCache) -> Iterator[CacheDifference]:
    known = {placed.info.uid: placed.info for placed in cache.placed_pods()}
    for placed in told.placed_pods():
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


def _nodes(ours: NodeColumns, told: NodeColumns) -> Iterator[CacheDifference]:
    names = {name for name in ours.names if name is not None}
    true_names = {name for name in told.names if name is not None}
    for name in true_names - names:
        yield CacheDifference("Node", name, "is not in the cache")
    for name in names - true_names:
        yield CacheDifference("Node", name, "is in the cache; the API server has no such node")
    for name in names & true_names:
        for what in _of_node(ours, told, ours.row_of(name), told.row_of(name)):
            yield CacheDifference("Node", name, what)


def _of_node(ours: NodeColumns, told: NodeColumns, row: int, true_row: int) -> Iterator[str]:
    assert NO_ROW not in (row, true_row)
    for title, mine, true in (
        ("allocatable", ours.allocatable[:, row], told.allocatable[:, true_row]),
        ("requested", ours.requested[:, row], told.requested[:, true_row]),
    ):
        amounts, true_amounts = _amounts(ours, mine), _amounts(told, true)
        for resource in sorted(amounts.keys() | true_amounts.keys()):
            amount, true_amount = amounts.get(resource, 0), true_amounts.get(resource, 0)
            if amount != true_amount:
                yield f"{title} {resource} is {true_amount}, the cache has {amount}"
    for title, value, true_value in (
        ("nonzero requested cpu", ours.nonzero_requested[0, row], told.nonzero_requested[0, true_row]),
        ("nonzero requested memory", ours.nonzero_requested[1, row], told.nonzero_requested[1, true_row]),
        ("pods", ours.pod_count[row], told.pod_count[true_row]),
        ("allowed pods", ours.allowed_pods[row], told.allowed_pods[true_row]),
        ("unschedulable", ours.unschedulable[row], told.unschedulable[true_row]),
    ):
        if value != true_value:
            yield f"{title} is {true_value}, the cache has {value}"
    node, true_node = ours.nodes[row], told.nodes[true_row]
    if node is not None and true_node is not None:
        yield from _of_objects(node, true_node)


def _amounts(columns: NodeColumns, values: NDArray[np.int64]) -> dict[str, int]:
    return {columns.resources.keys[column]: int(value) for column, value in enumerate(values.tolist()) if value}


def _of_objects(node: Node, true: Node) -> Iterator[str]:
    for title, value, true_value in (
        ("labels", node.metadata.labels, true.metadata.labels),
        ("taints", node.spec.taints, true.spec.taints),
        ("images", node.status.images, true.status.images),
    ):
        if value != true_value:
            yield f"{title} are not those of the API server"
