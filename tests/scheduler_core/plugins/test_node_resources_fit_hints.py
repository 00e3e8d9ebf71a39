"""Queueing hints of NodeResourcesFit."""

import pytest

from scheduler_core.config.plugin_args import NodeResourcesFitArgs
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, HintFunction, Resource
from scheduler_core.model.pod import ContainerStatus, Pod, ResourceRequirements
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle

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


@pytest.mark.parametrize(
    ("resource", "action"),
    [
        pytest.param(Resource.ASSIGNED_POD, Action.ADD, id="pod added"),
        pytest.param(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, id="pod labels"),
        pytest.param(Resource.NODE, Action.UPDATE_NODE_TAINT, id="node taints"),
        pytest.param(Resource.NODE, Action.DELETE, id="node deleted"),
        pytest.param(Resource.PERSISTENT_VOLUME, Action.ADD, id="volume added"),
    ],
)
def test_events_that_cannot_help(resource: Resource, action: Action) -> None:
    """Events that free no resources are not registered."""
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle())
    event = ClusterEvent(resource, action)
    assert not [each for each in plugin.events_to_register() if each.event.covers(event)]


def _resized(name: str, spec: str, granted: str) -> Pod:
    status = ContainerStatus("main", {}, ResourceRequirements({"cpu": granted}))
    return pod(name, requests={"cpu": spec}, node_name="a", container_statuses=[status])


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(pod("other", node_name="a"), None, Hint.QUEUE, id="a bound pod is deleted"),
        pytest.param(pod("other", nominated_node="a"), None, Hint.QUEUE, id="a nominated pod is deleted"),
        pytest.param(pod("other"), None, Hint.SKIP, id="a pod without a node is deleted"),
        pytest.param(
            pod("other", requests={"cpu": "4"}, node_name="a"),
            pod("other", requests={"cpu": "3"}, node_name="a"),
            Hint.QUEUE,
            id="a bound pod frees cpu",
        ),
        pytest.param(
            pod("other", requests={"cpu": "4"}),
            pod("other", requests={"cpu": "3"}),
            Hint.SKIP,
            id="a pod without a node frees cpu",
        ),
        pytest.param(
            pod("other", requests={"example.com/a": 2}, node_name="a"),
            pod("other", requests={"example.com/a": 1}, node_name="a"),
            Hint.SKIP,
            id="a bound pod frees a resource that is not requested",
        ),
        pytest.param(
            pod("other", requests={"cpu": "4", "memory": "1Gi"}, node_name="a"),
            pod("other", requests={"cpu": "5", "memory": "1Gi"}, node_name="a"),
            Hint.SKIP,
            id="a bound pod requests more",
        ),
        pytest.param(_resized("other", "1", "4"), _resized("other", "1", "2"), Hint.QUEUE, id="a resize is in force"),
        pytest.param(
            _resized("other", "4", "4"), _resized("other", "1", "4"), Hint.SKIP, id="a resize is only requested"
        ),
        pytest.param(WAITING, pod("waiting", requests={"cpu": "1"}), Hint.QUEUE, id="the pod itself requests less"),
        pytest.param(object(), object(), Hint.QUEUE, id="not a pod"),
    ],
)
def test_after_a_pod_changed(old: object, new: object | None, hint: Hint) -> None:
    """A pod is requeued if another pod frees, on a node, a resource that it requests."""
    assert _hint(Resource.ASSIGNED_POD, Action.DELETE)(WAITING, old, new) is hint


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(None, node(allocatable=LARGE), Hint.QUEUE, id="a large node is added"),
        pytest.param(None, node(allocatable=SMALL), Hint.SKIP, id="a small node is added"),
        pytest.param(None, node(allocatable={**LARGE, "pods": "0"}), Hint.SKIP, id="a node without pod slots is added"),
        pytest.param(node(allocatable=SMALL), node(allocatable=LARGE), Hint.QUEUE, id="allocatable cpu grows enough"),
        pytest.param(node(allocatable=LARGE), node(allocatable=SMALL), Hint.SKIP, id="allocatable cpu shrinks"),
        pytest.param(node(allocatable=LARGE), node(allocatable=LARGE), Hint.SKIP, id="allocatable is unchanged"),
        pytest.param(
            node(allocatable=LARGE),
            node(allocatable={**LARGE, "ephemeral-storage": "1Gi"}),
            Hint.SKIP,
            id="a resource that is not requested grows",
        ),
        pytest.param(
            node(allocatable=LARGE), node(allocatable={**LARGE, "pods": "11"}), Hint.QUEUE, id="allocatable pods grow"
        ),
        pytest.param(node(allocatable=LARGE), None, Hint.SKIP, id="a node is deleted"),
        pytest.param(None, object(), Hint.QUEUE, id="not a node"),
    ],
)
def test_after_a_node_changed(old: object | None, new: object | None, hint: Hint) -> None:
    """A pod is requeued if it fits the empty node and a requested resource of the node has grown."""
    assert _hint(Resource.NODE, Action.ADD)(WAITING, old, new) is hint
