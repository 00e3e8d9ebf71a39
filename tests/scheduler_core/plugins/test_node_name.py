"""NodeName: a pod with spec.nodeName passes only on that node."""

import numpy as np
import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import Code
from scheduler_core.plugins.node_name import NodeName
from scheduler_core.snapshot.node_columns import ALL_ROWS, Rows
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.tables import table

NODES = columns([node("a"), node("b"), node("c")])


@pytest.fixture
def plugin() -> NodeName:
    return NodeName(None, FakeHandle(nodes=NODES))


def test_a_pod_that_names_no_node_passes_everywhere(plugin: NodeName) -> None:
    """Filter returns no codes for a pod without spec.nodeName."""
    assert plugin.filter(CycleState(), NODES.compile_pod(pod()), NODES, ALL_ROWS) is None


@table(
    "name, rows, codes",
    ("all-rows", "b", ALL_ROWS, [1, 0, 1]),
    ("chosen-rows", "b", np.array([1, 2]), [0, 1]),
    ("rows-without-its-node", "b", np.array([0, 2]), [1, 1]),
    ("unknown-node", "gone", ALL_ROWS, [1, 1, 1]),
    ("unknown-node-chosen-rows", "gone", np.array([0]), [1]),
)
def test_only_the_named_node_passes(plugin: NodeName, name: str, rows: Rows, codes: list[int]) -> None:
    """Every other node has code 1."""
    found = present(plugin.filter(CycleState(), NODES.compile_pod(pod(node_name=name)), NODES, rows))
    assert found.dtype == np.int16
    assert found.tolist() == codes


def test_rejection(plugin: NodeName) -> None:
    """The rejection is unresolvable by preemption."""
    status = plugin.decode(CycleState(), NODES.compile_pod(pod(node_name="b")), 1)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("node(s) didn't match the requested node name",)
