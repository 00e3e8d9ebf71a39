"""Law of cached rows: results that resource plugins cache between pods equal results computed from the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs, read_args
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, PreFilterPlugin
from scheduler_core.model.node import Node
from scheduler_core.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle

GPU = "example.com/gpu"
NODE_COUNT = 200
"""Number of nodes: both refreshing a few changed rows and recomputing all rows occur."""

SIZES = (
    {"cpu": "4", "memory": "16Gi", "pods": "3"},
    {"cpu": "7", "memory": "30Gi", "pods": "110", GPU: "2"},
    {"cpu": "0", "memory": "9Gi", "pods": "2"},
    {"cpu": "64", "memory": "20Ti", "pods": "250"},
)
USUAL = SIZES[:3]
REQUESTS = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["0", "1", "1300m", "3"]), "memory": st.sampled_from(["0", "1Gi", "7000Mi", "9Gi"])},
    optional={GPU: st.sampled_from(["1", "2"])},
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add pod"] * 6 + ["delete pod", "add pods", "resize", "enlarge", "remove node", "add node"]),
        st.integers(0, NODE_COUNT - 1),
        REQUESTS,
    ),
    min_size=2,
    max_size=10,
)
STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
Plugin = NodeResourcesFit | NodeResourcesBalancedAllocation


def _plugins(nodes: NodeColumns, strategy: str) -> tuple[Plugin, ...]:
    scoring: dict[str, Any] = {
        "type": strategy,
        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 2}, {"name": GPU, "weight": 5}],
    }
    if strategy == "RequestedToCapacityRatio":
        points = [{"utilization": 0, "score": 1}, {"utilization": 70, "score": 9}, {"utilization": 100, "score": 0}]
        scoring["requestedToCapacityRatio"] = {"shape": points}
    handle = FakeHandle(nodes=nodes)
    args = read_args("NodeResourcesFit", NodeResourcesFitArgs, {"scoringStrategy": scoring})
    return NodeResourcesFit(args, handle), NodeResourcesBalancedAllocation(
        NodeResourcesBalancedAllocationArgs(), handle
    )


def _results(plugins: tuple[Plugin, ...], info: PodInfo, nodes: NodeColumns, step: int) -> list[list[int]]:
    """Return the plugins' results for all rows, computed for a given number of rows at a time."""
    state, results = CycleState(), []
    row_groups = (
        [ALL_ROWS]
        if step == nodes.size
        else [np.arange(start, min(start + step, nodes.size)) for start in range(0, nodes.size, step)]
    )
    for plugin in plugins:
        if isinstance(plugin, PreFilterPlugin) and isinstance(plugin, FilterPlugin):
            plugin.pre_filter(state, info, nodes)
            codes: list[int] = []
            for rows in row_groups:
                result = plugin.filter(state, info, nodes, rows)
                codes += ([0] * len(nodes.alive[rows])) if result is None else result.tolist()
            results.append(codes)
        results.append([score for rows in row_groups for score in plugin.score(state, info, nodes, rows).tolist()])
    return results


class ChangingColumns:
    """Columns that change step by step."""

    def __init__(self) -> None:
        self.nodes = columns(self.node(row, USUAL[row % 3]) for row in range(NODE_COUNT))
        self.placed: list[PodInfo] = []
        self.created = 0

    def node(self, row: int, size: dict[str, str]) -> Node:
        return node(f"n{row}", allocatable=size)

    def change(self, kind: str, row: int, requests: dict[str, str]) -> None:
        """Apply one change."""
        nodes = self.nodes
        name = f"n{row}"
        if kind in ("add pod", "add pods"):
            for offset in range(1 if kind == "add pod" else 9):
                target = (row + offset) % nodes.size
                if nodes.alive[target]:
                    self.created += 1
                    self.placed.append(nodes.compile_pod(pod(f"p{self.created}", requests=requests)))
                    nodes.add_pod(self.placed[-1], target)
        elif kind == "delete pod" and self.placed:
            nodes.remove_pod(self.placed.pop(row % len(self.placed)))
        elif kind in ("resize", "enlarge") and nodes.row_of(name) >= 0:
            nodes.update_node(self.node(row, SIZES[3] if kind == "enlarge" else USUAL[(row + 1) % 3]))
        elif kind == "remove node" and nodes.row_of(name) >= 0:
            deleted = {info.uid for info in nodes.remove_node(name)}
            self.placed = [info for info in self.placed if info.uid not in deleted]
        elif kind == "add node":
            self.created += 1
            nodes.add_node(self.node(NODE_COUNT + self.created, USUAL[row % 3]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=40)
@given(steps=STEPS)
def test_cached_results_equal_computed_ones(strategy: str, steps: list[tuple[str, int, dict[str, str]]]) -> None:
    """After each change, plugins with cached rows return the results of plugins without."""
    cluster = ChangingColumns()
    cached, fresh = _plugins(cluster.nodes, strategy), _plugins(cluster.nodes, strategy)
    for kind, row, requests in steps:
        cluster.change(kind, row, requests)
        info = cluster.nodes.compile_pod(pod("new", requests=requests))
        expected = _results(fresh, info, cluster.nodes, 9)
        assert _results(cached, info, cluster.nodes, cluster.nodes.size) == expected
        assert _results(cached, info, cluster.nodes, cluster.nodes.size - 7) == expected
