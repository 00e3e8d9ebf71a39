"""Ranking of all nodes for one pod class: where its pods fit, and how much each node scores.

The ranking is updated from the change log of the columns: only changed rows are filtered and scored again. A
changed Node object or a truncated change log ends it, because results that depend on Node objects are computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.errors import PluginError
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.extension_points import (
    MAX_NODE_SCORE,
    FilterPlugin,
    Normalization,
    Reads,
    ScorePlugin,
    Scores,
)
from scheduler_core.runtime.filtering import first_verdicts, run_filters, verdicts_of
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.scoring import Scoring, add_scores, raw_scores
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows

INFEASIBLE = -1
_SCALAR_ROWS = 8
"""Up to this many changed rows are refreshed one by one, which is cheaper than a vectorised call."""


class ReusedPlugins(Struct, frozen=True):
    """Plugins whose results are reused: filters with their positions, scores with their weights."""

    filters: Sequence[tuple[int, FilterPlugin]]
    scores: Sequence[tuple[ScorePlugin, int]]

    def split(self) -> tuple[ReusedPlugins, ReusedPlugins]:
        """Return the plugins that read Node objects alone, and those that also read the pods on a node."""
        by_pods: tuple[list[tuple[int, FilterPlugin]], ...] = ([], [])
        scores: tuple[list[tuple[ScorePlugin, int]], ...] = ([], [])
        for position, runner in self.filters:
            by_pods[Reads.PODS in runner.reuse.filter].append((position, runner))
        for scorer, weight in self.scores:
            scores[Reads.PODS in scorer.reuse.score].append((scorer, weight))
        return ReusedPlugins(by_pods[0], scores[0]), ReusedPlugins(by_pods[1], scores[1])


class NodeRanking:
    """All nodes as the pods of one class see them.

    Attributes:
        verdicts: int32 per row: 0 where the pods fit, else the verdict of the first reused filter that rejects the row;
            anything in freed rows.
        keys: int64 per row: the weighted sum of the reused scores, higher is better; :data:`INFEASIBLE` where the pods
            do not fit.
        feasible_count: Rows on which they fit.
        normalized: Score plugins, with weights, whose scores are normalised over the feasible rows and added for each
            pod.
        nbytes: Memory that the arrays take, in bytes.
        raw: int64 per row: the scores before normalisation of those that read Node objects alone, by plugin.
    """

    __slots__ = (
        "_by_node",
        "_by_pods",
        "_node_keys",
        "_node_verdicts",
        "_pod",
        "_position",
        "_state",
        "_version",
        "feasible_count",
        "keys",
        "nbytes",
        "normalized",
        "raw",
        "verdicts",
    )

    def __init__(self, instance: FrameworkInstance, scoring: Scoring, plugins: ReusedPlugins) -> None:
        """Call the plugins on all rows.

        Args:
            instance: The profile.
            scoring: A pod of the class with an untimed state that PreFilter and PreScore prepared, on all rows.
            plugins: The plugins; every result depends on the row and on Node objects alone.

        Raises:
            PluginError: A plugin raised, or returned what its point does not allow.
        """
        nodes = scoring.nodes
        self._state, self._pod = scoring.state, scoring.pod
        self._position, self._version = nodes.changes.position, nodes.version
        plain = [each for each in plugins.scores if each[0].normalization is Normalization.NONE]
        self._by_node, self._by_pods = ReusedPlugins(plugins.filters, plain).split()
        self._node_verdicts = self._filter(instance, nodes, self._by_node.filters, ALL_ROWS)
        candidates = np.flatnonzero((self._node_verdicts == 0) & nodes.alive)
        self._node_keys = np.full(nodes.size, INFEASIBLE, dtype=np.int64)
        self._node_keys[candidates] = self._score(nodes, self._by_node.scores, candidates)
        self.normalized, self.raw = self._normalized_scores(nodes, plugins.scores, candidates)
        self.verdicts: Verdicts = np.zeros(nodes.size, dtype=np.int32)
        self.keys: NDArray[np.int64] = np.full(nodes.size, INFEASIBLE, dtype=np.int64)
        self._refresh_rows(instance, nodes, np.flatnonzero(nodes.alive))
        verdicts = self.verdicts.nbytes + self._node_verdicts.nbytes
        scores = self.keys.nbytes + self._node_keys.nbytes + sum(raw.nbytes for raw in self.raw.values())
        self.nbytes = verdicts + scores

    def refresh(self, instance: FrameworkInstance, nodes: NodeColumns) -> bool:
        """Filter and score the rows that changed since the last call.

        Returns:
            False if the ranking must be rebuilt.

        Raises:
            PluginError: A plugin raised, or returned what its point does not allow.
        """
        changes = nodes.changes
        if nodes.version != self._version:
            return False
        behind = changes.position - self._position
        if not behind:
            return True
        if behind > len(changes.entries):
            return False
        rows = set(changes.entries[-behind:])
        if len(rows) <= _SCALAR_ROWS:
            for row in rows:
                self._refresh_row(nodes, row)
        else:
            self._refresh_rows(instance, nodes, np.fromiter(rows, dtype=np.intp, count=len(rows)))
        self._position = changes.position
        return True

    def _refresh_row(self, nodes: NodeColumns, row: int) -> None:
        state, pod = self._state, self._pod
        verdict = self._node_verdicts.item(row)
        for position, runner in self._by_pods.filters:
            code = runner.filter_row(state, pod, nodes, row)
            if code:
                found = int(verdicts_of(np.array([code], dtype=np.int16), position)[0])
                verdict = min(verdict, found) if verdict else found
                break
        key = INFEASIBLE
        if not verdict:
            key = self._node_keys.item(row)
            for scorer, weight in self._by_pods.scores:
                score = scorer.score_row(state, pod, nodes, row)
                if not 0 <= score <= MAX_NODE_SCORE:
                    message = f"answered {score} for node {nodes.names[row]}; score from 0 to {MAX_NODE_SCORE}"
                    raise PluginError(scorer.name, "score", message)
                key += score * weight
        self.feasible_count += (key >= 0) - (self.keys.item(row) >= 0)
        self.keys[row], self.verdicts[row] = key, verdict

    def _refresh_rows(self, instance: FrameworkInstance, nodes: NodeColumns, rows: NDArray[np.intp]) -> None:
        found = self._filter(instance, nodes, self._by_pods.filters, rows)
        verdicts = first_verdicts(self._node_verdicts[rows], found)
        self.verdicts[rows] = verdicts
        feasible = rows[verdicts == 0]
        self.keys[rows] = INFEASIBLE
        self.keys[feasible] = self._node_keys[feasible] + self._score(nodes, self._by_pods.scores, feasible)
        self.feasible_count = int(np.count_nonzero(self.keys >= 0))

    def _filter(
        self, instance: FrameworkInstance, nodes: NodeColumns, filters: Sequence[tuple[int, FilterPlugin]], rows: Rows
    ) -> Verdicts:
        return run_filters(instance, self._state, self._pod, nodes, rows, among=filters)

    def _score(
        self,
        nodes: NodeColumns,
        scores: Sequence[tuple[ScorePlugin, int]],
        rows: NDArray[np.intp],
    ) -> Scores:
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        requested: Rows = ALL_ROWS if len(rows) == nodes.size else rows
        return add_scores(Scoring(self._state, self._pod, nodes, requested), scores).totals

    def _normalized_scores(
        self,
        nodes: NodeColumns,
        scores: Sequence[tuple[ScorePlugin, int]],
        candidates: NDArray[np.intp],
    ) -> tuple[list[tuple[ScorePlugin, int]], Mapping[str, Scores]]:
        """Return the plugins whose scores are normalised, and the raw scores that do not change."""
        normalized: list[tuple[ScorePlugin, int]] = []
        raw: dict[str, Scores] = {}
        for scorer, weight in scores:
            if scorer.normalization is Normalization.NONE:
                continue
            if Reads.PODS not in scorer.reuse.score:
                found = np.zeros(nodes.size, dtype=np.int64)
                found[candidates] = raw_scores(Scoring(self._state, self._pod, nodes, candidates), scorer)
                if not len(candidates) or not np.ptp(found[candidates]):
                    # Equal raw scores stay equal, whichever rows are feasible: they change no order.
                    continue
                raw[scorer.name] = found
            normalized.append((scorer, weight))
        return normalized, raw
