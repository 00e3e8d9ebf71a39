"""Adapters of plugins for single nodes, which return the same results as vectorized plugins."""

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
    PermitResult,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import SUCCESS, Code, Status, error, unresolvable, unschedulable
from scheduler_core.runtime.node_adapters import (
    NodeFilterAdapter,
    NodeScoreAdapter,
    checked,
    filter_runner,
    raised,
    refused,
    score_runner,
)
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.tables import table

NO_HANDLE = cast("Handle", None)
FULL, CORDONED = unschedulable("full"), unresolvable("cordoned")


class ColumnWise(FilterPlugin, ScorePlugin):
    """Vectorized plugin that rejects cordoned and full nodes, and scores the number of pods."""

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
    """Plugin for single nodes with the same results."""

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


def cluster(generated: list[tuple[bool, int, int, bool]]) -> NodeColumns:
    """Return columns with nodes given as (cordoned, allowed pods, pods, removed)."""
    nodes = [
        node(f"n{number}", unschedulable=cordoned, allocatable={"pods": allowed})
        for number, (cordoned, allowed, _, _) in enumerate(generated)
    ]
    pods = [
        pod(f"p{number}-{index}", node_name=f"n{number}")
        for number, (_, _, count, _) in enumerate(generated)
        for index in range(count)
    ]
    filled = columns(nodes, pods)
    for number, (_, _, _, removed) in enumerate(generated):
        if removed:
            filled.remove_node(f"n{number}")
    return filled


@given(CLUSTERS, st.booleans())
def test_filter_results_are_equal(generated: list[tuple[bool, int, int, bool]], selects_rows: bool) -> None:
    """The adapter returns equal statuses, for all rows and for selected rows."""
    nodes = cluster(generated)
    alive = np.flatnonzero(nodes.alive)
    rows: Rows = alive[::2] if selects_rows else ALL_ROWS
    info, state = nodes.compile_pod(pod()), CycleState()
    adapter, vectorized = NodeFilterAdapter(NodeWise(None, NO_HANDLE)), ColumnWise(None, NO_HANDLE)
    found, expected = (plugin.filter(state, info, nodes, rows) for plugin in (adapter, vectorized))
    assert found is not None
    assert expected is not None
    assert (found.dtype, found.shape) == (np.dtype(np.int16), expected.shape)
    for position in range(len(expected)) if selects_rows else alive:
        code, expected_code = int(found[position]), int(expected[position])
        assert (adapter.decode(state, info, code) if code else SUCCESS) == (
            vectorized.decode(state, info, expected_code) if expected_code else SUCCESS
        )


@given(CLUSTERS, st.booleans())
def test_scores_are_equal(generated: list[tuple[bool, int, int, bool]], selects_rows: bool) -> None:
    """The adapter returns equal raw and normalized scores."""
    nodes = cluster(generated)
    rows: Rows = np.flatnonzero(nodes.alive)[::2] if selects_rows else ALL_ROWS
    info, state = nodes.compile_pod(pod()), CycleState()
    adapter, vectorized = NodeScoreAdapter(NodeWise(None, NO_HANDLE)), ColumnWise(None, NO_HANDLE)
    raw, expected = adapter.score(state, info, nodes, rows), vectorized.score(state, info, nodes, rows)
    assert (raw.dtype, raw.tolist()) == (np.dtype(np.int64), expected.tolist())
    assert adapter.normalize(state, info, raw).tolist() == vectorized.normalize(state, info, expected).tolist()


def test_equal_statuses_have_equal_codes() -> None:
    """Equal statuses have equal codes, also in two calls of one attempt."""
    nodes = columns([node("a", unschedulable=True), node("b"), node("c", unschedulable=True)])
    info, state = nodes.compile_pod(pod()), CycleState()
    adapter = NodeFilterAdapter(NodeWise(None, NO_HANDLE))
    first = adapter.filter(state, info, nodes, ALL_ROWS)
    second = adapter.filter(state, info, nodes, np.array([2]))
    assert first is not None
    assert second is not None
    assert (first.tolist(), second.tolist()) == ([1, 0, 1], [1])


@table(
    "answer, message",
    ("no-status", "yes", "returned 'yes' for node a; return a Status"),
    ("error", Status(Code.ERROR, ("broken",)), "broken"),
    ("error-without-a-reason", Status(Code.ERROR), "failed on node a"),
)
def test_a_filter_returns_an_invalid_value(answer: object, message: str) -> None:
    """An invalid result of ``filter_node`` raises an error with the plugin and the node."""
    nodes = columns([node("a")])
    plugin = NodeWise(None, NO_HANDLE)
    plugin.answer = answer
    with pytest.raises(PluginError, match=message):
        NodeFilterAdapter(plugin).filter(CycleState(), nodes.compile_pod(pod()), nodes, ALL_ROWS)


@pytest.mark.parametrize("answer", [1.5, True, "7"])
def test_a_score_that_is_not_an_integer(answer: object) -> None:
    """A score that is not an integer raises an error, because scores are not rounded."""
    nodes = columns([node("a")])
    plugin = NodeWise(None, NO_HANDLE)
    plugin.answer = answer
    with pytest.raises(PluginError, match="for node a; return an int"):
        NodeScoreAdapter(plugin).score(CycleState(), nodes.compile_pod(pod()), nodes, ALL_ROWS)


@table(
    "normalized, message",
    ("missing-node", {}, "returned no score for node a; return one for every node"),
    ("not-an-integer", {"a": 33.7}, "returned 33.7 for node a; return an int"),
    ("none", None, "returned None; return scores by node name"),
)
def test_invalid_results_of_normalize(normalized: object, message: str) -> None:
    """A result of ``normalize`` without an integer score for each node raises an error."""

    class Broken(NodeWise):
        name = "Broken"

        def normalize(self, state: CycleState, pod: PodInfo, raw: Mapping[str, int]) -> Mapping[str, int]:
            return cast("Mapping[str, int]", normalized)

    nodes = columns([node("a")])
    adapter, state, info = NodeScoreAdapter(Broken(None, NO_HANDLE)), CycleState(), nodes.compile_pod(pod())
    raw = adapter.score(state, info, nodes, ALL_ROWS)
    with pytest.raises(PluginError, match=message):
        adapter.normalize(state, info, raw)


def test_only_plugins_for_single_nodes_are_adapted() -> None:
    """Plugins for single nodes are adapted, and other plugins are used directly."""
    adapter, vectorized = NodeWise(None, NO_HANDLE), ColumnWise(None, NO_HANDLE)
    assert isinstance(filter_runner(adapter), NodeFilterAdapter)
    assert isinstance(score_runner(adapter), NodeScoreAdapter)
    assert filter_runner(vectorized) is vectorized
    assert score_runner(vectorized) is vectorized


INFO = NodeColumns().compile_pod(pod("web"))


def test_a_valid_result() -> None:
    """A valid result is returned unchanged."""
    assert checked(SUCCESS, Status, "P", "bind") is SUCCESS
    assert checked(PermitResult(), PermitResult, "P", "permit") == PermitResult()


@table(
    "answer, kind, message",
    ("none", None, Status, 'running Bind plugin "P": returned None; return a Status'),
    ("another-kind", SUCCESS, PermitResult, "return a PermitResult"),
    ("without-status", PermitResult("x"), PermitResult, "status 'x'; set a Status"),  # type: ignore[arg-type]  # an invalid value
)
def test_an_invalid_result(answer: object, kind: type[object], message: str) -> None:
    """An invalid result raises an error that contains the valid type."""
    with pytest.raises(PluginError, match=message):
        checked(answer, kind, "P", "bind")


@table(
    "fault, message",
    ("any", ValueError("x"), 'running Bind plugin "P": raised ValueError: x'),
    ("plugin-error", PluginError("Q", "score", "y"), 'running Score plugins: plugin "Q" failed with: y'),
)
def test_an_exception(fault: Exception, message: str) -> None:
    """An exception is converted to an error status with one message."""
    assert raised("P", "bind", INFO, fault) == error(message).of("P")


@table(
    "status, expected",
    ("rejection-is-unchanged", unschedulable("x"), unschedulable("x").of("P")),
    ("error-is-named", error("x"), error('running Bind plugin "P": x').of("P")),
    ("not-allowed", Status(Code.WAIT), error('running Bind plugin "P": returned Wait').of("P")),
)
def test_a_status_other_than_success(status: Status, expected: Status) -> None:
    """A rejection is returned unchanged, and every other status becomes an error."""
    assert refused(status, "P", "bind") == expected
