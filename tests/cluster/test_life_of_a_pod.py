"""What may come between a pod's creation and its binding, on the real API server: gates, Permit, volumes, preemption.

The choice of victims, budgets and ``preemptionPolicy`` are compared with kube-scheduler in
``test_beside_kube_scheduler.py``; here is what takes time, or a plugin that kube-scheduler does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
    """The only operator of the cluster, beside which the Permit plugin is installed."""
    del kwok  # finishes deletions
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    installed = install(tmp_path_factory.mktemp("installed"))
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(control_plane.kubeconfig, log, installed=installed) as operator:
        operator.start()
        yield operator


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveWorld]:
    """A node, and a profile with the Permit plugin."""
    with live_world(control_plane, operator, namespace) as world:
        world.profile(PROFILE)
        world.node("a")
        yield world


@pytest.fixture
def volumes(control_plane: ControlPlane) -> Iterator[VolumeController]:
    """A volume binder and a provisioner."""
    with VolumeController(control_plane) as volumes:
        yield volumes


def late_class(world: LiveWorld) -> str:
    """A class whose volumes are made for the first pod."""
    return world.wide(
        "StorageClass",
        "late",
        "storage.k8s.io/v1",
        provisioner=PROVISIONER,
        volumeBindingMode="WaitForFirstConsumer",
    )


# -- gates -------------------------------------------------------------------------------------------------------------


def test_a_gate_that_is_removed_lets_the_pod_in_at_once(world: LiveWorld) -> None:
    """Its condition says that it is gated; it is tried when the last gate is removed, without a backoff."""
    world.pod("p", spec={"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}]})
    # The API server itself writes this condition.
    world.until(lambda: world.condition("p").get("reason") == "SchedulingGated", "the pod is gated")
    world.change("p", {"spec": {"schedulingGates": [{"name": "example.com/b"}]}})
    world.until(lambda: world.operator.metric("scheduler_pending_pods", queue="gated") == 1, "it is known as gated")
    world.change("p", {"spec": {"schedulingGates": None}})
    assert world.placed("p") == f"{world.token}-a"
    assert world.notes("p", "FailedScheduling") == []


# -- Permit ------------------------------------------------------------------------------------------------------------


def test_a_pod_that_waits_at_permit_is_bound_when_it_is_allowed(world: LiveWorld) -> None:
    """Its node is held for it meanwhile: nobody else gets the room."""
    world.pod("waits", cpu="3", labels={"approval": "needed"})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.pod("other", cpu="3")
    world.refused("other", "1 Insufficient cpu")
    assert world.node_of("waits") == ""
    world.pod("approver", labels={"approval": "gives"})
    assert world.placed("waits") == world.placed("approver") == f"{world.token}-a"


def test_a_pod_that_is_rejected_at_permit_gives_back_its_room(world: LiveWorld) -> None:
    """The message names the plugin and the reason, and another pod takes the room."""
    world.pod("waits", cpu="3", labels={"approval": "needed"})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.pod("denier", labels={"approval": "denies"})
    world.refused("waits", "denier says no")
    assert world.condition("waits")["reason"] == "Unschedulable"
    world.api.delete({"kind": "Pod", "metadata": {"name": "waits", "namespace": world.namespace}})
    world.pod("other", cpu="3")
    assert world.placed("other") == f"{world.token}-a"


def test_a_pod_waits_at_permit_for_its_time_only(world: LiveWorld) -> None:
    """When the time is over it is refused."""
    world.pod("waits", cpu="3", labels={"approval": "needed", "approval-seconds": "1"})
    world.refused("waits", "rejected due to timeout after waiting 1s at plugin Approval")


def test_a_pod_that_is_deleted_while_it_waits_gives_back_its_room(world: LiveWorld) -> None:
    """Nothing is bound, nothing stays assumed."""
    world.pod("waits", cpu="3", labels={"approval": "needed"})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.api.delete({"kind": "Pod", "metadata": {"name": "waits", "namespace": world.namespace}})
    world.pod("other", cpu="3")
    assert world.placed("other") == f"{world.token}-a"
    world.until(lambda: assumed(world) == 0, "nothing is assumed")


def assumed(world: LiveWorld) -> float:
    """How many pods hold room that are not bound."""
    return world.operator.metric("scheduler_cache_size", type="assumed_pods")


# -- volumes -----------------------------------------------------------------------------------------------------------


def test_a_volume_is_provisioned_where_the_pod_goes(world: LiveWorld, volumes: VolumeController) -> None:
    """The claim gets the selected node, the provisioner creates a volume there, the pod follows."""
    del volumes
    world.claim("data", late_class(world))
    world.pod("p", spec=VOLUME)
    assert world.placed("p") == f"{world.token}-a"
    path = f"/api/v1/namespaces/{world.namespace}/persistentvolumeclaims/data"
    # The volume controller writes the phase after what the scheduler waits for.
    world.until(lambda: world.api.get(path)["status"]["phase"] == "Bound", "the claim is bound")
    claim = world.api.get(path)
    assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == f"{world.token}-a"


def test_provisioning_that_fails_lets_the_pod_go_elsewhere(world: LiveWorld, volumes: VolumeController) -> None:
    """The provisioner takes the node away from the claim; the pod lands where a volume can be made."""
    volumes.failing_nodes.add(f"{world.token}-large")
    world.node("large", cpu="64")
    world.claim("data", late_class(world))
    world.pod("p", spec=VOLUME)
    world.until(lambda: volumes.refused > 0, "the provisioner has refused")
    node = {"kind": "Node", "metadata": {"name": f"{world.token}-large"}}
    world.api.patch(node, {"spec": {"unschedulable": True}})
    assert world.placed("p") == f"{world.token}-a"
    world.until(
        lambda: any("VolumeBinding" in note for note in world.notes("p", "FailedScheduling")),
        "an event names the plugin",
    )


def test_a_binding_that_takes_too_long_is_given_up_and_tried_again(world: LiveWorld, volumes: VolumeController) -> None:
    """The pod gets an event about the time-out; when the provisioner is back, it is bound."""
    volumes.working.clear()
    world.claim("data", late_class(world))
    world.pod("p", spec=VOLUME)
    world.refused("p", "VolumeBinding")
    assert world.node_of("p") == ""
    volumes.working.set()
    assert world.placed("p") == f"{world.token}-a"


# -- preemption --------------------------------------------------------------------------------------------------------


def test_a_victim_that_ends_slowly_is_waited_for(world: LiveWorld) -> None:
    """Its condition and event name the preemptor, whose nominated node it is until the victim is gone."""
    low = world.wide("PriorityClass", "low", PRIORITIES, value=1)
    high = world.wide("PriorityClass", "high", PRIORITIES, value=2)
    world.pod("victim", cpu="3", finalizers=["example.com/slow"], spec={"priorityClassName": low})
    world.placed("victim")
    world.pod("important", cpu="3", spec={"priorityClassName": high})
    world.until(lambda: world.read("important")["status"].get("nominatedNodeName"), "the preemptor is nominated")
    world.until(lambda: world.read("victim")["metadata"].get("deletionTimestamp"), "the victim is being deleted")
    assert world.condition("victim", "DisruptionTarget")["reason"] == "PreemptionByScheduler"
    uid = world.read("important")["metadata"]["uid"]
    world.until(
        lambda: world.notes("victim", "Preempted") == [f"Preempted by pod {uid} on node {world.token}-a"],
        "the victim has its event",
    )
    assert world.node_of("important") == ""
    world.change("victim", {"metadata": {"finalizers": None}})
    assert world.placed("important") == f"{world.token}-a"
    assert not world.exists("victim")


def test_a_pod_that_only_waits_is_sent_back_instead_of_deleted(world: LiveWorld) -> None:
    """A more important pod takes the room of one that waits at Permit, which is not deleted but tried again."""
    low = world.wide("PriorityClass", "low", PRIORITIES, value=1)
    high = world.wide("PriorityClass", "high", PRIORITIES, value=2)
    world.pod("waits", cpu="3", labels={"approval": "needed"}, spec={"priorityClassName": low})
    world.until(lambda: assumed(world) == 1, "the pod waits")
    world.pod("important", cpu="3", spec={"priorityClassName": high})
    assert world.placed("important") == f"{world.token}-a"
    assert "preempt" in world.refused("waits") or "Insufficient cpu" in world.refused("waits")
    assert "deletionTimestamp" not in world.read("waits")["metadata"]
