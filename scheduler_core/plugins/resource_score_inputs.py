"""Inputs of resource scores, shared by NodeResourcesFit and NodeResourcesBalancedAllocation.

An extended (scalar) resource that the pod does not request is not scored, because a node that has it is no better or
worse for the pod.

A node that offers none of an extended resource which a device class serves is scored by its devices of that class
(:mod:`.device_uses`).

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/resource_allocation.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.kernels.resource_scores import ResourceUse, RowUse
from scheduler_core.model.pod_requests import is_scalar_resource
from scheduler_core.snapshot.interning import CPU_COLUMN, MEMORY_COLUMN
from scheduler_core.snapshot.node_columns import NodeColumns, Rows


@dataclass(frozen=True, slots=True)
class ScoredResource:
    """A resource that a profile scores.

    Attributes:
        name: The name of the resource.
        weight: Weight of its score.
        is_scalar: Whether it is scored only for pods that request it.
    """

    name: str
    weight: int
    is_scalar: bool


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of one pod.

    Attributes:
        resources: The scored resources.
        amounts: The pod's request of each, in the resource's integer unit.
        nonzero: Whether the nodes' sums of CPU and memory include defaults for containers without requests.
    """

    resources: Sequence[ScoredResource]
    amounts: Sequence[int]
    nonzero: bool


def scored_resource(name: str, weight: int = 1) -> ScoredResource:
    """Return a resource to score.

    Args:
        name: The name of the resource.
        weight: Weight of its score, 1 or more.
    """
    return ScoredResource(name, weight, is_scalar_resource(name))


class ScoredColumn(Struct, frozen=True):
    """A resource that is scored for a pod.

    Attributes:
        column: The column of the resource.
        amount: The pod's request.
        weight: Weight of its score.
        is_nonzero: Whether to use the nodes' sums with defaults.
    """

    column: int
    amount: int
    weight: int
    is_nonzero: bool

    def table(self, nodes: NodeColumns) -> NDArray[np.int64]:
        """Return the nodes' sums, int64[resource, row]."""
        return nodes.nonzero_requested if self.is_nonzero else nodes.requested


def scored_columns(demand: Demand, nodes: NodeColumns) -> list[ScoredColumn]:
    """Return the resources that are scored for a pod, in the order of the profile.

    Args:
        demand: The requests of the pod.
        nodes: The columns.

    Returns:
        The resources, without those that no node has.
    """
    found = []
    for resource, amount in zip(demand.resources, demand.amounts, strict=True):
        if amount == 0 and resource.is_scalar:
            continue
        column = nodes.resources.find(resource.name)
        if column is not None:
            is_nonzero = demand.nonzero and column in (CPU_COLUMN, MEMORY_COLUMN)
            found.append(ScoredColumn(column, amount, resource.weight, is_nonzero))
    return found


def resource_uses(scored: Sequence[ScoredColumn], nodes: NodeColumns, rows: Rows) -> list[ResourceUse]:
    """Return the columns of every scored resource.

    Args:
        scored: The resources.
        nodes: The columns.
        rows: The rows to score.

    Returns:
        One entry per resource, in their order. With ``slice(None)`` the arrays are views.
    """
    return [
        ResourceUse(
            nodes.allocatable[each.column, rows], each.table(nodes)[each.column, rows], each.amount, each.weight
        )
        for each in scored
    ]


def row_uses(scored: Sequence[ScoredColumn], nodes: NodeColumns, row: int) -> list[RowUse]:
    """Return :func:`resource_uses` of one row: capacity, used, added and weight of each resource."""
    return [
        (nodes.allocatable.item(each.column, row), each.table(nodes).item(each.column, row), each.amount, each.weight)
        for each in scored
    ]


def is_served_by_devices(demand: Demand, nodes: NodeColumns) -> bool:
    """Return whether a device class serves a scored resource that the pod requests."""
    if not nodes.devices.classes:
        return False
    resolve = nodes.devices.class_of_resource
    return any(
        amount and resource.is_scalar and resolve(resource.name) is not None
        for resource, amount in zip(demand.resources, demand.amounts, strict=True)
    )
