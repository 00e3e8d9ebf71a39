"""Devices on a real API server that serves resource.k8s.io/v1beta2 only, as Kubernetes 1.33 does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hack.controlplane.api_client import status_of
from hack.controlplane.device_driver import devices_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.servers import Options
from tests.support.live_devices import LiveDevices, live_devices
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300)]
NAMESPACE = "default"
VERSION = "resource.k8s.io/v1beta2"
VERSIONS = {"resource.k8s.io/v1": "false", VERSION: "true"}

plane = module_plane(ControlPlane.start_kwok, options=Options(kubernetes="1.37", runtime_config=VERSIONS))


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[LiveDevices]:
    """Create a profile, a driver and a device class; no nodes."""
    with live_devices(plane, operator, NAMESPACE, VERSION) as world:
        world.profile({})
        yield world


def test_devices_are_read_and_claims_written(world: LiveDevices, plane: ControlPlane) -> None:
    """One pod gets a device, two share a claim, one waits, and an extended resource gets its own claim."""
    served = json.loads(plane.kubectl("get", "--raw", "/apis/resource.k8s.io"))["versions"]
    assert [each["version"] for each in served] == ["v1beta2"]
    only = world.machine("a", *({"name": f"gpu-{number}"} for number in range(3)))
    for name in ("own", "shared"):
        world.devices_claim(name)
    world.user("alone", claim="own")
    for name in ("first", "second"):
        world.user(name, claim="shared")
    assert {world.until_scheduled(name) for name in ("alone", "first", "second")} == {only}
    reserved = {each["name"] for each in status_of(world.claim_named("shared"))["reservedFor"]}
    assert reserved == {"first", "second"}
    resource = f"{world.token}.example.com/gpu"
    world.class_for(resource)
    amounts = {"cpu": "100m", resource: "1"}
    world.pod("old-style", container={"resources": {"requests": amounts, "limits": amounts}})
    assert world.until_scheduled("old-style") == only
    assert len(set(world.allocated())) == 3
    created = status_of(world.read("old-style"))["extendedResourceClaimStatus"]["resourceClaimName"]
    claim = world.claim_named(created)
    assert (len(devices_of(claim)), claim["metadata"]["finalizers"]) == (
        1,
        ["resource.kubernetes.io/delete-protection"],
    )
    world.devices_claim("late")
    world.user("waits", claim="late")
    world.until_rejected("waits", "cannot allocate all claims")
