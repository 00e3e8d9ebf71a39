"""Calls of a plugin for one pod in the order of a scheduling cycle, with checks of the result types."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreFilterPlugin, PreScorePlugin
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo


def filter_codes(plugin: Any, incoming: Pod, nodes: NodeColumns, rows: Rows = ALL_ROWS) -> list[int] | str:
    """Return the code of each row, or the name of PreFilter's code if that ends the cycle."""
    state, info = CycleState(), nodes.compile_pod(incoming)
    status = plugin.pre_filter(state, info, nodes).status
    if status is not SUCCESS:
        return str(status.code_name)
    codes = plugin.filter(state, info, nodes, rows)
    assert codes.dtype == np.int16
    return [int(code) for code in codes]


def codes_or_none(plugin: Any, incoming: Pod, nodes: NodeColumns, rows: Rows = ALL_ROWS) -> list[int] | None:
    """Return the code of each row after PreFilter, or None if Filter accepts all."""
    state, info = CycleState(), nodes.compile_pod(incoming)
    if isinstance(plugin, PreFilterPlugin):
        plugin.pre_filter(state, info, nodes)
    codes = plugin.filter(state, info, nodes, rows)
    return None if codes is None else [int(code) for code in codes]


def row_codes(plugin: Any, info: PodInfo, nodes: NodeColumns, state: CycleState | None = None) -> list[int]:
    """Return the code of each row, 0 if PreFilter skips Filter; a state is one after PreFilter."""
    if state is None:
        state = CycleState()
        if plugin.pre_filter(state, info, nodes).status.is_skip:
            return [0] * nodes.size
    codes = plugin.filter(state, info, nodes, ALL_ROWS)
    return [0] * nodes.size if codes is None else [int(code) for code in codes]


def filter_statuses(
    plugin: Any, incoming: Pod, nodes: NodeColumns, rows: Rows = ALL_ROWS, *, pre_filter: bool = True
) -> tuple[Status, list[Status]]:
    """Return PreFilter's status and, unless that ends the cycle, the status of each row."""
    state, info = CycleState(), nodes.compile_pod(incoming)
    status = plugin.pre_filter(state, info, nodes).status if pre_filter else SUCCESS
    if not status.is_success:
        return status, []
    codes = plugin.filter(state, info, nodes, rows)
    if codes is None:
        return status, [SUCCESS] * len(nodes.pod_count[rows])
    assert codes.dtype == np.int16
    return status, [plugin.decode(state, info, code) if code else SUCCESS for code in codes.tolist()]


def normalized_scores(
    plugin: Any, incoming: Pod, nodes: NodeColumns, rows: Rows = ALL_ROWS
) -> tuple[list[int], list[int]] | str:
    """Return raw and normalized scores, or the name of PreScore's code if it is not Success."""
    state, info = CycleState(), nodes.compile_pod(incoming)
    status = plugin.pre_score(state, info, nodes, rows)
    if not status.is_success:
        return str(status.code_name)
    raw = plugin.score(state, info, nodes, rows)
    assert raw.dtype == np.int64
    return [int(each) for each in raw], [int(each) for each in plugin.normalize(state, info, raw)]


def raw_scores(plugin: Any, incoming: Pod, nodes: NodeColumns, rows: Rows = ALL_ROWS) -> list[int]:
    """Return the score of each row; PreScore, if the plugin has it, must be successful."""
    state, info = CycleState(), nodes.compile_pod(incoming)
    if isinstance(plugin, PreScorePlugin):
        assert plugin.pre_score(state, info, nodes, rows) == SUCCESS
    scores = plugin.score(state, info, nodes, rows)
    assert scores.dtype == np.int64
    return [int(score) for score in scores]


def scores_of(plugin: Any, incoming: Pod, nodes: NodeColumns) -> list[int]:
    """Return the score of each row; assert equal scores without PreScore and for a part of the rows."""
    scores = raw_scores(plugin, incoming, nodes)
    assert plugin.score(CycleState(), nodes.compile_pod(incoming), nodes, ALL_ROWS).tolist() == scores
    assert raw_scores(plugin, incoming, nodes, np.arange(1, nodes.size, 2)) == scores[1::2]
    return scores
