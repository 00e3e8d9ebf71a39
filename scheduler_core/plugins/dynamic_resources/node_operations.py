"""Nodes that can skip operations of drivers: allocated devices with ``skipNodeOperations`` need such a node.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go``
(``allocationResultRequiresDRAOptionalNodeOperations``), which checks allocations whether or not the gate is on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.status import Status, unresolvable
from scheduler_core.model.devices import OPTIONAL_NODE_OPERATIONS, AllocationResult, ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.snapshot.node_columns import NodeColumns


def skips_operations(allocation: AllocationResult) -> bool:
    """Return whether an allocation has a device for which the kubelet skips operations."""
    for result in allocation.devices.results:  # noqa: SIM110 - called for every allocated claim of every attempt
        if result.skip_node_operations:
            return True
    return False


def supports_skipping(node: Node) -> bool:
    """Return whether the kubelet of a node can skip operations."""
    return OPTIONAL_NODE_OPERATIONS in node.status.declared_features


def unsupporting_rows(nodes: NodeColumns, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which rows have a node that cannot skip operations, bool per row."""
    found = (node is not None and not supports_skipping(node) for node in map(nodes.nodes.__getitem__, rows.tolist()))
    return np.fromiter(found, dtype=np.bool_, count=len(rows))


def unsupported(claim: ResourceClaim) -> Status:
    """Return the rejection of a node that cannot skip operations of a claim whose allocation is not written yet."""
    return unresolvable(
        f"resource claim {claim.key} allocation requires {OPTIONAL_NODE_OPERATIONS} feature on the node"
    )
