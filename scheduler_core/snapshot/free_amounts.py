"""Amounts of a resource that are free in the whole cluster.

What is free may be spread over many nodes, so a sum that suffices proves little; a sum that does not suffice proves
that a group cannot be placed. An overcommitted node has nothing free, and takes nothing from what other nodes have.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler_core.model.pod_requests import PODS
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_HALF_BITS = 32
_HALF_MASK = 2**_HALF_BITS - 1


def free_amount(nodes: NodeColumns, name: str, leaving: Iterable[PodInfo] = ()) -> int:
    """Return how much of a resource is free on all nodes together.

    Args:
        nodes: The columns.
        name: The resource; ``pods`` for the number of further pods.
        leaving: Pods whose requests count as free on the node that they are on.

    Returns:
        Milli-CPU for cpu, whole units for the rest; 0 for a resource that no node has. Exact however many nodes there
        are.
    """
    column: int | None = None
    if name == PODS:
        free = nodes.allowed_pods.astype(np.int64) - nodes.pod_count
    else:
        column = nodes.resources.find(name)
        if column is None or column >= len(nodes.allocatable):
            return 0
        free = nodes.allocatable[column] - nodes.requested[column]
    returned: dict[int, int] = {}
    for pod in leaving:
        if pod.row != NO_ROW:
            amount = 1 if column is None else dict(pod.accounted).get(column, 0)
            returned[pod.row] = returned.get(pod.row, 0) + amount
    for row, amount in returned.items():
        if column is None:
            free[row] += amount
        else:
            # The columns clamp the sum that the pods are subtracted from.
            free[row] = max(0, nodes.allocatable.item(column, row) - nodes.exact_requested(column, row) + amount)
    free[~nodes.alive | (free < 0)] = 0
    # The sum of two nodes may exceed int64, that of the halves cannot.
    return (int((free >> _HALF_BITS).sum()) << _HALF_BITS) + int((free & _HALF_MASK).sum())
