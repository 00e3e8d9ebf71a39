"""The resource scores of all nodes, with what does not depend on the pod kept from pod to pod.

Owns which columns of nodes a kept formula follows, and when it is worth being asked. Must not know the formulas. There
is one for each set of resources that take part: few, since only extended resources make another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from scheduler_core.framework.extension_points import Scores
from scheduler_core.kernels.kept_allocation import KeptScores
from scheduler_core.plugins.resource_allocation import TakingPart
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.row_keeper import RowKeeper

_MOST_SETS = 4
_WORTH_ALL = 4
"""All rows are scored, and those that are asked about picked out, while these are at least one in so many."""

Formula = Callable[[Sequence[int]], KeptScores]
"""Makes what is kept for resources of these weights."""


class ScoreKeeper:
    """One plugin's formula, kept for each set of resources."""

    __slots__ = ("_formula", "_kept", "_nodes")

    def __init__(self, formula: Formula) -> None:
        """Keep nothing yet.

        Args:
            formula: Makes what is kept.
        """
        self._formula = formula
        self._nodes: NodeColumns | None = None
        self._kept: dict[tuple[tuple[int, int], ...], _Followed] = {}

    def scores(self, taking: Sequence[TakingPart], nodes: NodeColumns, rows: Rows) -> Scores | None:
        """Score rows.

        Args:
            taking: The resources that take part, at least one, and what the pod takes of them.
            nodes: The columns.
            rows: The rows to score.

        Returns:
            int64 per row; None where that is not worth it, or a number is too large.
        """
        if not isinstance(rows, slice) and len(rows) * _WORTH_ALL < nodes.size:
            return None
        found = self._followed(taking, nodes).scores([each.amount for each in taking])
        return found if found is None or isinstance(rows, slice) else found[rows]

    def _followed(self, taking: Sequence[TakingPart], nodes: NodeColumns) -> _Followed:
        if nodes is not self._nodes:
            self._nodes, self._kept = nodes, {}
        key = tuple((each.column, each.weight) for each in taking)
        followed = self._kept.get(key)
        if followed is None:
            if len(self._kept) == _MOST_SETS:
                del self._kept[next(iter(self._kept))]
            kept = self._formula([each.weight for each in taking])
            followed = self._kept[key] = _Followed(nodes, taking, kept)
        followed.refresh()
        return followed


class _Followed(RowKeeper):
    """A kept formula in step with the columns that it follows; what the pod that they were first for takes is not."""

    __slots__ = ("_followed", "_kept", "scores")

    def __init__(self, nodes: NodeColumns, followed: Sequence[TakingPart], kept: KeptScores) -> None:
        super().__init__(nodes)
        self._followed = followed
        self._kept = kept
        self.scores = kept.scores

    def _rebuild(self) -> None:
        nodes = self.nodes
        capacity = nodes.allocatable[[each.column for each in self._followed]]
        self._kept.fill(capacity, np.stack([each.table(nodes)[each.column] for each in self._followed]))

    def _renew(self, rows: Iterable[int]) -> None:
        allocatable = self.nodes.allocatable
        tables = [(each.column, each.table(self.nodes)) for each in self._followed]
        for row in rows:
            capacity = [allocatable.item(column, row) for column, _ in tables]
            self._kept.put(row, capacity, [table.item(column, row) for column, table in tables])
