"""Queueing hints of NodeResourcesFit."""

import pytest

from scheduler_core.config.plugin_args import NodeResourcesFitArgs
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, HintFunction, Resource
from scheduler_core.model.pod import ContainerStatus, Pod, ResourceRequirements
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.tables import table

WAITING = pod("waiting", requests={"cpu": "2", "memory": "1Gi"})
SMALL = {"cpu": "1", "memory": "4Gi", "pods": "10"}
LARGE = {"cpu": "4", "memory": "4Gi", "pods": "10"}


def _hint(resource: Resource, action: Action) -> HintFunction:
    """Return the hint that is registered for an event."""
    for registration in NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle()).events_to_register():
        if registration.event.covers(ClusterEvent(resource, action)):
            assert registration.hint is not None
            return registration.hint
    pytest.fail(f"nothing is registered for {resource} {action}")


@table(
    "resource, action",
    ("pod added", Resource.ASSIGNED_POD, Action.ADD),
    ("pod labels", Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL),
    ("node taints", Resource.NODE, Action.UPDATE_NODE_TAINT),
    ("node deleted", Resource.NODE, Action.DELETE),
    ("volume added", Resource.PERSISTENT_VOLUME, Action.ADD),
)
def test_events_that_cannot_help(resource: Resource, action: Action) -> None:
    """Events that free no resources are not registered."""
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle())
    event = ClusterEvent(resource, action)
    assert not [each for each in plugin.events_to_register() if each.event.covers(event)]


def _resized(name: str, spec: str, granted: str) -> Pod:
    status = ContainerStatus("main", {}, ResourceRequirements({"cpu": granted}))
    return pod(name, requests={"cpu": spec}, node_name="a", container_statuses=[status])


@table(
    "old, new, hint",
    ("a bound pod is deleted", pod("other", node_name="a"), None, Hint.QUEUE),
    ("a nominated pod is deleted", pod("other", nominated_node="a"), None, Hint.QUEUE),
    ("a pod without a node is deleted", pod("other"), None, Hint.SKIP),
    (
        "a bound pod frees cpu",
        pod("other", requests={"cpu": "4"}, node_name="a"),
        pod("other", requests={"cpu": "3"}, node_name="a"),
        Hint.QUEUE,
    ),
    (
        "a pod without a node frees cpu",
        pod("other", requests={"cpu": "4"}),
        pod("other", requests={"cpu": "3"}),
        Hint.SKIP,
    ),
    (
        "a bound pod frees a resource that is not requested",
        pod("other", requests={"example.com/a": 2}, node_name="a"),
        pod("other", requests={"example.com/a": 1}, node_name="a"),
        Hint.SKIP,
    ),
    (
        "a bound pod requests more",
        pod("other", requests={"cpu": "4", "memory": "1Gi"}, node_name="a"),
        pod("other", requests={"cpu": "5", "memory": "1Gi"}, node_name="a"),
        Hint.SKIP,
    ),
    ("a resize is in force", _resized("other", "1", "4"), _resized("other", "1", "2"), Hint.QUEUE),
    ("a resize is only requested", _resized("other", "4", "4"), _resized("other", "1", "4"), Hint.SKIP),
    ("the pod itself requests less", WAITING, pod("waiting", requests={"cpu": "1"}), Hint.QUEUE),
    ("not a pod", object(), object(), Hint.QUEUE),
)
def test_after_a_pod_changed(old: object, new: object | None, hint: Hint) -> None:
    """A pod is requeued if another pod frees, on a node, a resource that it requests."""
    assert _hint(Resource.ASSIGNED_POD, Action.DELETE)(WAITING, old, new) is hint


@table(
    "old, new, hint",
    ("a large node is added", None, node(allocatable=LARGE), Hint.QUEUE),
    ("a small node is added", None, node(allocatable=SMALL), Hint.SKIP),
    ("a node without pod slots is added", None, node(allocatable={**LARGE, "pods": "0"}), Hint.SKIP),
    ("allocatable cpu grows enough", node(allocatable=SMALL), node(allocatable=LARGE), Hint.QUEUE),
    ("allocatable cpu shrinks", node(allocatable=LARGE), node(allocatable=SMALL), Hint.SKIP),
    ("allocatable is unchanged", node(allocatable=LARGE), node(allocatable=LARGE), Hint.SKIP),
    (
        "a resource that is not requested grows",
        node(allocatable=LARGE),
        node(allocatable={**LARGE, "ephemeral-storage": "1Gi"}),
        Hint.SKIP,
    ),
    ("allocatable pods grow", node(allocatable=LARGE), node(allocatable={**LARGE, "pods": "11"}), Hint.QUEUE),
    ("a node is deleted", node(allocatable=LARGE), None, Hint.SKIP),
    ("not a node", None, object(), Hint.QUEUE),
)
def test_after_a_node_changed(old: object | None, new: object | None, hint: Hint) -> None:
    """A pod is requeued if it fits the empty node and a requested resource of the node has grown."""
    assert _hint(Resource.NODE, Action.ADD)(WAITING, old, new) is hint
