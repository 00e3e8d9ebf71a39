"""Free amounts of a resource in the whole cluster.

Free amounts may be spread over many nodes, so a sufficient sum proves little; an insufficient sum proves that a group
cannot be scheduled. An overcommitted node counts as 0.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.model.pod_requests import PODS
from scheduler_core.snapshot.node_columns import NodeColumns

_HALF_BITS = 32
_HALF_MASK = 2**_HALF_BITS - 1


def free_amount(nodes: NodeColumns, name: str) -> int | None:
    """Return the free amount of a resource on all nodes together.

    Args:
        name: The resource; ``pods`` for the number of further pods.

    Returns:
        Millicores for CPU, whole units for the rest; 0 for a resource that no node has. Exact for any number of nodes.
        None for an extended resource of a DeviceClass: which devices are free depends on the request.
    """
    if nodes.devices.class_of_resource(name) is not None:
        return None
    if name == PODS:
        free = nodes.allowed_pods.astype(np.int64) - nodes.pod_count
    else:
        column = nodes.resources.find(name)
        if column is None or column >= len(nodes.allocatable):
            return 0
        free = nodes.allocatable[column] - nodes.requested[column]
    free[~nodes.alive | (free < 0)] = 0
    # The sum of two nodes may exceed int64, that of the halves cannot.
    return (int((free >> _HALF_BITS).sum()) << _HALF_BITS) + int((free & _HALF_MASK).sum())
