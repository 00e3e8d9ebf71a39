"""The resources of a score, laid out for the kernels: what NodeResourcesFit and NodeResourcesBalancedAllocation share.

Owns which resources take part on which nodes. Must not know how they are scored. An extended (scalar) resource that the
pod does not ask for takes no part, since a node is no better or worse a place for having it.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/noderesources/resource_allocation.go``, without its
devices of dynamic resource allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_core.kernels.allocation import ResourceUse
from scheduler_core.kernels.allocation_row import RowUse
from scheduler_core.model.pod_requests import is_scalar_resource
from scheduler_core.snapshot.interning import CPU_COLUMN, MEMORY_COLUMN
from scheduler_core.snapshot.node_columns import NodeColumns, Rows


@dataclass(frozen=True, slots=True)
class ScoredResource:
    """A resource that a profile scores by.

    Attributes:
        name: Its name.
        weight: How much it counts.
        is_scalar: Whether it takes part only for pods that ask for it.
    """

    name: str
    weight: int
    is_scalar: bool


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod adds to a node.

    Attributes:
        resources: The scored resources.
        amounts: What the pod takes of each, in the resource's integer unit.
        nonzero: Whether the nodes' sums of cpu and memory count containers that name none with a default.
    """

    resources: Sequence[ScoredResource]
    amounts: Sequence[int]
    nonzero: bool


def scored_resource(name: str, weight: int = 1) -> ScoredResource:
    """Describe a resource to score by.

    Args:
        name: Its name.
        weight: How much it counts, 1 or more.

    Returns:
        The description.
    """
    return ScoredResource(name, weight, is_scalar_resource(name))


class TakingPart(NamedTuple):
    """A resource that counts for a pod.

    Attributes:
        column: Its column.
        amount: What the pod takes of it.
        weight: How much it counts.
        is_nonzero: Whether the nodes' sums are those with defaults.
    """

    column: int
    amount: int
    weight: int
    is_nonzero: bool

    def table(self, nodes: NodeColumns) -> NDArray[np.int64]:
        """The nodes' sums, int64[resource, row]."""
        return nodes.nonzero_requested if self.is_nonzero else nodes.requested


def taking_part(demand: Demand, nodes: NodeColumns) -> list[TakingPart]:
    """The resources that count for a pod, in the order of the profile.

    Args:
        demand: What the pod adds.
        nodes: The columns.

    Returns:
        Without resources that no node names, for they count on none.
    """
    found = []
    for resource, amount in zip(demand.resources, demand.amounts, strict=True):
        if amount == 0 and resource.is_scalar:
            continue
        column = nodes.resources.find(resource.name)
        if column is not None:
            is_nonzero = demand.nonzero and column in (CPU_COLUMN, MEMORY_COLUMN)
            found.append(TakingPart(column, amount, resource.weight, is_nonzero))
    return found


def resource_uses(taking: Sequence[TakingPart], nodes: NodeColumns, rows: Rows) -> list[ResourceUse]:
    """Take the columns of every resource that takes part.

    Args:
        taking: The resources.
        nodes: The columns.
        rows: The rows to score.

    Returns:
        One entry per resource, in their order. With ``slice(None)`` the arrays are views.
    """
    return [
        ResourceUse(
            nodes.allocatable[each.column, rows], each.table(nodes)[each.column, rows], each.amount, each.weight
        )
        for each in taking
    ]


def row_uses(taking: Sequence[TakingPart], nodes: NodeColumns, row: int) -> list[RowUse]:
    """What :func:`resource_uses` takes, of one row: capacity, used, added and weight of each resource."""
    return [
        (nodes.allocatable.item(each.column, row), each.table(nodes).item(each.column, row), each.amount, each.weight)
        for each in taking
    ]
