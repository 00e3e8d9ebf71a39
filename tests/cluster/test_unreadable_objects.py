"""Lists that the API server stores as null, and objects that cannot be decoded, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.api_client import status_of
from hack.controlplane.launcher import ControlPlane
from tests.support.live_world import LiveWorld, live_world
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
NAMELESS = {"status": {"images": [{"names": None, "sizeBytes": 12345}, {"names": ["app"], "sizeBytes": 1}]}}


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveWorld]:
    """Create a profile."""
    with live_world(control_plane, operator, namespace) as world:
        world.profile({})
        yield world


def until_rejected(world: LiveWorld, name: str, words: str) -> None:
    world.until(lambda: words in world.condition(name).get("message", ""), f"pod {name} is rejected with {words!r}")
    assert world.node_of(name) == ""


def test_a_cordoned_node_with_an_image_without_names(world: LiveWorld) -> None:
    """A node whose images have null names is read: it gets pods, none while it is cordoned, and again after it."""
    name = world.node("a")
    node = {"kind": "Node", "metadata": {"name": name}}
    world.api.patch(node, NAMELESS, "status")
    assert status_of(world.api.get(f"/api/v1/nodes/{name}"))["images"][0]["names"] is None
    world.pod("before")
    world.until_scheduled("before")
    world.api.patch(node, {"spec": {"unschedulable": True}})
    world.until(lambda: world.api.get(f"/api/v1/nodes/{name}")["spec"].get("unschedulable"), "the node is cordoned")
    world.pod("while-cordoned")
    until_rejected(world, "while-cordoned", "were unschedulable")
    world.operator.terminate()
    world.operator.start()
    world.pod("after-a-restart")
    until_rejected(world, "after-a-restart", "were unschedulable")
    world.api.patch(node, {"spec": {"unschedulable": None}})
    world.until_scheduled("while-cordoned")
    world.until_scheduled("after-a-restart")
    assert world.operator.metric("bayplan_informer_decode_errors_total", resource="nodes") == 0


def test_a_csi_node_without_drivers(world: LiveWorld) -> None:
    """A CSINode whose last driver is gone has null drivers: the driver's volumes have no limit any more."""
    name = world.node("a")
    manifest = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": []},
    }
    world.api.create(manifest)
    try:
        assert world.api.get(f"/apis/storage.k8s.io/v1/csinodes/{name}")["spec"]["drivers"] is None
        world.pod("pod")
        world.until_scheduled("pod")
        assert world.operator.metric("bayplan_informer_decode_errors_total", resource="csinodes") == 0
    finally:
        world.api.delete(manifest)


def test_a_pod_that_cannot_be_decoded(world: LiveWorld) -> None:
    """A bound pod that cannot be decoded keeps its room; after a restart its node accepts no pods, and is named."""
    name = world.node("a")
    world.pod("odd")
    world.until_scheduled("odd")
    odd = {"kind": "Pod", "metadata": {"name": "odd", "namespace": world.namespace}}
    # A year that the API server accepts and Python does not.
    world.api.patch(odd, {"status": {"startTime": "0000-01-01T00:00:00Z"}}, "status")

    def unreadable() -> float:
        return world.operator.metric("bayplan_informer_undecodable_objects", resource="pods")

    world.until(lambda: unreadable() == 1, "the pod is reported")
    world.pod("beside")
    world.until_scheduled("beside")
    world.operator.terminate()
    world.operator.start()
    world.pod("after-a-restart")
    until_rejected(world, "after-a-restart", "had a pod that could not be decoded")
    assert "odd" not in world.condition("after-a-restart")["message"]
    named = {"resource": "pods", "namespace": world.namespace, "object": "odd"}
    assert world.operator.metric("bayplan_informer_undecodable_object", **named) == 1
    warning = "pods: 1 cannot be decoded, and what depends on them fails closed"
    assert f"{warning} ({world.namespace}/odd: " in world.operator.get("/debug/status")[1]
    assert world.operator.get("/readyz") == (200, f"ok\nwarning: {warning}\n")
    difference = f"Node {name}: accepts no pods: node(s) had a pod that could not be decoded"
    assert difference in world.operator.get("/debug/cache")[1]
    world.api.delete(odd, 0)
    world.until_scheduled("after-a-restart")
