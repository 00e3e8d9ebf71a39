"""Use of extended resources that device classes serve: a node that offers none of one is scored by its devices.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/resource_allocation.go``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.devices.allocator import ClassCounts, class_expressions
from scheduler_core.devices.selector_cache import Expressions
from scheduler_core.kernels.resource_scores import ResourceUse
from scheduler_core.model.devices import DeviceClass
from scheduler_core.plugins.resource_scoring import Demand, resource_uses, scored_columns
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.row_cache import StaleDeviceRows

_MAX_CLASSES = 16


class _CountedDevices:
    """Devices of one class on each row; only rows whose node or devices changed are counted again.

    Attributes:
        capacity: Devices of each row, int64.
        used: Those in use, int64.
    """

    __slots__ = ("_nodes", "_stale", "capacity", "used")

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._stale = StaleDeviceRows(nodes)
        self.capacity: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.used: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def refresh(self, counts: ClassCounts, device_class: DeviceClass) -> None:
        """Count the devices of stale rows."""
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

    __slots__ = ("_counted", "_counts", "_max_classes", "_nodes")

    def __init__(self, max_classes: int = _MAX_CLASSES) -> None:
        self._max_classes = max_classes
        self._nodes: NodeColumns | None = None
        self._counts: ClassCounts | None = None
        self._counted: OrderedDict[Expressions, _CountedDevices] = OrderedDict()

    def uses(self, demand: Demand, nodes: NodeColumns, rows: Rows) -> list[ResourceUse]:
        """Return :func:`resource_uses` with devices in place of resources that a node does not offer.

        Returns:
            One entry per scored resource, in the order of the profile.
        """
        found = []
        for resource, amount in zip(demand.resources, demand.amounts, strict=True):
            one = Demand((resource,), (amount,), demand.nonzero)
            scored = resource_uses(scored_columns(one, nodes), nodes, rows)
            device_class = nodes.devices.class_of_resource(resource.name) if amount and resource.is_scalar else None
            if device_class is None:
                found += scored
            else:
                counted = self._counted_devices(device_class, nodes)
                capacity, used = counted.capacity[rows], counted.used[rows]
                if scored:
                    offers_none = scored[0].capacity == 0
                    capacity = np.where(offers_none, capacity, scored[0].capacity)
                    used = np.where(offers_none, used, scored[0].used)
                found.append(ResourceUse(capacity, used, amount, resource.weight))
        return found

    def _counted_devices(self, device_class: DeviceClass, nodes: NodeColumns) -> _CountedDevices:
        hardware = nodes.devices.hardware
        counts = self._counts
        if counts is None or counts.devices is not hardware or self._nodes is not nodes:
            counts = self._counts = ClassCounts(hardware, self._max_classes)
            self._nodes = nodes
            self._counted.clear()
        expressions = class_expressions(device_class)
        found = self._counted.get(expressions)
        if found is None:
            found = self._counted[expressions] = _CountedDevices(nodes)
            if len(self._counted) > self._max_classes:
                self._counted.popitem(last=False)
        else:
            self._counted.move_to_end(expressions)
        found.refresh(counts, device_class)
        return found
