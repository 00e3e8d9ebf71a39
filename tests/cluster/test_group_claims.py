"""Claims of Kubernetes 1.37 PodGroups on a real API server with controllers: all members share one claim."""

from __future__ import annotations

from functools import partial

import pytest

from hack.controlplane.api_client import status_of
from hack.controlplane.device_driver import devices_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import NATIVE_GROUPS
from tests.support.live_devices import live_devices
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.controllers, pytest.mark.timeout(120)]
GROUPS = NATIVE_GROUPS["1.37"]
NAMESPACE = "default"
OPERATOR_FLAGS = ("--feature-gates=DRAWorkloadResourceClaims=true",)

plane = module_plane(
    ControlPlane.start_kwok,
    partial(
        ControlPlane.start_kube_controller_manager,
        extra_args=["--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true"],
    ),
    options=GROUPS.options,
)
"""Its controllers create claims for PodGroups."""


def test_members_share_the_claim_of_their_group(plane: ControlPlane, operator: OperatorProcess) -> None:
    """One claim is created from the template and reserved for the PodGroup, and both members are bound to its node."""
    with live_devices(plane, operator, NAMESPACE) as world:
        world.profile({})
        node = world.machine("a", {"name": "card"})
        world.machine("b")
        world.template("one")
        source = {"name": "device", "resourceClaimTemplateName": "one"}
        policy = {"gang": {"minCount": 2}}
        uid = world.group("train", 0, GROUPS.api_version, schedulingPolicy=policy, resourceClaims=[source])
        for name in ("train-0", "train-1"):
            world.user(name, template="one", spec={"schedulingGroup": {"podGroupName": "train"}})
        assert {world.until_scheduled("train-0"), world.until_scheduled("train-1")} == {node}
        (claim,) = world.claims()
        assert devices_of(claim) == [(world.driver.name, node, "card")]
        (consumer,) = status_of(claim)["reservedFor"]
        assert consumer == {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": uid}


def test_the_end_of_all_members_frees_no_devices_of_their_group(plane: ControlPlane, operator: OperatorProcess) -> None:
    """No member is evicted for the group's device, which is free when the PodGroup is deleted, and not before."""
    with live_devices(plane, operator, NAMESPACE) as world:
        world.profile({"preemption": {"devices": True}})
        high = world.cluster_object("PriorityClass", "high", "scheduling.k8s.io/v1", value=1000)
        world.machine("a", {"name": "card"})
        world.template("one")
        source = {"name": "device", "resourceClaimTemplateName": "one"}
        world.group("train", 0, GROUPS.api_version, schedulingPolicy={"basic": {}}, resourceClaims=[source])
        world.user("member", template="one", spec={"schedulingGroup": {"podGroupName": "train"}})
        world.until_scheduled("member")
        (held,) = world.claims()
        world.user("high", template="one", spec={"priorityClassName": high})
        world.until_rejected("high", "cannot allocate all claims")
        assert world.exists("member")
        world.delete("member")
        # A claim of a pod, whose controller reacts to the end of the pod.
        world.machine("b", {"name": "card"})
        world.until_scheduled("high")
        own = world.claim_of("high")["metadata"]["name"]
        world.delete("high")
        world.until(lambda: own not in [each["metadata"]["name"] for each in world.claims()], "the pod's claim is gone")
        (kept,) = world.claims()
        assert kept["status"] == held["status"]
        group = {"apiVersion": GROUPS.api_version, "kind": "PodGroup"}
        world.api.delete(group | {"metadata": {"name": "train", "namespace": NAMESPACE}})
        world.until(lambda: not world.allocated(), "the claim of the group has lost its device")
