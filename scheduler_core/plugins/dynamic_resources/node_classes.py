"""Classes of nodes: on nodes of one class the search for devices has the same outcome.

Computing a node's class costs microseconds, which is too much for thousands of nodes and every pod; pods with equal
claims share the classes, and only rows whose node or devices changed are computed again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import count

import numpy as np
from numpy.typing import NDArray

from scheduler_core.devices.allocator import Allocator
from scheduler_core.errors import AllocationError
from scheduler_core.snapshot.node_columns import NodeColumns

NO_NODE = -1


class NodeClasses:
    """Class of each row for one plan of claims; numbers are never used again.

    Args:
        nodes: The columns.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._classes: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._numbers: dict[Hashable, int] = {}
        self._next = count()
        self._rows_position = self._devices_position = -1

    def refresh(self, allocator: Allocator) -> NDArray[np.int64]:
        """Return the current class of each row, int64; ``NO_NODE`` for a row without a node.

        Args:
            allocator: Search for claims of the plan.
        """
        nodes, changed = self._nodes, self._nodes.devices.hardware.changed
        stale = self._stale_rows()
        rows: Iterable[int] = () if stale is None else stale
        if stale is None or 2 * len(stale) > nodes.size or len(self._numbers) > 2 * nodes.size:
            self._classes = np.full(nodes.size, NO_NODE, dtype=np.int64)
            self._numbers.clear()
            rows = range(nodes.size)
        for row in rows:
            node = nodes.nodes[row]
            self._classes[row] = (
                NO_NODE if node is None else self._number(allocator, node.metadata.name, node.metadata.labels)
            )
        self._rows_position, self._devices_position = nodes.changes.position, changed.position
        return self._classes

    def _stale_rows(self) -> set[int] | None:
        """Return the rows to compute again; None for all."""
        nodes = self._nodes
        if len(self._classes) != nodes.size or self._rows_position < 0:
            return None
        rows = nodes.changes.since(self._rows_position)
        names = nodes.devices.hardware.changed.since(self._devices_position)
        if rows is None or names is None:
            return None
        return {*rows, *_known(nodes.row_of(name) for name in names)}

    def _number(self, allocator: Allocator, name: str, labels: dict[str, str]) -> int:
        try:
            key = allocator.key(name, labels)
        except AllocationError:
            # The search on this node reports the error.
            key = name
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = next(self._next)
        return number


def _known(rows: Iterable[int]) -> Iterable[int]:
    return (row for row in rows if row >= 0)
