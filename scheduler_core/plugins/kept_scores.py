"""Cache of resource scores of all nodes, with the parts of the formula that do not depend on the pod.

There is one entry per set of resources that are scored; only extended resources create more than one.
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
"""All rows are scored if the requested rows are at least one in this many."""

Formula = Callable[[Sequence[int]], KeptScores]
"""Creates the cached formula for resources with these weights."""


class ScoreKeeper:
    """Cached formulas of one plugin, one per set of resources."""

    __slots__ = ("_formula", "_kept", "_nodes")

    def __init__(self, formula: Formula) -> None:
        """Create an empty cache.

        Args:
            formula: Creates a cached formula.
        """
        self._formula = formula
        self._nodes: NodeColumns | None = None
        self._kept: dict[tuple[tuple[int, int], ...], _Followed] = {}

    def scores(self, taking: Sequence[TakingPart], nodes: NodeColumns, rows: Rows) -> Scores | None:
        """Score rows.

        Args:
            taking: The scored resources, at least one, with the pod's requests.
            nodes: The columns.
            rows: The rows to score.

        Returns:
            int64 per row; None if the cache is not worth it, or a number is too large.
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
    """A cached formula that is kept up to date with the columns of its resources; it excludes the pod's requests."""

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
