"""Where pods of one kind fit, and how rows compare, while pods come to rows and go from them.

Owns the order of rows for pods that read alike, kept up row by row. What plugins say of Node objects alone is asked
once; what they say of the pods on a node is asked again about rows that have changed. It must not know whether what it
was made from still holds: whoever keeps it asks the plugins' own checks.

A change of a Node object ends a ranking, and so does a change log that does not reach back far enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_times import UNTIMED
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, FilterPlugin, Reads, ScorePlugin, Scores
from scheduler_core.runtime.filtering import run_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import FilterRunner, ScoreRunner
from scheduler_core.runtime.scoring import Scoring, add_scores
from scheduler_core.snapshot.node_columns import Rows

NO_FIT = -1
_FEW_ROWS = 8
"""Up to so many rows are asked about one by one."""


class Asked(Struct, frozen=True):
    """The plugins that judge: filters with their positions, and scores that need no normalising with their weights."""

    filters: Sequence[tuple[int, FilterRunner]]
    scores: Sequence[tuple[ScoreRunner, int]]

    def reading(self, *, pods: bool) -> Asked:
        """Those that read the pods on a node, or the others."""
        return Asked(
            tuple(each for each in self.filters if (_reads(each[1], "filter_reads") is Reads.ROW) is pods),
            tuple(each for each in self.scores if (_reads(each[0], "score_reads") is Reads.ROW) is pods),
        )


class RelativeScores(Struct, frozen=True):
    """Scores that depend on which rows fit, for they are normalised among these.

    Attributes:
        scores: Who gives them, with their weights.
        raw: int64 per row, before normalisation, of those that read Node objects alone; by plugin.
    """

    scores: Sequence[tuple[ScoreRunner, int]]
    raw: Mapping[str, Scores]


class Ranking:
    """All rows in the order in which pods of one kind want them.

    Args:
        instance: The profile.
        scoring: One of the pods, on all rows.
        asked: Who judges; all of them answer by the row alone.
        relative: Scores that are no part of the keys.
        allowed: bool per row: others are left out.

    Attributes:
        keys: int64 per row: higher is better, :data:`NO_FIT` where the pod does not fit.
        fitting: Rows on which it fits.
        relative: Scores that whoever chooses adds, among the rows that fit.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow.
    """

    __slots__ = (
        "_allowed",
        "_filters",
        "_fixed",
        "_instance",
        "_moving",
        "_position",
        "_scoring",
        "_version",
        "fitting",
        "keys",
        "relative",
    )

    def __init__(
        self,
        instance: FrameworkInstance,
        scoring: Scoring,
        asked: Asked,
        relative: RelativeScores,
        allowed: NDArray[np.bool_],
    ) -> None:
        self._instance = instance
        self._scoring = scoring
        self._filters = asked.filters
        self._allowed = allowed
        self._moving = asked.reading(pods=True)
        self.relative = relative
        nodes = scoring.nodes
        self._position, self._version = nodes.changes.position, nodes.version
        self._fixed = self._judge(asked.reading(pods=False), scoring.rows)
        self._fixed[~allowed] = NO_FIT
        self.keys: NDArray[np.int64] = self._sums(self._judge(self._moving, scoring.rows), scoring.rows)
        self.fitting = int(np.count_nonzero(self.keys >= 0))

    def refresh(self) -> bool:
        """Ask again about rows that have changed; whether the ranking still serves.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        nodes = self._scoring.nodes
        changes = nodes.changes
        if nodes.version != self._version:
            return False
        if changes.position == self._position:
            return True
        changed = changes.since(self._position)
        if changed is None:
            return False
        self._position = changes.position
        rows = set(changed)
        if len(rows) <= _FEW_ROWS:
            for row in rows:
                self._refresh_row(row)
        else:
            many = np.fromiter(rows, dtype=np.intp, count=len(rows))
            self.keys[many] = self._sums(self._judge(self._moving, many), many)
            self.fitting = int(np.count_nonzero(self.keys >= 0))
        return True

    def rejected_before(self, position: int) -> NDArray[np.bool_]:
        """Report, bool per row, whether a filter in front of *position* rejects the row, or the row is left out.

        Keys do not say which filter rejects a row. Where all filters of the ranking are in front, that does not matter;
        else those in front run again on the rows in question.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        rejected = self.keys < 0
        if any(each[0] > position for each in self._filters):
            scoring = self._scoring
            rows = np.flatnonzero(rejected & self._allowed)
            earlier = [each for each in self._filters if each[0] < position]
            verdicts = run_filters(self._instance, scoring.state, scoring.pod, scoring.nodes, rows, among=earlier)
            rejected[rows] = verdicts != 0
        return rejected

    def _refresh_row(self, row: int) -> None:
        fixed = self._fixed.item(row)
        if fixed == NO_FIT:
            return
        scoring, keys = self._scoring, self.keys
        state, pod, nodes = scoring.state, scoring.pod, scoring.nodes
        key = fixed
        for _, plugin in self._moving.filters:
            if cast("FilterPlugin", plugin).filter_row(state, pod, nodes, row):
                key = NO_FIT
                break
        else:
            for scorer, weight in self._moving.scores:
                score = cast("ScorePlugin", scorer).score_row(state, pod, nodes, row)
                if not 0 <= score <= MAX_NODE_SCORE:
                    message = f"answered {score} for node {nodes.names[row]}; score from 0 to {MAX_NODE_SCORE}"
                    raise PluginError(scorer.name, "score", message)
                key += score * weight
        self.fitting += (key >= 0) - (keys.item(row) >= 0)
        keys[row] = key

    def _judge(self, asked: Asked, rows: Rows) -> NDArray[np.int64]:
        known = self._scoring
        scoring = known if rows is known.rows else Scoring(known.state, known.pod, known.nodes, rows)
        state, pod, nodes = known.state, known.pod, known.nodes
        times, state.times = state.times, UNTIMED
        try:
            verdicts = run_filters(self._instance, state, pod, nodes, rows, among=asked.filters)
            totals = add_scores(self._instance, scoring, asked.scores).totals
        finally:
            state.times = times
        totals[verdicts != 0] = NO_FIT
        return totals

    def _sums(self, moving: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        fixed = self._fixed[rows]
        return np.where((moving == NO_FIT) | (fixed == NO_FIT), NO_FIT, moving + fixed)


def _reads(plugin: object, point: str) -> Reads:
    found = getattr(plugin, point, Reads.OPAQUE)
    return found if isinstance(found, Reads) else Reads.OPAQUE
