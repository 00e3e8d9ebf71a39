"""Whether the cluster as a whole has free what a group needs at the least.

Follows scheduler-plugins v0.34.7, ``pkg/coscheduling/core/core.go`` (``CheckClusterResource``); an overcommitted node
takes nothing off the sum here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_core.model.pod_group import PodGroup
from scheduler_core.model.pod_requests import PODS
from scheduler_core.snapshot.free_amounts import free_amount
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


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
    missing = {name: amount - free_amount(nodes, name, own) for name, amount in asked.items()}
    return {name: gap for name, gap in missing.items() if gap > 0}
