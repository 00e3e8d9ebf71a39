"""Classes of nodes: on nodes of one class the search for devices has the same outcome.

Computing a node's class costs microseconds, which is too much for thousands of nodes and every pod. Pods with equal
claims share the classes, only rows whose node or devices changed are computed again, and nodes that see the same pools
share one computation, so that a change of a device that all nodes reach costs little.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import count

import numpy as np
from numpy.typing import NDArray

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.pools import PoolView
from scheduler_core.errors import AllocationError
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.row_cache import StaleDeviceRows

NO_NODE = -1
_NO_POOLS_OF_NODE = 0
"""Entry of rows without a node among the distinct pools."""


class NodeClasses:
    """Class of each row for one plan of claims; numbers are never used again."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._stale = StaleDeviceRows(nodes)
        self._numbers: dict[Hashable, int] = {}
        self._next = count()
        self._clear()

    def _clear(self) -> None:
        self._pools_of_row: NDArray[np.intp] = np.zeros(self._nodes.size, dtype=np.intp)
        self._entries: dict[tuple[PoolView, ...] | str, int] = {}
        self._pools: list[tuple[PoolView, ...] | str] = [""]
        self._shared: list[int] = []
        self._classes: NDArray[np.int64] = np.full(self._nodes.size + 1, NO_NODE, dtype=np.int64)
        self._numbers.clear()

    def refresh(self, allocator: Allocator) -> NDArray[np.int64]:
        """Return the current class of each row, int64; ``NO_NODE`` for a row without a node."""
        try:
            return self._refresh(allocator)
        except BaseException:
            self._stale.invalidate()
            raise

    def _refresh(self, allocator: Allocator) -> NDArray[np.int64]:
        nodes = self._nodes
        stale = self._stale.take()
        rows: Iterable[int] = () if stale is None else stale
        if stale is None or max(len(self._numbers), len(self._pools)) > 2 * nodes.size + 1:
            self._clear()
            rows = range(nodes.size)
        entries = {self._enter(row) for row in rows}
        if self._stale.shared_changed:
            entries.update(self._shared)
        for entry in entries - {_NO_POOLS_OF_NODE}:
            self._classes[entry] = self._number(allocator, self._pools[entry])
        return self._classes[self._pools_of_row]

    def _enter(self, row: int) -> int:
        """Set and return the entry of a row's pools."""
        self._nodes.devices.hardware.steps.upkeep()
        node = self._nodes.nodes[row]
        entry = _NO_POOLS_OF_NODE
        if node is not None:
            pools: tuple[PoolView, ...] | str
            try:
                inventory = self._nodes.devices.hardware.inventory
                pools = inventory.pools(node.metadata.name, node.metadata.labels, node.status.declared_features)
            except AllocationError:
                # The search on this node reports the error.
                pools = node.metadata.name
            entry = self._entries.setdefault(pools, len(self._pools))
            if entry == len(self._pools):
                self._add(pools)
        self._pools_of_row[row] = entry
        return entry

    def _add(self, pools: tuple[PoolView, ...] | str) -> None:
        self._pools.append(pools)
        if len(self._pools) > len(self._classes):
            self._classes = np.resize(self._classes, 2 * len(self._pools))
        if not isinstance(pools, str) and any(view.is_shared for view in pools):
            self._shared.append(len(self._pools) - 1)

    def _number(self, allocator: Allocator, pools: tuple[PoolView, ...] | str) -> int:
        key = pools if isinstance(pools, str) else allocator.pools_key(pools)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = next(self._next)
        return number
