"""NodeResourcesFit for running pods with a deferred resize.

Expected values follow kube-scheduler v1.37.1, ``noderesources/fit.go`` (``adjustDeltasToAccomodateCacheDiscrepancy``).
"""

from collections.abc import Mapping

import numpy as np

from scheduler_core.config.plugin_args import NodeResourcesFitArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.framework.status import SUCCESS, Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.tables import table

GPU = "example.com/gpu"
DEFERRED = PodCondition("PodResizePending", "True", "Deferred")
MANY = {f"example.com/r{number:02}": 1 for number in range(14)}
ALLOCATABLE: Mapping[str, str | int] = {"cpu": "3", "memory": "3Gi", "pods": "4", GPU: 2}


def _running(requests: Mapping[str, str | int], node_name: str = "b") -> Pod:
    return pod("resized", node_name=node_name, requests=requests, conditions=[DEFERRED])


def _nodes(counted: Pod, others: list[Pod], allocatable: Mapping[str, str | int] = ALLOCATABLE) -> NodeColumns:
    return columns([node("a", allocatable=allocatable), node("b", allocatable=allocatable)], [*others, counted])


def _status(nodes: NodeColumns, resized: Pod, rows: Rows = ALL_ROWS) -> Status:
    """Return the filter's status on node b, the last of the rows."""
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle(nodes=nodes))
    status, found = filter_statuses(plugin, resized, nodes, rows)
    assert status == SUCCESS
    return found[-1]


@table("rows", ("all", ALL_ROWS), ("own-node", np.array([1])))
@table(
    "counted, requests, others, status",
    ("node-counts-it-already", {"cpu": "3"}, {"cpu": "3"}, [], SUCCESS),
    ("overcommitted", {"cpu": "3"}, {"cpu": "3"}, [{"cpu": "1"}], unschedulable("Insufficient cpu")),
    ("larger-than-the-node", {"cpu": "4"}, {"cpu": "4"}, [], unresolvable("Insufficient cpu")),
    ("delta-is-free", {"cpu": "1"}, {"cpu": "3"}, [], SUCCESS),
    ("delta-is-not-free", {"cpu": "1"}, {"cpu": "3"}, [{"cpu": "1"}], unschedulable("Insufficient cpu")),
    ("shrinks", {"cpu": "3"}, {"cpu": "1"}, [{"cpu": "1"}], unschedulable("Insufficient cpu")),
    ("cpu-is-not-requested", {"memory": "1Gi"}, {"memory": "1Gi"}, [{"cpu": "4"}], SUCCESS),
    ("node-counts-the-gpus-already", {GPU: 2}, {GPU: 2}, [{GPU: 1}], SUCCESS),
    ("gpu", {GPU: 1}, {GPU: 2}, [{GPU: 1}], unschedulable("Insufficient example.com/gpu")),
    ("too-many-gpus", {GPU: 1}, {GPU: 4}, [], unresolvable("Insufficient example.com/gpu")),
    ("gpu-delta-is-not-free", {GPU: 2}, {GPU: 3}, [{GPU: 1}], unschedulable("Insufficient example.com/gpu")),
    ("its-pod-slot-counts-twice", {}, {}, [{}, {}, {}], unschedulable("Too many pods")),
)
def test_deltas(
    counted: dict[str, str | int],
    requests: dict[str, str | int],
    others: list[dict[str, str | int]],
    status: Status,
    rows: Rows,
) -> None:
    """On the pod's own node, only the amount that the node does not count yet must be free."""
    beside = [pod(f"other-{number}", node_name="b", requests=each) for number, each in enumerate(others)]
    assert _status(_nodes(_running(counted), beside), _running(requests), rows) == status


def test_a_node_that_does_not_count_the_pod() -> None:
    """The full request must be free on a node that does not count the pod."""
    nodes = _nodes(_running({"cpu": "2"}, "a"), [pod("other", node_name="b", requests={"cpu": "2"})])
    assert _status(nodes, _running({"cpu": "2"}, "a")) == unschedulable("Insufficient cpu")


@table("used, status", ("fits", "3", SUCCESS), ("does-not-fit", "4", unschedulable("Insufficient cpu")))
def test_many_resources(used: str, status: Status) -> None:
    """Statuses are correct on the own node of a pod with more resources than a code has bits."""
    resized = pod("resized", node_name="b", requests={"cpu": "1", **MANY}, conditions=[DEFERRED])
    other = pod("other", node_name="b", requests={"cpu": used})
    assert _status(_nodes(resized, [other], {"cpu": "4", "pods": "9", **MANY}), resized) == status


def test_shortages() -> None:
    """shortages() reports the amount that the node does not count yet."""
    nodes = _nodes(_running({"cpu": "1"}), [pod("other", node_name="b", requests={"cpu": "2"})])
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle(nodes=nodes))
    assert plugin.shortages(CycleState(), nodes.compile_pod(_running({"cpu": "3"})), nodes, 1) == (
        Shortage("cpu", 2000, 0),
    )
