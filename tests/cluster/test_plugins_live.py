"""Plugins that read more than pods and nodes, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process
from tests.support.live_world import LiveWorld, live_world
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
BY_CPU: Manifest = {
    "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
        }
    ],
}
BIND_COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
VOLUME = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveWorld]:
    """Create a profile that scores nodes by free CPU."""
    with live_world(control_plane, operator, namespace) as world:
        world.profile(BY_CPU)
        yield world


def local_volume(world: LiveWorld, node: str, class_name: str, **spec: Any) -> str:
    """Create a volume of 1Gi that is reachable from one node; return its name."""
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    reach = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "storageClassName": class_name}
    fields = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/mnt"}}
    return world.cluster_object(
        "PersistentVolume", "pv", spec={**fields, **reach, **spec}, status={"phase": "Available"}
    )


def create_and_await(world: LiveWorld, kind: str, version: str, spec: Manifest) -> None:
    """Create an object, and wait until the operator has received it."""
    resource = f"{kind.lower()}s"
    before = world.operator.metric("bayplan_informer_objects", resource=resource)
    world.namespaced_object(kind, "created", version, spec=spec)
    world.until(
        lambda: world.operator.metric("bayplan_informer_objects", resource=resource) > before, f"{kind} is received"
    )


def test_required_anti_affinity(world: LiveWorld) -> None:
    """The second pod is bound to the smaller node, and the third is unschedulable with the plugin's reason."""
    nodes = [world.node("large", cpu="100"), world.node("small")]
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for name, node in zip("ab", nodes, strict=True):
        world.pod(name, labels={"app": "db"}, spec={"affinity": away})
        assert world.until_scheduled(name) == node
    world.pod("c", labels={"app": "db"}, spec={"affinity": away})
    world.until_rejected("c", "2 node(s) didn't match pod anti-affinity rules")


def test_a_service_spreads_its_pods_over_zones(world: LiveWorld) -> None:
    """Pods without spread constraints are spread over zones if a Service selects them; others pick the larger node."""
    large, small = world.node("large", labels={ZONE: "a"}, cpu="400"), world.node("small", labels={ZONE: "b"})
    service = {"selector": {"app": "web"}, "clusterIP": "None", "ports": [{"port": 80}]}
    create_and_await(world, "Service", "v1", service)
    for name in "abcd":
        world.pod(f"web-{name}", labels={"app": "web"})
        world.pod(f"other-{name}", labels={"app": "other"})
    assert sorted(world.until_scheduled(f"web-{name}") for name in "abcd") == [large, large, small, small]
    assert {world.until_scheduled(f"other-{name}") for name in "abcd"} == {large}


def test_a_bound_volume_restricts_its_pod(world: LiveWorld) -> None:
    """A pod is bound to the node from which its volume is reachable, though another node has more room."""
    world.node("large", cpu="100")
    small = world.node("small")
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": world.namespace, "name": "data"}
    volume = local_volume(world, small, "", claimRef=reference)
    world.claim("data", "", BIND_COMPLETED, volumeName=volume)
    world.pod("p", spec=VOLUME)
    assert world.until_scheduled("p") == small


def test_a_volume_is_bound_for_its_first_pod(world: LiveWorld) -> None:
    """The scheduler writes the claim into a reachable volume, and binds the pod when the claim is bound."""
    world.node("large", cpu="100")
    small = world.node("small")
    class_name = world.cluster_object(
        "StorageClass",
        "waits",
        "storage.k8s.io/v1",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    volume = local_volume(world, small, class_name)
    world.claim("data", class_name)
    world.pod("p", spec=VOLUME)

    def is_claimed() -> bool:
        spec = world.api.get(f"/api/v1/persistentvolumes/{volume}")["spec"]
        return bool(spec.get("claimRef", {}).get("name") == "data")

    world.until(is_claimed, "the volume has the claim")
    # The volume controller would write this.
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": world.namespace}}
    world.api.patch(claim, {"metadata": {"annotations": BIND_COMPLETED}, "spec": {"volumeName": volume}})
    assert world.until_scheduled("p") == small


def test_preemption_spares_a_disruption_budget(world: LiveWorld, kwok: Process) -> None:
    """The victim is deleted and the preemptor gets its node; a pod of lower priority with a budget is not evicted."""
    del kwok  # finishes deletions
    low, middle, high = (
        world.cluster_object("PriorityClass", name, "scheduling.k8s.io/v1", value=value)
        for value, name in enumerate(("low", "middle", "high"))
    )
    first = world.node("first")
    world.pod("protected", labels={"app": "protected"}, cpu="3", spec={"priorityClassName": low})
    assert world.until_scheduled("protected") == first
    second = world.node("second")
    world.pod("victim", cpu="3", spec={"priorityClassName": middle})
    assert world.until_scheduled("victim") == second
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}
    create_and_await(world, "PodDisruptionBudget", "policy/v1", budget)
    world.pod("important", cpu="3", spec={"priorityClassName": high})
    assert (world.until_scheduled("important"), world.node_of("protected")) == (second, first)
    world.until(lambda: not world.exists("victim"), "the victim is deleted")
