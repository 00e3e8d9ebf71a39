"""PreScore, Score and NormalizeScore over the feasible rows.

Follows kube-scheduler v1.37.1 (``RunScorePlugins``): a normalized score outside 0..100 is an error of its plugin. In
its ``plugins/helper/normalize_score.go``, products beyond int64 overflow; here such scores are scaled exactly. No score
is below ``-_LARGEST_SCALED``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Normalization, PreScorePlugin, Scores
from scheduler_core.framework.status import Code, Status
from scheduler_core.kernels.go_arithmetic import truncated_quotients
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import ScoreRunner, as_plugin_error, checked
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_SUCCESS = Code.SUCCESS


class PluginScores(Struct, frozen=True):
    """Scores of one plugin, int64 per row: as returned, normalized, and multiplied by the weight."""

    raw: Scores
    normalized: Scores
    weighted: Scores


class ScoreTable(Struct):
    """Total scores per row and, if requested, the scores of each plugin by name."""

    totals: Scores
    parts: dict[str, PluginScores] = field(default_factory=dict)


class Scoring(Struct, frozen=True):
    """Arguments of a scoring: a pod and rows, within one attempt."""

    state: CycleState
    pod: PodInfo
    nodes: NodeColumns
    rows: Rows


def run_pre_scores(
    instance: FrameworkInstance, scoring: Scoring, *, among: Sequence[PreScorePlugin] | None = None
) -> None:
    """Run PreScore of the plugins in ``among``, or of all. Raises PluginError: one failed."""
    state, pod, nodes, rows = scoring.state, scoring.pod, scoring.nodes, scoring.rows
    left, now, evaluated = state.recorder.plugin_left, state.recorder.now, state.evaluations.pre_score
    for plugin in instance.pre_score if among is None else among:
        try:
            status = plugin.pre_score(state, pod, nodes, rows)
            if type(status) is not Status:
                status = checked(status, Status, plugin.name, "preScore")
        except Exception as error:
            raise as_plugin_error(plugin.name, "preScore", error) from error
        left((plugin.name, status.code, now()))
        if status.is_skip:
            state.skip_score.add(plugin.name)
            continue
        evaluated[plugin.name] += 1
        if status.code is not Code.SUCCESS:
            raise PluginError(plugin.name, "preScore", status.message or f"returned {status.code_name}")


def run_scores(instance: FrameworkInstance, scoring: Scoring, *, keep_parts: bool = False) -> ScoreTable:
    """Run Score and NormalizeScore; return the totals, with *keep_parts* those of each plugin as well."""
    wanted = [each for each in instance.scores if each[0].name not in scoring.state.skip_score]
    return add_scores(scoring, wanted, keep_parts=keep_parts)


def add_scores(
    scoring: Scoring,
    wanted: Sequence[tuple[ScoreRunner, int]],
    known: Mapping[str, Scores] | None = None,
    *,
    keep_parts: bool = False,
) -> ScoreTable:
    """Return the totals of some plugins, each with its weight; *known* are raw scores that are known already."""
    rows = scoring.rows
    count = scoring.nodes.size if isinstance(rows, slice) else len(rows)
    table = ScoreTable(np.zeros(count, dtype=np.int64))
    left, now = scoring.state.recorder.plugin_left, scoring.state.recorder.now
    for plugin, weight in wanted:
        raw = None if known is None else known.get(plugin.name)
        if raw is None:
            raw = raw_scores(scoring, plugin)
        normalized = raw
        if plugin.normalization is not Normalization.NONE:
            try:
                normalized = _normalized(plugin, raw, scoring)
                _check_shape(plugin.name, normalized, count)
            except Exception as error:
                raise as_plugin_error(plugin.name, "normalizeScore", error) from error
        _check_range(plugin.name, normalized, scoring)
        weighted = normalized if weight == 1 else normalized * weight
        table.totals += weighted
        if keep_parts:
            table.parts[plugin.name] = PluginScores(raw, normalized, weighted)
        left((plugin.name, _SUCCESS, now()))
    return table


def raw_scores(scoring: Scoring, plugin: ScoreRunner) -> Scores:
    """Return the raw scores of a plugin, int64 per row. Raises PluginError: the plugin failed."""
    rows = scoring.rows
    scoring.state.evaluations.score[plugin.name] += scoring.nodes.count if isinstance(rows, slice) else len(rows)
    try:
        raw = plugin.score(scoring.state, scoring.pod, scoring.nodes, rows)
    except Exception as error:
        raise as_plugin_error(plugin.name, "score", error) from error
    _check_shape(plugin.name, raw, scoring.nodes.size if isinstance(rows, slice) else len(rows))
    return raw


def _normalized(plugin: ScoreRunner, raw: Scores, scoring: Scoring) -> Scores:
    match plugin.normalization:
        case Normalization.NONE:
            return raw
        case Normalization.MAX:
            return normalize_max(raw)
        case Normalization.REVERSE_MAX:
            return normalize_reverse_max(raw)
        case Normalization.OWN:
            return plugin.normalize(scoring.state, scoring.pod, raw)


def _check_shape(plugin: str, scores: object, count: int) -> None:
    if not isinstance(scores, np.ndarray) or scores.dtype != np.int64 or scores.shape != (count,):
        shape = getattr(scores, "shape", None)
        kind = getattr(scores, "dtype", type(scores).__name__)
        raise PluginError(plugin, "score", f"returned {kind}{shape}; return int64[{count}]")


def _check_range(plugin: str, scores: Scores, scoring: Scoring) -> None:
    if not len(scores):
        return
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest < 0 or highest > MAX_NODE_SCORE:
        worst = lowest if lowest < 0 else highest
        position = int(np.flatnonzero(scores == worst)[0])
        row = position if isinstance(scoring.rows, slice) else int(scoring.rows[position])
        node = scoring.nodes.names[row]
        raise PluginError(
            plugin, "score", f"returned {worst} for node {node} after normalization; return 0 to {MAX_NODE_SCORE}"
        )


_LARGEST_SCALED = (2**63 - 1) // MAX_NODE_SCORE


def normalize_max(raw: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale to 100 for the highest score, in Go's integers; return *raw* itself if no score is above 0."""
    highest = int(raw.max(initial=0))
    if highest == 0:
        return raw
    return _scaled(raw, highest)


def normalize_reverse_max(raw: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale so that the highest score is 0, and 0 is 100, in Go's integers; 100 for all if all are 0."""
    highest = int(raw.max(initial=0))
    if highest == 0:
        return np.full(raw.shape, MAX_NODE_SCORE, dtype=np.int64)
    scaled = _scaled(raw, highest)
    return np.subtract(MAX_NODE_SCORE, scaled, out=scaled)


def _scaled(raw: NDArray[np.int64], highest: int) -> NDArray[np.int64]:
    if highest <= _LARGEST_SCALED:
        return truncated_quotients(raw * MAX_NODE_SCORE, highest)
    exact = [abs(score) * MAX_NODE_SCORE // highest * (1 if score >= 0 else -1) for score in raw.tolist()]
    return np.array(exact, dtype=np.int64)
