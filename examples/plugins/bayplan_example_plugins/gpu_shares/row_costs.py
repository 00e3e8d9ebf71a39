"""Costs of the best placement on each row, stored by demand and computed again for changed rows only.

Pods of one kind come again and again while a pod changes one row, so that a pod costs the rows that changed since the
last pod of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bayplan_example_plugins.gpu_shares.gpu_columns import Devices, GpuColumns, NodeStates
from bayplan_example_plugins.gpu_shares.policies import (
    IMPOSSIBLE,
    CostFunction,
    Demand,
    LargestNode,
    Placements,
    costs,
)
from scheduler_core.snapshot.node_columns import Rows

MOST_DEMANDS = 256
"""Demands whose costs are stored; the least recently used ones are dropped."""
_CHUNK = 512


class _Stored(Struct):
    """Costs of one demand: int64 per row, and the position in the change log up to which they are current."""

    costs: NDArray[np.int64]
    position: int
    largest: LargestNode


class RowCosts:
    """Costs by demand and row.

    Args:
        columns: The GPUs of all nodes.
        function: The costs of the policy.
        most_demands: Demands whose costs are stored.
    """

    def __init__(self, columns: GpuColumns, function: CostFunction, most_demands: int = MOST_DEMANDS) -> None:
        self._columns = columns
        self._function = function
        self._most_demands = most_demands
        self._stored: dict[Demand, _Stored] = {}
        self._version = -1
        self._largest = LargestNode(1, 1, 1)

    def largest(self) -> LargestNode:
        """Return the largest amounts of any node."""
        nodes = self._columns.nodes
        if self._version != nodes.version:
            cpu, memory, gpus = [
                max(1, 0 if column is None else int(nodes.allocatable[column].max(initial=0)))
                for column in (nodes.resources.find(name) for name in ("cpu", "memory", self._columns.resource))
            ]
            self._largest, self._version = LargestNode(cpu, memory, gpus), nodes.version
        return self._largest

    def of(self, demand: Demand, rows: Rows) -> NDArray[np.int64]:
        """Return the costs of a demand, int64 per row."""
        nodes, largest = self._columns.nodes, self.largest()
        self._columns.refresh()
        stored = self._stored.pop(demand, None)
        position = nodes.changes.position
        changed = None
        if stored is not None and len(stored.costs) == nodes.size and stored.largest == largest:
            changed = nodes.changes.since(stored.position)
        if stored is None or changed is None:
            if len(self._stored) >= self._most_demands:
                del self._stored[next(iter(self._stored))]
            stored = _Stored(self._compute(demand, np.arange(nodes.size)), position, largest)
        elif changed:
            stale = np.fromiter(set(changed), dtype=np.intp)
            stored.costs[stale] = self._compute(demand, stale)
            stored.position = position
        self._stored[demand] = stored
        return stored.costs[rows]

    def _compute(self, demand: Demand, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        found = np.empty(len(rows), dtype=np.int64)
        for at in range(0, len(rows), _CHUNK):
            placements = Placements.of(demand, self._columns.states(rows[at : at + _CHUNK]))
            found[at : at + _CHUNK] = costs(self._function, placements, self._largest).min(axis=1)
        return found


def option_of(
    function: CostFunction,
    demand: Demand,
    before: NodeStates,
    largest: LargestNode,
    choose: Callable[[Sequence[int]], int] | None,
) -> Devices | None:
    """Return the GPUs for a demand on one node.

    Args:
        function: The costs of the policy.
        demand: The demand.
        before: The node.
        largest: The largest amounts of any node.
        choose: Chooses among the options that fit; None for the one of the lowest cost.

    Returns:
        The GPUs; None if the demand does not fit.
    """
    placements = Placements.of(demand, before)
    fitting = np.flatnonzero(placements.fits[0]).tolist()
    if not fitting:
        return None
    found = costs(function, placements, largest)[0]
    assert found.min() < IMPOSSIBLE, "an option that fits has a cost"
    return placements.devices(0, int(np.argmin(found)) if choose is None else choose(fitting))
