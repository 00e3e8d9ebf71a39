"""Prefers cheap nodes: a Score plugin over all nodes at once.

Owns the reading of the annotation ``cost.example.com/per-hour``. Costs are kept in a column of their own, which is made
anew only when a node changes: a cycle then costs one index into an array, however many nodes there are.
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

# Scores are whole numbers; costs are told apart down to a ten-thousandth, and above this all are alike.
_UNITS_PER_COST = 10_000
_HIGHEST_COST = 1_000_000.0


class NodeCostArgs(ConfigModel):
    """What a profile may say to the plugin."""

    default_cost: float = Field(
        default=1.0, ge=0, le=_HIGHEST_COST, strict=False, description="Of nodes that do not tell theirs."
    )


class NodeCost(ScorePlugin):
    """Scores the dearest node 0 and a free one 100."""

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
        """The cost of each row."""
        del state, pod
        if self._version != nodes.version:
            self._costs = np.array([self._cost(node) for node in nodes.nodes], dtype=np.int64)
            self._version = nodes.version
        return self._costs[rows]

    def _cost(self, node: Node | None) -> int:
        default: float = self.args.default_cost
        told = None if node is None else annotations_of(node).get(ANNOTATION)
        try:
            cost = default if told is None else float(told)
        except ValueError:
            cost = math.nan
        if math.isnan(cost):
            self.handle.metrics.count("unreadable_node_costs")
            cost = default
        return round(min(max(0.0, cost), _HIGHEST_COST) * _UNITS_PER_COST)
