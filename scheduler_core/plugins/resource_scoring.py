"""Inputs of resource scores and their cache, shared by NodeResourcesFit and NodeResourcesBalancedAllocation.

An extended (scalar) resource that the pod does not request is not scored, because a node that has it is no better or
worse for the pod. A node that offers none of an extended resource which a device class serves is scored by its devices
of that class (:class:`DeviceUses`).

:class:`ScoreCache` stores for all nodes the parts of a formula that do not depend on the pod, one entry per set of
resources that are scored; only extended resources create more than one.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/resource_allocation.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.devices.allocator import ClassCounts, class_expressions
from scheduler_core.devices.selector_cache import Expressions, SizedCache
from scheduler_core.framework.extension_points import Scores
from scheduler_core.kernels.resource_scores import CachedScores, ResourceUse, RowUse
from scheduler_core.model.devices import DeviceClass
from scheduler_core.model.pod_requests import is_scalar_resource
from scheduler_core.snapshot.interning import CPU_COLUMN, MEMORY_COLUMN
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.row_cache import RowCache, StaleDeviceRows


@dataclass(frozen=True, slots=True)
class ScoredResource:
    """A resource that a profile scores; a scalar only for pods that request it."""

    name: str
    weight: int
    is_scalar: bool


@dataclass(slots=True)
class Demand:
    """Requests of one pod.

    Attributes:
        nonzero: Whether the nodes' sums of CPU and memory include defaults for containers without requests.
        version: Version of the resources' columns for which ``scored`` holds.
    """

    resources: Sequence[ScoredResource]
    amounts: Sequence[int]
    nonzero: bool
    scored: Sequence[ScoredColumn] = ()
    version: int = -1


def scored_resource(name: str, weight: int = 1) -> ScoredResource:
    """Return a resource to score."""
    return ScoredResource(name, weight, is_scalar_resource(name))


class ScoredColumn(Struct, frozen=True):
    """A resource that is scored for a pod, by the nodes' sums with defaults if *is_nonzero*."""

    column: int
    amount: int
    weight: int
    is_nonzero: bool

    def table(self, nodes: NodeColumns) -> NDArray[np.int64]:
        """Return the nodes' sums, int64[resource, row]."""
        return nodes.nonzero_requested if self.is_nonzero else nodes.requested


def scored_columns(demand: Demand, nodes: NodeColumns) -> Sequence[ScoredColumn]:
    """Return the resources that are scored for a pod and that a node has, until resources change columns."""
    if demand.version == nodes.resources.version:
        return demand.scored
    found = []
    for resource, amount in zip(demand.resources, demand.amounts, strict=True):
        if amount == 0 and resource.is_scalar:
            continue
        column = nodes.resources.find(resource.name)
        if column is not None:
            is_nonzero = demand.nonzero and column in (CPU_COLUMN, MEMORY_COLUMN)
            found.append(ScoredColumn(column, amount, resource.weight, is_nonzero))
    demand.scored, demand.version = found, nodes.resources.version
    return found


def resource_uses(scored: Sequence[ScoredColumn], nodes: NodeColumns, rows: Rows) -> list[ResourceUse]:
    """Return the columns of every scored resource, in their order; views with ``slice(None)``."""
    return [
        ResourceUse(
            nodes.allocatable[each.column, rows], each.table(nodes)[each.column, rows], each.amount, each.weight
        )
        for each in scored
    ]


def row_uses(demand: Demand, nodes: NodeColumns, row: int) -> list[RowUse] | None:
    """Return :func:`resource_uses` of one row: capacity, used, added and weight of each resource.

    Runs for each pod of a known class, so it calls nothing while columns stay. None if devices serve a resource.
    """
    if nodes.devices.classes and is_served_by_devices(demand, nodes):
        return None
    scored = demand.scored if demand.version == nodes.resources.version else scored_columns(demand, nodes)
    allocatable, requested, nonzero = nodes.allocatable, nodes.requested, nodes.nonzero_requested
    uses: list[RowUse] = []
    for each in scored:
        column = each.column
        sums = nonzero if each.is_nonzero else requested
        uses.append((allocatable.item(column, row), sums.item(column, row), each.amount, each.weight))
    return uses


def is_served_by_devices(demand: Demand, nodes: NodeColumns) -> bool:
    if not nodes.devices.classes:
        return False
    resolve = nodes.devices.class_of_resource
    return any(
        amount and resource.is_scalar and resolve(resource.name) is not None
        for resource, amount in zip(demand.resources, demand.amounts, strict=True)
    )


_MOST_SETS = 4
_WORTH_ALL = 4
"""All rows are scored if the requested rows are at least one in this many."""

Formula = Callable[[Sequence[int]], CachedScores]
"""Creates the cached formula for resources with these weights."""


class ScoreCache:
    """Cached formulas of one plugin, one per set of resources."""

    __slots__ = ("_cached", "_formula", "_nodes")

    def __init__(self, formula: Formula, nodes: NodeColumns) -> None:
        self._formula = formula
        self._nodes = nodes
        self._cached: dict[tuple[tuple[int, int], ...], _CachedFormula] = {}

    def scores(self, scored: Sequence[ScoredColumn], rows: Rows) -> Scores | None:
        """Score rows, int64; None if the cache is not worth it, or a number is too large."""
        if not isinstance(rows, slice) and len(rows) * _WORTH_ALL < self._nodes.size:
            return None
        found = self._formula_for(scored).scores([each.amount for each in scored])
        return found if found is None or isinstance(rows, slice) else found[rows]

    def _formula_for(self, scored: Sequence[ScoredColumn]) -> _CachedFormula:
        key = tuple((each.column, each.weight) for each in scored)
        formula = self._cached.get(key)
        if formula is None:
            if len(self._cached) == _MOST_SETS:
                del self._cached[next(iter(self._cached))]
            cached = self._formula([each.weight for each in scored])
            formula = self._cached[key] = _CachedFormula(self._nodes, scored, cached)
        formula.refresh()
        return formula


class _CachedFormula(RowCache):
    """A cached formula that is updated with the columns of its resources; it excludes the pod's requests."""

    __slots__ = ("_cached", "_columns", "scores")

    def __init__(self, nodes: NodeColumns, columns: Sequence[ScoredColumn], cached: CachedScores) -> None:
        super().__init__(nodes)
        self._columns = columns
        self._cached = cached
        self.scores = cached.scores

    def _rebuild(self) -> None:
        nodes = self.nodes
        capacity = nodes.allocatable[[each.column for each in self._columns]]
        self._cached.fill(capacity, np.stack([each.table(nodes)[each.column] for each in self._columns]))

    def _refresh_rows(self, rows: Iterable[int]) -> None:
        allocatable = self.nodes.allocatable
        tables = [(each.column, each.table(self.nodes)) for each in self._columns]
        for row in rows:
            capacity = [allocatable.item(column, row) for column, _ in tables]
            self._cached.put(row, capacity, [table.item(column, row) for column, table in tables])


_MAX_CLASSES = 16


class _CountedDevices:
    """Devices of one class on each row, int64; only rows that changed are counted again."""

    __slots__ = ("_nodes", "_stale", "capacity", "used")

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._stale = StaleDeviceRows(nodes)
        self.capacity: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.used: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def refresh(self, counts: ClassCounts, device_class: DeviceClass) -> None:
        nodes, stale = self._nodes, self._stale.take()
        rows: Iterable[int] = () if stale is None else stale
        if stale is None or self._stale.shared_changed:
            self.capacity, self.used = (np.zeros(nodes.size, dtype=np.int64) for _ in range(2))
            rows = range(nodes.size)
        for row in rows:
            node = nodes.nodes[row]
            found = (0, 0) if node is None else counts.count(device_class, node.metadata.name, node.metadata.labels)
            self.capacity[row], self.used[row] = found


class DeviceUses:
    """Use of resources that device classes may serve."""

    __slots__ = ("_counted", "_counts", "_nodes")

    def __init__(self, nodes: NodeColumns, max_classes: int = _MAX_CLASSES) -> None:
        self._nodes = nodes
        self._counts = ClassCounts(nodes.devices.hardware, max_classes)
        self._counted: SizedCache[Expressions, _CountedDevices] = SizedCache(max_classes)

    def uses(self, demand: Demand, rows: Rows) -> list[ResourceUse]:
        """Return :func:`resource_uses` with devices in place of resources that a node does not offer."""
        found, nodes = [], self._nodes
        for resource, amount in zip(demand.resources, demand.amounts, strict=True):
            one = Demand((resource,), (amount,), demand.nonzero)
            scored = resource_uses(scored_columns(one, nodes), nodes, rows)
            device_class = nodes.devices.class_of_resource(resource.name) if amount and resource.is_scalar else None
            if device_class is None:
                found += scored
            else:
                counted = self._counted_devices(device_class)
                capacity, used = counted.capacity[rows], counted.used[rows]
                if scored:
                    offers_none = scored[0].capacity == 0
                    capacity = np.where(offers_none, capacity, scored[0].capacity)
                    used = np.where(offers_none, used, scored[0].used)
                found.append(ResourceUse(capacity, used, amount, resource.weight))
        return found

    def _counted_devices(self, device_class: DeviceClass) -> _CountedDevices:
        expressions = class_expressions(device_class)
        found = self._counted.get(expressions)
        if found is None:
            found = _CountedDevices(self._nodes)
            self._counted.put(expressions, found)
        found.refresh(self._counts, device_class)
        return found
