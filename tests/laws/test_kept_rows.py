"""The law of cached rows: results that resource plugins cache between pods equal those computed from the columns."""

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
COUNT = 200
"""Nodes: enough for a few changed rows to be refreshed one by one, and few enough for many to be recomputed."""

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
        st.sampled_from(["come"] * 6 + ["leave", "crowd", "resize", "huge", "remove", "add"]),
        st.integers(0, COUNT - 1),
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


def _answers(plugins: tuple[Plugin, ...], info: PodInfo, nodes: NodeColumns, step: int) -> list[list[int]]:
    """Return the plugins' results for all rows, computed for a given number of rows at a time."""
    state, answers = CycleState(), []
    asked = (
        [ALL_ROWS]
        if step == nodes.size
        else [np.arange(start, min(start + step, nodes.size)) for start in range(0, nodes.size, step)]
    )
    for plugin in plugins:
        if isinstance(plugin, PreFilterPlugin) and isinstance(plugin, FilterPlugin):
            plugin.pre_filter(state, info, nodes)
            codes: list[int] = []
            for rows in asked:
                judged = plugin.filter(state, info, nodes, rows)
                codes += ([0] * len(nodes.alive[rows])) if judged is None else judged.tolist()
            answers.append(codes)
        answers.append([score for rows in asked for score in plugin.score(state, info, nodes, rows).tolist()])
    return answers


class Life:
    """A cluster whose columns change step by step."""

    def __init__(self) -> None:
        self.nodes = columns(self.node(row, USUAL[row % 3]) for row in range(COUNT))
        self.placed: list[PodInfo] = []
        self.made = 0

    def node(self, row: int, size: dict[str, str]) -> Node:
        return node(f"n{row}", allocatable=size)

    def change(self, kind: str, row: int, requests: dict[str, str]) -> None:
        """Apply one change."""
        nodes = self.nodes
        name = f"n{row}"
        if kind in ("come", "crowd"):
            for offset in range(1 if kind == "come" else 9):
                here = (row + offset) % nodes.size
                if nodes.alive[here]:
                    self.made += 1
                    self.placed.append(nodes.compile_pod(pod(f"p{self.made}", requests=requests)))
                    nodes.add_pod(self.placed[-1], here)
        elif kind == "leave" and self.placed:
            nodes.remove_pod(self.placed.pop(row % len(self.placed)))
        elif kind in ("resize", "huge") and nodes.row_of(name) >= 0:
            nodes.update_node(self.node(row, SIZES[3] if kind == "huge" else USUAL[(row + 1) % 3]))
        elif kind == "remove" and nodes.row_of(name) >= 0:
            gone = {info.uid for info in nodes.remove_node(name)}
            self.placed = [info for info in self.placed if info.uid not in gone]
        elif kind == "add":
            self.made += 1
            nodes.add_node(self.node(COUNT + self.made, USUAL[row % 3]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=40)
@given(steps=STEPS)
def test_kept_answers_are_those_of_the_columns(strategy: str, steps: list[tuple[str, int, dict[str, str]]]) -> None:
    """After each change, plugins with caches return for all rows what plugins without caches return for a few."""
    life = Life()
    kept, fresh = _plugins(life.nodes, strategy), _plugins(life.nodes, strategy)
    for kind, row, requests in steps:
        life.change(kind, row, requests)
        info = life.nodes.compile_pod(pod("new", requests=requests))
        expected = _answers(fresh, info, life.nodes, 9)
        assert _answers(kept, info, life.nodes, life.nodes.size) == expected
        assert _answers(kept, info, life.nodes, life.nodes.size - 7) == expected
