"""Adapters of plugins that take one node at a time give the same results as vectorized plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    Normalization,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.node_view import NodeView
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler_core.runtime.node_adapters import NodeFilterAdapter, NodeScoreAdapter, filter_runner, score_runner
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns

NO_HANDLE = cast("Handle", None)
FULL, CORDONED = unschedulable("full"), unresolvable("cordoned")


class ColumnWise(FilterPlugin, ScorePlugin):
    """Vectorized: cordoned nodes are ruled out, then full ones; the score is the number of pods."""

    name = "ColumnWise"
    normalization = Normalization.OWN

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        full = nodes.pod_count[rows] >= nodes.allowed_pods[rows]
        return np.where(nodes.unschedulable[rows], 2, full).astype(np.int16)

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return {1: FULL, 2: CORDONED}[code]

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        return nodes.pod_count[rows].copy()

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        return raw * 2


class NodeWise(NodeFilterPlugin, NodeScorePlugin):
    """The same plugin, one node at a time."""

    name = "NodeWise"
    normalization = Normalization.OWN
    answer: object = None

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        if self.answer is not None:
            return cast("Status", self.answer)
        if node.node.spec.unschedulable:
            return CORDONED
        return FULL if len(list(node.pods)) >= int(node.node.status.allocatable["pods"]) else SUCCESS

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        return len(list(node.pods)) if self.answer is None else cast("int", self.answer)

    def normalize(self, state: CycleState, pod: PodInfo, raw: Mapping[str, int]) -> Mapping[str, int]:
        return {name: score * 2 for name, score in raw.items()}


CLUSTERS = st.lists(
    st.tuples(st.booleans(), st.integers(1, 2), st.integers(0, 2), st.booleans()), min_size=1, max_size=8
)


def cluster(drawn: list[tuple[bool, int, int, bool]]) -> NodeColumns:
    """Create nodes by (cordoned, allowed pods, pods, removed)."""
    nodes = [
        node(f"n{number}", unschedulable=cordoned, allocatable={"pods": allowed})
        for number, (cordoned, allowed, _, _) in enumerate(drawn)
    ]
    pods = [
        pod(f"p{number}-{index}", node_name=f"n{number}")
        for number, (_, _, count, _) in enumerate(drawn)
        for index in range(count)
    ]
    filled = columns(nodes, pods)
    for number, (_, _, _, gone) in enumerate(drawn):
        if gone:
            filled.remove_node(f"n{number}")
    return filled


@given(CLUSTERS, st.booleans())
def test_filters_agree(drawn: list[tuple[bool, int, int, bool]], chosen: bool) -> None:
    """Statuses are equal, over all rows and over selected rows."""
    nodes = cluster(drawn)
    alive = np.flatnonzero(nodes.alive)
    rows: Rows = alive[::2] if chosen else ALL_ROWS
    info, state = nodes.compile_pod(pod()), CycleState()
    one, all_at_once = NodeFilterAdapter(NodeWise(None, NO_HANDLE)), ColumnWise(None, NO_HANDLE)
    found, wanted = (plugin.filter(state, info, nodes, rows) for plugin in (one, all_at_once))
    assert found is not None
    assert wanted is not None
    assert (found.dtype, found.shape) == (np.dtype(np.int16), wanted.shape)
    for position in range(len(wanted)) if chosen else alive:
        mine, theirs = int(found[position]), int(wanted[position])
        assert (one.decode(state, info, mine) if mine else SUCCESS) == (
            all_at_once.decode(state, info, theirs) if theirs else SUCCESS
        )


@given(CLUSTERS, st.booleans())
def test_scores_agree(drawn: list[tuple[bool, int, int, bool]], chosen: bool) -> None:
    """Raw and normalized scores are equal; unused rows have 0."""
    nodes = cluster(drawn)
    rows: Rows = np.flatnonzero(nodes.alive)[::2] if chosen else ALL_ROWS
    info, state = nodes.compile_pod(pod()), CycleState()
    one, all_at_once = NodeScoreAdapter(NodeWise(None, NO_HANDLE)), ColumnWise(None, NO_HANDLE)
    raw, wanted = one.score(state, info, nodes, rows), all_at_once.score(state, info, nodes, rows)
    assert (raw.dtype, raw.tolist()) == (np.dtype(np.int64), wanted.tolist())
    assert one.normalize(state, info, raw).tolist() == all_at_once.normalize(state, info, wanted).tolist()


def test_equal_answers_share_a_number() -> None:
    """Also over two calls within one attempt, so that a verdict keeps its meaning."""
    nodes = columns([node("a", unschedulable=True), node("b"), node("c", unschedulable=True)])
    info, state = nodes.compile_pod(pod()), CycleState()
    adapter = NodeFilterAdapter(NodeWise(None, NO_HANDLE))
    first = adapter.filter(state, info, nodes, ALL_ROWS)
    second = adapter.filter(state, info, nodes, np.array([2]))
    assert first is not None
    assert second is not None
    assert (first.tolist(), second.tolist()) == ([1, 0, 1], [1])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param("yes", "returned 'yes' for node a; return a Status", id="no-status"),
        pytest.param(Status(Code.ERROR, ("broken",)), "broken", id="error"),
        pytest.param(Status(Code.ERROR), "failed on node a", id="error-without-words"),
    ],
)
def test_a_filter_returns_an_invalid_value(answer: object, says: str) -> None:
    """The attempt fails with an error that names plugin and node."""
    nodes = columns([node("a")])
    plugin = NodeWise(None, NO_HANDLE)
    plugin.answer = answer
    with pytest.raises(PluginError, match=says):
        NodeFilterAdapter(plugin).filter(CycleState(), nodes.compile_pod(pod()), nodes, ALL_ROWS)


@pytest.mark.parametrize("answer", [1.5, True, "7"])
def test_a_score_is_no_integer(answer: object) -> None:
    """Rounding is up to the plugin."""
    nodes = columns([node("a")])
    plugin = NodeWise(None, NO_HANDLE)
    plugin.answer = answer
    with pytest.raises(PluginError, match="for node a; return an int"):
        NodeScoreAdapter(plugin).score(CycleState(), nodes.compile_pod(pod()), nodes, ALL_ROWS)


@pytest.mark.parametrize(
    ("normalized", "says"),
    [
        pytest.param({}, "returned no score for node a; return one for every node", id="left-out"),
        pytest.param({"a": 33.7}, "returned 33.7 for node a; return an int", id="no-integer"),
        pytest.param(None, "returned None; return scores by node name", id="nothing"),
    ],
)
def test_invalid_results_of_normalize(normalized: object, says: str) -> None:
    """Every node needs an integer score."""

    class Broken(NodeWise):
        name = "Broken"

        def normalize(self, state: CycleState, pod: PodInfo, raw: Mapping[str, int]) -> Mapping[str, int]:
            return cast("Mapping[str, int]", normalized)

    nodes = columns([node("a")])
    adapter, state, info = NodeScoreAdapter(Broken(None, NO_HANDLE)), CycleState(), nodes.compile_pod(pod())
    raw = adapter.score(state, info, nodes, ALL_ROWS)
    with pytest.raises(PluginError, match=says):
        adapter.normalize(state, info, raw)


def test_runners() -> None:
    """Plugins that take one node at a time are adapted, others are used directly."""
    one, all_at_once = NodeWise(None, NO_HANDLE), ColumnWise(None, NO_HANDLE)
    assert isinstance(filter_runner(one), NodeFilterAdapter)
    assert isinstance(score_runner(one), NodeScoreAdapter)
    assert filter_runner(all_at_once) is all_at_once
    assert score_runner(all_at_once) is all_at_once
