"""Node views for plugins that evaluate one node at a time."""

from __future__ import annotations

from scheduler_core.framework.object_reads import NodeView
from tests.support.builders import node, pod
from tests.support.columns import columns


def test_a_view_reads_the_columns() -> None:
    """A view returns amounts in the scheduler's units, and 0 for resources that the node does not have."""
    viewed = node("n1", labels={"zone": "a"}, allocatable={"cpu": "2", "memory": "1Gi", "example.com/gpu": 4})
    filled = columns([node("n0"), viewed], [pod("web", node_name="n1", requests={"cpu": "500m"})])
    view = NodeView(filled, 1, viewed)
    assert (view.name, view.labels, view.row) == ("n1", {"zone": "a"}, 1)
    assert [info.key for info in view.pods] == ["default/web"]
    assert (view.allocatable("cpu"), view.requested("cpu")) == (2000, 500)
    assert (view.allocatable("example.com/gpu"), view.requested("example.com/gpu")) == (4, 0)
    assert view.allocatable("example.com/unknown") == 0
