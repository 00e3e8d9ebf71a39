"""Whether the cluster as a whole has free what a group needs at the least.

Owns the sum over nodes. It is a quick way to refuse and no promise: what is free may lie on many nodes of which none
takes a member, so that a group which passes may fail at Filter yet.

Follows scheduler-plugins v0.34.7, ``pkg/coscheduling/core/core.go`` (``CheckClusterResource``); an overcommitted node
takes nothing off the sum here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod_group import PodGroup
from scheduler_core.model.pod_requests import PODS
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo


def gaps(group: PodGroup, nodes: NodeColumns, own: Sequence[PodInfo]) -> Mapping[str, int]:
    """What is missing.

    Args:
        group: What is asked for; a place for each of ``min_member`` pods comes on top.
        nodes: The columns.
        own: Members that have a node; what they take counts as free.

    Returns:
        Resource to what is short of it, cpu in milli, the rest in whole units; empty if nothing is.
    """
    asked = {**group.min_resources, PODS: group.min_member}
    missing = {name: amount - int(_free(name, nodes, own).sum()) for name, amount in asked.items()}
    return {name: gap for name, gap in missing.items() if gap > 0}


def _free(name: str, nodes: NodeColumns, own: Sequence[PodInfo]) -> NDArray[np.int64]:
    """int64 per row: what is free of a resource without ``own``; 0 where it is overcommitted or nothing exists."""
    free: NDArray[np.int64]
    column: int | None = None
    if name == PODS:
        free = nodes.allowed_pods - nodes.pod_count
    else:
        column = nodes.resources.find(name)
        if column is None or column >= len(nodes.allocatable):
            return np.zeros(nodes.size, dtype=np.int64)
        free = nodes.allocatable[column] - nodes.requested[column]
    for member in own:
        if member.row != NO_ROW:
            free[member.row] += 1 if column is None else dict(member.accounted).get(column, 0)
    free[~nodes.alive | (free < 0)] = 0
    return free
