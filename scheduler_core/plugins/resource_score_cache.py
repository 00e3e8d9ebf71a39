"""Cache of resource scores of all nodes, with the parts of the formula that do not depend on the pod.

There is one entry per set of resources that are scored; only extended resources create more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from scheduler_core.framework.extension_points import Scores
from scheduler_core.kernels.cached_resource_scores import CachedScores
from scheduler_core.plugins.resource_score_inputs import ScoredColumn
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.row_cache import RowCache

_MOST_SETS = 4
_WORTH_ALL = 4
"""All rows are scored if the requested rows are at least one in this many."""

Formula = Callable[[Sequence[int]], CachedScores]
"""Creates the cached formula for resources with these weights."""


class ScoreCache:
    """Cached formulas of one plugin, one per set of resources."""

    __slots__ = ("_cached", "_formula", "_nodes")

    def __init__(self, formula: Formula) -> None:
        """Create an empty cache.

        Args:
            formula: Creates a cached formula.
        """
        self._formula = formula
        self._nodes: NodeColumns | None = None
        self._cached: dict[tuple[tuple[int, int], ...], _CachedFormula] = {}

    def scores(self, scored: Sequence[ScoredColumn], nodes: NodeColumns, rows: Rows) -> Scores | None:
        """Score rows.

        Args:
            scored: The scored resources, at least one, with the pod's requests.
            nodes: The columns.
            rows: The rows to score.

        Returns:
            int64 per row; None if the cache is not worth it, or a number is too large.
        """
        if not isinstance(rows, slice) and len(rows) * _WORTH_ALL < nodes.size:
            return None
        found = self._formula_for(scored, nodes).scores([each.amount for each in scored])
        return found if found is None or isinstance(rows, slice) else found[rows]

    def _formula_for(self, scored: Sequence[ScoredColumn], nodes: NodeColumns) -> _CachedFormula:
        if nodes is not self._nodes:
            self._nodes, self._cached = nodes, {}
        key = tuple((each.column, each.weight) for each in scored)
        formula = self._cached.get(key)
        if formula is None:
            if len(self._cached) == _MOST_SETS:
                del self._cached[next(iter(self._cached))]
            cached = self._formula([each.weight for each in scored])
            formula = self._cached[key] = _CachedFormula(nodes, scored, cached)
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
