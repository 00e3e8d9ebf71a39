"""Steps between a pod's creation and its binding, on a real API server: gates, Permit, volumes, preemption.

``test_beside_kube_scheduler.py`` compares victims, budgets and ``preemptionPolicy`` with kube-scheduler; here is what
takes time or needs a plugin that kube-scheduler does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.api_client import status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process
from hack.controlplane.volume_controller import PROVISIONER, VolumeController
from tests.support.approval_plugin import install
from tests.support.live_world import LiveWorld, live_world
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
CRDS = Path(__file__).resolve().parents[2] / "crds"
PRIORITIES = "scheduling.k8s.io/v1"
PROFILE = {
    "plugins": {"permit": {"enabled": [{"name": "Approval"}]}},
    "pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 2}}],
}
VOLUME = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.fixture(scope="module")
def operator(
    control_plane: ControlPlane, kwok: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Start the only operator of the cluster, with the Permit plugin installed beside it."""
    del kwok  # finishes deletions
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    installed = install(tmp_path_factory.mktemp("installed"))
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(control_plane.kubeconfig, log, installed=installed) as operator:
        operator.start()
        yield operator


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveWorld]:
    """Create a node, and a profile with the Permit plugin."""
    with live_world(control_plane, operator, namespace) as world:
        world.profile(PROFILE)
        world.node("a")
        yield world


@pytest.fixture
def volumes(control_plane: ControlPlane) -> Iterator[VolumeController]:
    """Run a volume binder and a provisioner."""
    with VolumeController(control_plane) as volumes:
        yield volumes


def late_class(world: LiveWorld) -> str:
    """Create a StorageClass whose volumes are provisioned for the first pod."""
    return world.cluster_object(
        "StorageClass",
        "late",
        "storage.k8s.io/v1",
        provisioner=PROVISIONER,
        volumeBindingMode="WaitForFirstConsumer",
    )


# -- gates -------------------------------------------------------------------------------------------------------------


def test_a_pod_is_attempted_when_its_last_gate_is_removed(world: LiveWorld) -> None:
    """The condition reports that the pod is gated; when the last gate is removed it is attempted without a backoff."""
    world.pod("p", spec={"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}]})
    # The API server itself writes this condition.
    world.until(lambda: world.condition("p").get("reason") == "SchedulingGated", "the pod is gated")
    world.change("p", {"spec": {"schedulingGates": [{"name": "example.com/b"}]}})
    world.until(
        lambda: world.operator.metric("scheduler_pending_pods", queue="gated") == 1, "the pod is queued as gated"
    )
    world.change("p", {"spec": {"schedulingGates": None}})
    assert world.until_scheduled("p") == f"{world.token}-a"
    assert world.event_notes("p", "FailedScheduling") == []


# -- Permit ------------------------------------------------------------------------------------------------------------


def test_a_pod_that_waits_at_permit_is_bound_when_it_is_allowed(world: LiveWorld) -> None:
    """A pod that waits at Permit stays assumed on its node, so that no other pod gets the resources."""
    world.pod("waits", cpu="3", labels={"approval": "needed"})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.pod("other", cpu="3")
    world.until_rejected("other", "1 Insufficient cpu")
    assert world.node_of("waits") == ""
    world.pod("approver", labels={"approval": "gives"})
    assert world.until_scheduled("waits") == world.until_scheduled("approver") == f"{world.token}-a"


def test_a_pod_that_is_rejected_at_permit_is_unreserved(world: LiveWorld) -> None:
    """The message names the plugin and the reason, and another pod gets the resources."""
    world.pod("waits", cpu="3", labels={"approval": "needed"})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.pod("denier", labels={"approval": "denies"})
    world.until_rejected("waits", "rejected by denier")
    assert world.condition("waits")["reason"] == "Unschedulable"
    world.api.delete({"kind": "Pod", "metadata": {"name": "waits", "namespace": world.namespace}})
    world.pod("other", cpu="3")
    assert world.until_scheduled("other") == f"{world.token}-a"


def test_a_pod_times_out_at_permit(world: LiveWorld) -> None:
    """A pod whose Permit timeout has passed is rejected."""
    world.pod("waits", cpu="3", labels={"approval": "needed", "approval-seconds": "1"})
    world.until_rejected("waits", "rejected due to timeout after waiting 1s at plugin Approval")


def test_a_pod_that_is_deleted_at_permit_is_unreserved(world: LiveWorld) -> None:
    """A pod deleted while it waits at Permit is not bound and no longer assumed."""
    world.pod("waits", cpu="3", labels={"approval": "needed"})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.api.delete({"kind": "Pod", "metadata": {"name": "waits", "namespace": world.namespace}})
    world.pod("other", cpu="3")
    assert world.until_scheduled("other") == f"{world.token}-a"
    world.until(lambda: assumed(world) == 0, "nothing is assumed")


def assumed(world: LiveWorld) -> float:
    """Return the number of assumed pods."""
    return world.operator.metric("scheduler_cache_size", type="assumed_pods")


# -- volumes -----------------------------------------------------------------------------------------------------------


def test_a_volume_is_provisioned_for_the_selected_node(world: LiveWorld, volumes: VolumeController) -> None:
    """The claim gets the selected node, the provisioner creates a volume there, and the pod is bound to that node."""
    world.claim("data", late_class(world))
    world.pod("p", spec=VOLUME)
    assert world.until_scheduled("p") == f"{world.token}-a"
    path = f"/api/v1/namespaces/{world.namespace}/persistentvolumeclaims/data"
    # The volume controller writes the phase later than the fields for which the scheduler waits.
    world.until(lambda: status_of(world.api.get(path)).get("phase") == "Bound", "the claim is bound")
    claim = world.api.get(path)
    assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == f"{world.token}-a"


def test_a_pod_is_rescheduled_if_provisioning_fails(world: LiveWorld, volumes: VolumeController) -> None:
    """The provisioner removes the selected node from the claim; the pod is bound where a volume can be created."""
    volumes.failing_nodes.add(f"{world.token}-large")
    world.node("large", cpu="64")
    world.claim("data", late_class(world))
    world.pod("p", spec=VOLUME)
    world.until(lambda: volumes.refused > 0, "the provisioner has refused")
    node = {"kind": "Node", "metadata": {"name": f"{world.token}-large"}}
    world.api.patch(node, {"spec": {"unschedulable": True}})
    assert world.until_scheduled("p") == f"{world.token}-a"
    world.until(
        lambda: any("VolumeBinding" in note for note in world.event_notes("p", "FailedScheduling")),
        "an event names the plugin",
    )


def test_a_volume_binding_times_out_and_is_retried(world: LiveWorld, volumes: VolumeController) -> None:
    """An event reports the timeout; the pod is bound when the provisioner works again."""
    volumes.working.clear()
    world.claim("data", late_class(world))
    world.pod("p", spec=VOLUME)
    world.until_rejected("p", "VolumeBinding")
    assert world.node_of("p") == ""
    volumes.working.set()
    assert world.until_scheduled("p") == f"{world.token}-a"


# -- preemption --------------------------------------------------------------------------------------------------------


def test_a_preemptor_waits_for_its_victim(world: LiveWorld) -> None:
    """Condition and event of the victim name the preemptor, which stays nominated until the victim is deleted."""
    low = world.cluster_object("PriorityClass", "low", PRIORITIES, value=1)
    high = world.cluster_object("PriorityClass", "high", PRIORITIES, value=2)
    world.pod("victim", cpu="3", finalizers=["example.com/slow"], spec={"priorityClassName": low})
    world.until_scheduled("victim")
    world.pod("important", cpu="3", spec={"priorityClassName": high})
    world.until(lambda: status_of(world.read("important")).get("nominatedNodeName"), "the preemptor is nominated")
    world.until(lambda: world.read("victim")["metadata"].get("deletionTimestamp"), "the victim is being deleted")
    assert world.condition("victim", "DisruptionTarget")["reason"] == "PreemptionByScheduler"
    uid = world.read("important")["metadata"]["uid"]
    world.until(
        lambda: world.event_notes("victim", "Preempted") == [f"Preempted by pod {uid} on node {world.token}-a"],
        "the victim has its event",
    )
    assert world.node_of("important") == ""
    world.change("victim", {"metadata": {"finalizers": None}})
    assert world.until_scheduled("important") == f"{world.token}-a"
    assert not world.exists("victim")


def test_a_victim_that_waits_at_permit_is_not_deleted(world: LiveWorld) -> None:
    """A victim that waits at Permit is rejected and requeued instead of deleted."""
    low = world.cluster_object("PriorityClass", "low", PRIORITIES, value=1)
    high = world.cluster_object("PriorityClass", "high", PRIORITIES, value=2)
    world.pod("waits", cpu="3", labels={"approval": "needed"}, spec={"priorityClassName": low})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.pod("important", cpu="3", spec={"priorityClassName": high})
    assert world.until_scheduled("important") == f"{world.token}-a"
    assert "preempt" in world.until_rejected("waits") or "Insufficient cpu" in world.until_rejected("waits")
    assert "deletionTimestamp" not in world.read("waits")["metadata"]
