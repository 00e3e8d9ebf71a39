"""Comparison of a cache with one that was just built from the API server's objects.

Compares nodes, scheduled pods, and every sum that cycles read. Sums are compared in addition to objects, because a pod
that is counted twice leaves every object right and the node wrong.

Same purpose as in kube-scheduler v1.37.1 (``backend/cache/debugger``), which compares names only.
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
    """A difference between the cache and the API server.

    Attributes:
        kind: Node or Pod.
        name: The node, or the pod as ``namespace/name``.
        what: Description of the difference.
    """

    kind: str
    name: str
    what: str

    def __str__(self) -> str:
        """Return kind, name and description."""
        return f"{self.kind} {self.name}: {self.what}"


def differences(cache: ClusterCache, expected: ClusterCache) -> list[CacheDifference]:
    """Compare a cache with the API server's state.

    Args:
        expected: A cache built from the API server's nodes and scheduled pods. Pods that only ``cache`` assumes are
            added to it, because an assumed pod is not a difference.

    Returns:
        The differences, sorted by kind and name; empty if there are none.
    """
    for placed in cache.placed_pods():
        info = placed.info
        if placed.placement is not Placement.ADDED and expected.get(info.uid) is None:
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
