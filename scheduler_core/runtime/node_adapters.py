"""Adapters for plugins that filter or score one node at a time, and checks of what plugins return.

Adapters run only on rows that remain, because each row costs a Python call. The error for a wrong value names the
plugin and the point, because it ends up in the event of the failed attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeVar, cast

import numpy as np

from scheduler_core.errors import AttemptLimitError, PluginError
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    Plugin,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import Code, Status, error
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_MAX_CODES = 32_767


def row_numbers(nodes: NodeColumns, rows: Rows) -> list[int]:
    """Return the row numbers for ``rows``, without rows that have no node."""
    if isinstance(rows, slice):
        return [int(row) for row in np.flatnonzero(nodes.alive[rows])]
    return [int(row) for row in rows]


def _view(nodes: NodeColumns, row: int) -> NodeView | None:
    node = nodes.nodes[row]
    return None if node is None else NodeView(nodes, row, node)


class NodeFilterAdapter:
    """Runs a :class:`NodeFilterPlugin` at Filter; distinct statuses are numbered within the attempt."""

    remaining_rows_only = True
    reuse = Reuse()
    """A plugin that is called node by node declares nothing."""

    def __init__(self, plugin: NodeFilterPlugin) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self._key: StateKey[list[Status]] = StateKey(f"{plugin.name}/statuses")

    def prepare(self, state: CycleState) -> list[Status]:
        """Create the list of statuses; states that are cloned later share it, so that each of them can decode."""
        statuses = state.get(self._key)
        if statuses is None:
            statuses = []
            state.write(self._key, statuses)
        return statuses

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Call the plugin for each row."""
        statuses = self.prepare(state)
        numbers = {status: number for number, status in enumerate(statuses, start=1)}
        count = nodes.size if isinstance(rows, slice) else len(rows)
        codes = np.zeros(count, dtype=np.int16)
        positions = row_numbers(nodes, rows)
        for index, row in enumerate(positions):
            view = _view(nodes, row)
            if view is None:
                continue
            status = self.plugin.filter_node(state, pod, view)
            if not isinstance(status, Status):
                raise PluginError(self.name, "filter", f"returned {status!r} for node {view.name}; return a Status")
            if status.is_success:
                continue
            if status.code is Code.ERROR:
                raise PluginError(self.name, "filter", status.message or f"failed on node {view.name}")
            number = numbers.get(status)
            if number is None:
                if len(statuses) == _MAX_CODES:
                    message = f"returned more than {_MAX_CODES} distinct statuses; use fewer"
                    raise PluginError(self.name, "filter", message)
                statuses.append(status)
                number = numbers[status] = len(statuses)
            codes[row if isinstance(rows, slice) else index] = number
        return codes

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        del pod
        return state.read(self._key)[code - 1]


class NodeScoreAdapter:
    """Runs a :class:`NodeScorePlugin` at Score."""

    reuse = Reuse()

    def __init__(self, plugin: NodeScorePlugin) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.normalization = plugin.normalization
        self._key: StateKey[list[str]] = StateKey(f"{plugin.name}/scored")

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Call the plugin for each row; rows without a node get 0."""
        scores = np.zeros(nodes.size if isinstance(rows, slice) else len(rows), dtype=np.int64)
        names: list[str] = [""] * len(scores)
        for index, row in enumerate(row_numbers(nodes, rows)):
            view = _view(nodes, row)
            if view is None:
                continue
            score = self.plugin.score_node(state, pod, view)
            if isinstance(score, bool) or not isinstance(score, int):
                raise PluginError(self.name, "score", f"returned {score!r} for node {view.name}; return an int")
            position = row if isinstance(rows, slice) else index
            scores[position] = score
            names[position] = view.name
        state.write(self._key, names)
        return scores

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Pass all raw scores to the plugin by node name."""
        names = state.read(self._key)
        by_name = {name: int(score) for name, score in zip(names, raw.tolist(), strict=True) if name}
        normalized: object = self.plugin.normalize(state, pod, by_name)
        if not isinstance(normalized, Mapping):
            raise PluginError(self.name, "normalizeScore", f"returned {normalized!r}; return scores by node name")
        missing = sorted(set(by_name) - set(normalized))
        if missing:
            message = f"returned no score for node {missing[0]}; return one for every node"
            raise PluginError(self.name, "normalizeScore", message)
        for name in by_name:
            score = normalized[name]
            if isinstance(score, bool) or not isinstance(score, int):
                raise PluginError(self.name, "normalizeScore", f"returned {score!r} for node {name}; return an int")
        return np.array([normalized.get(name, 0) for name in names], dtype=np.int64)


FilterRunner = FilterPlugin | NodeFilterAdapter
ScoreRunner = ScorePlugin | NodeScoreAdapter


def filter_runner(plugin: Plugin) -> FilterRunner:
    """Return a Filter plugin in the form that takes all rows."""
    return NodeFilterAdapter(plugin) if isinstance(plugin, NodeFilterPlugin) else cast("FilterPlugin", plugin)


def score_runner(plugin: Plugin) -> ScoreRunner:
    """Return a Score plugin in the form that takes all rows."""
    return NodeScoreAdapter(plugin) if isinstance(plugin, NodeScorePlugin) else cast("ScorePlugin", plugin)


log = logging.getLogger(__name__)

T = TypeVar("T")


def checked(answer: object, kind: type[T], plugin: str, point: str) -> T:
    """Return the value if it has the type that the extension point requires.

    Raises:
        PluginError: It has another type.
    """
    if not isinstance(answer, kind):
        raise PluginError(plugin, point, f"returned {answer!r}; return a {kind.__name__}")
    if kind is not Status and not isinstance(status := getattr(answer, "status", None), Status):
        raise PluginError(plugin, point, f"returned a {kind.__name__} with status {status!r}; set a Status")
    return answer


def raised(plugin: str, point: str, pod: PodInfo, fault: Exception) -> Status:
    """Log an exception of a plugin, or the error for a wrong result, with its traceback; return it as a status."""
    log.error(
        "plugin %s failed at %s for pod %s",
        plugin,
        point,
        pod.key,
        exc_info=fault,
        extra={"pod": pod.key, "plugin": plugin},
    )
    return error(str(as_plugin_error(plugin, point, fault))).of(plugin)


def as_plugin_error(plugin: str, point: str, fault: Exception) -> PluginError:
    """Return an exception of a plugin as an error that names the plugin and the point."""
    if isinstance(fault, AttemptLimitError):
        fault.plugin = fault.plugin or plugin
    if isinstance(fault, PluginError):
        return fault
    return PluginError(plugin, point, f"raised {type(fault).__name__}: {fault}")


def refused(status: Status, plugin: str, point: str) -> Status:
    """Return a failed status with its plugin: a rejection as it is, anything else as an error that names both."""
    if status.is_rejected:
        return status.of(plugin)
    problem = PluginError(plugin, point, status.message or f"returned {status.code_name}")
    return Status(Code.ERROR, (str(problem),), plugin, status.is_of_cluster)
