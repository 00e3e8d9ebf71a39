"""Which events NodeResourcesFit takes for a reason to try again."""

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
    """The hint that is registered for an event."""
    for registration in NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle()).events_to_register():
        if registration.event.covers(ClusterEvent(resource, action)):
            assert registration.hint is not None
            return registration.hint
    pytest.fail(f"nothing is registered for {resource} {action}")


@pytest.mark.parametrize(
    ("resource", "action"),
    [
        pytest.param(Resource.ASSIGNED_POD, Action.ADD, id="a pod takes room"),
        pytest.param(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, id="labels take no room"),
        pytest.param(Resource.NODE, Action.UPDATE_NODE_TAINT, id="taints are another plugin's"),
        pytest.param(Resource.NODE, Action.DELETE, id="a node's end makes no room"),
        pytest.param(Resource.PERSISTENT_VOLUME, Action.ADD, id="volumes are another plugin's"),
    ],
)
def test_events_that_cannot_help(resource: Resource, action: Action) -> None:
    """These are not registered."""
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle())
    happened = ClusterEvent(resource, action)
    assert not [each for each in plugin.events_to_register() if each.event.covers(happened)]


def _resized(name: str, spec: str, granted: str) -> Pod:
    status = ContainerStatus("main", {}, ResourceRequirements({"cpu": granted}))
    return pod(name, requests={"cpu": spec}, node_name="a", container_statuses=[status])


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(pod("other", node_name="a"), None, Hint.QUEUE, id="a placed pod goes"),
        pytest.param(pod("other", nominated_node="a"), None, Hint.QUEUE, id="a nominated pod goes"),
        pytest.param(pod("other"), None, Hint.SKIP, id="a pod that was nowhere goes"),
        pytest.param(
            pod("other", requests={"cpu": "4"}, node_name="a"),
            pod("other", requests={"cpu": "3"}, node_name="a"),
            Hint.QUEUE,
            id="a placed pod frees cpu",
        ),
        pytest.param(
            pod("other", requests={"cpu": "4"}), pod("other", requests={"cpu": "3"}), Hint.SKIP, id="it was nowhere"
        ),
        pytest.param(
            pod("other", requests={"example.com/a": 2}, node_name="a"),
            pod("other", requests={"example.com/a": 1}, node_name="a"),
            Hint.SKIP,
            id="it frees what nobody asked for",
        ),
        pytest.param(
            pod("other", requests={"cpu": "4", "memory": "1Gi"}, node_name="a"),
            pod("other", requests={"cpu": "5", "memory": "1Gi"}, node_name="a"),
            Hint.SKIP,
            id="it grows",
        ),
        pytest.param(_resized("other", "1", "4"), _resized("other", "1", "2"), Hint.QUEUE, id="a resize is granted"),
        pytest.param(_resized("other", "4", "4"), _resized("other", "1", "4"), Hint.SKIP, id="a resize is only asked"),
        pytest.param(WAITING, pod("waiting", requests={"cpu": "1"}), Hint.QUEUE, id="the waiting pod itself shrinks"),
        pytest.param(object(), object(), Hint.QUEUE, id="not a pod: unknown"),
    ],
)
def test_after_a_pod_changed(old: object, new: object | None, hint: Hint) -> None:
    """Freed room counts if it was on a node and the waiting pod asks for such a thing."""
    assert _hint(Resource.ASSIGNED_POD, Action.DELETE)(WAITING, old, new) is hint


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(None, node(allocatable=LARGE), Hint.QUEUE, id="a large node comes"),
        pytest.param(None, node(allocatable=SMALL), Hint.SKIP, id="a small node comes"),
        pytest.param(None, node(allocatable={**LARGE, "pods": "0"}), Hint.SKIP, id="a node for no pods comes"),
        pytest.param(node(allocatable=SMALL), node(allocatable=LARGE), Hint.QUEUE, id="it grew large enough"),
        pytest.param(node(allocatable=LARGE), node(allocatable=SMALL), Hint.SKIP, id="it shrank"),
        pytest.param(node(allocatable=LARGE), node(allocatable=LARGE), Hint.SKIP, id="it did not grow"),
        pytest.param(
            node(allocatable=LARGE),
            node(allocatable={**LARGE, "ephemeral-storage": "1Gi"}),
            Hint.SKIP,
            id="it grew in what nobody asked for",
        ),
        pytest.param(
            node(allocatable=LARGE), node(allocatable={**LARGE, "pods": "11"}), Hint.QUEUE, id="it takes one pod more"
        ),
        pytest.param(node(allocatable=LARGE), None, Hint.SKIP, id="it is gone"),
        pytest.param(None, object(), Hint.QUEUE, id="not a node: unknown"),
    ],
)
def test_after_a_node_changed(old: object | None, new: object | None, hint: Hint) -> None:
    """The empty node must be large enough, and larger than before in something that counts."""
    assert _hint(Resource.NODE, Action.ADD)(WAITING, old, new) is hint
