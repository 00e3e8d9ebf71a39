"""NodeUnschedulable: cordoned nodes reject pods without a toleration."""

import numpy as np
import pytest

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import Code
from scheduler_core.model.taints import Toleration
from scheduler_core.plugins.node_unschedulable import NodeUnschedulable, after_node_change, after_toleration_change
from scheduler_core.snapshot.node_columns import ALL_ROWS, Rows
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.tables import table

CORDON = "node.kubernetes.io/unschedulable"
TOLERATION = Toleration(key=CORDON, operator="Exists", effect="NoSchedule")
NODES = columns([node("open"), node("cordoned", unschedulable=True), node("open-too")])


@pytest.fixture
def plugin() -> NodeUnschedulable:
    return NodeUnschedulable(None, FakeHandle(nodes=NODES))


@table(
    "tolerations, rows, codes",
    ("no-toleration", [], ALL_ROWS, [0, 1, 0]),
    ("chosen-rows", [], np.array([1, 2]), [1, 0]),
    ("rows-without-a-cordoned-node", [], np.array([0, 2]), None),
    ("tolerated", [TOLERATION], ALL_ROWS, None),
    ("everything-tolerated", [Toleration(operator="Exists")], ALL_ROWS, None),
    ("equal-to-the-empty-value", [Toleration(key=CORDON)], ALL_ROWS, None),
    ("another-value", [Toleration(key=CORDON, value="x")], ALL_ROWS, [0, 1, 0]),
    ("another-effect", [Toleration(key=CORDON, operator="Exists", effect="NoExecute")], ALL_ROWS, [0, 1, 0]),
)
def test_filter(plugin: NodeUnschedulable, tolerations: list[Toleration], rows: Rows, codes: list[int] | None) -> None:
    """A cordoned node is treated as a node with a NoSchedule taint without value."""
    found = plugin.filter(CycleState(), NODES.compile_pod(pod(tolerations=tolerations)), NODES, rows)
    assert (None if found is None else found.tolist()) == codes


def test_rejection(plugin: NodeUnschedulable) -> None:
    """The rejection is unresolvable by preemption."""
    status = plugin.decode(CycleState(), NODES.compile_pod(pod()), 1)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("node(s) were unschedulable",)


@table(
    "old, new, hint",
    ("added-open", None, node(), Hint.QUEUE),
    ("added-cordoned", None, node(unschedulable=True), Hint.SKIP),
    ("uncordoned", node(unschedulable=True), node(), Hint.QUEUE),
    ("cordoned", node(), node(unschedulable=True), Hint.SKIP),
    ("open-before-and-after", node(), node(), Hint.SKIP),
    ("not-a-node", node(), pod(), Hint.QUEUE),
)
def test_node_hint(old: object, new: object, hint: Hint) -> None:
    """A pod is requeued if the node is schedulable and was not before."""
    assert after_node_change(pod(), old, new) is hint


@table(
    "new, hint",
    ("tolerates-now", pod("waiting", tolerations=[TOLERATION]), Hint.QUEUE),
    ("tolerates-something-else", pod("waiting", tolerations=[Toleration(key="x")]), Hint.SKIP),
    ("another-pod", pod("other", tolerations=[TOLERATION]), Hint.SKIP),
    ("not-a-pod", node(), Hint.QUEUE),
)
def test_toleration_hint(new: object, hint: Hint) -> None:
    """A pod is requeued if its own new tolerations tolerate a cordon."""
    assert after_toleration_change(pod("waiting"), None, new) is hint
