"""Whether the cluster as a whole has enough free resources for a group's ``minResources``.

Follows scheduler-plugins v0.34.7, ``pkg/coscheduling/core/core.go`` (``CheckClusterResource``); here an overcommitted
node does not reduce the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_core.model.pod_group import PodGroup
from scheduler_core.model.pod_requests import PODS
from scheduler_core.snapshot.free_amounts import free_amount
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo


def missing_resources(group: PodGroup, nodes: NodeColumns, own: Sequence[PodInfo]) -> Mapping[str, int]:
    """Return the missing resources.

    Args:
        group: The group; one pod slot for each of ``min_member`` pods is added to its ``minResources``.
        nodes: The columns.
        own: Members that have a node; their requests count as free.

    Returns:
        Missing amounts by resource, CPU in millicores, the rest in whole units; empty if nothing is missing.
    """
    asked = {**group.min_resources, PODS: group.min_member}
    with ColumnsOverlay(nodes) as overlay:
        overlay.remove(own)
        missing = {name: amount - free_amount(nodes, name) for name, amount in asked.items()}
    return {name: amount_missing for name, amount_missing in missing.items() if amount_missing > 0}
