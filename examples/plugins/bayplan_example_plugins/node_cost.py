"""Prefers cheap nodes: a Score plugin that scores all nodes at once.

It reads the annotation ``cost.example.com/per-hour``. Costs are stored in a column that is recomputed for a node only
when the node changes: a cycle then costs one index into an array, however many nodes there are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scheduler_core.config.config_model import ConfigModel
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Normalization, PodReads, Reads, Reuse, ScorePlugin, Scores
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.object_reads import ObjectReads, annotations_of
from scheduler_core.model.node import Node
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

ANNOTATION = "cost.example.com/per-hour"

# Scores are whole numbers: costs have a resolution of a ten-thousandth, and costs above the highest one are equal.
_UNITS_PER_COST = 10_000
_HIGHEST_COST = 1_000_000.0


class NodeCostArgs(ConfigModel):
    """Arguments of the plugin."""

    default_cost: float = Field(
        default=1.0, ge=0, le=_HIGHEST_COST, strict=False, description="Cost of nodes without the annotation."
    )


class NodeCost(ScorePlugin):
    """Scores the most expensive node 0 and a free one 100."""

    name = "NodeCost"
    args_model = NodeCostArgs
    reads = ObjectReads(node_annotations=True)
    reuse = Reuse(score=Reads.NODE, pod=PodReads.NOTHING)
    normalization = Normalization.REVERSE_MAX

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._version = -1
        self._costs: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return the cost of each row."""
        del state, pod
        if self._version != nodes.version:
            self._costs = np.array([self._cost(node) for node in nodes.nodes], dtype=np.int64)
            self._version = nodes.version
        return self._costs[rows]

    def _cost(self, node: Node | None) -> int:
        default: float = self.args.default_cost
        annotation = None if node is None else annotations_of(node).get(ANNOTATION)
        try:
            cost = default if annotation is None else float(annotation)
        except ValueError:
            cost = math.nan
        if math.isnan(cost):
            self.handle.metrics.count("unreadable_node_costs")
            cost = default
        return round(min(max(0.0, cost), _HIGHEST_COST) * _UNITS_PER_COST)
