"""Tests of devices, pools and resource claims in the operator's status."""

from __future__ import annotations

from bayplan.introspection.status_building import StatusSources, devices_state, operator_status
from bayplan.introspection.status_model import DevicesState, Status
from bayplan.introspection.status_rendering import RENDERERS
from bayplan.kube.readiness import Readiness
from msgspec.structs import replace

from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.support.devices import allocated_claim, claim, device, exactly, slice_of
from tests.support.presence import present
from tests.support.scheduling import rig

TWO = [device("d0"), device("d1")]


def state_of(*objects: ResourceSlice | ResourceClaim) -> DevicesState:
    """Return the state of devices for these objects."""
    index = DeviceIndex()
    for each in objects:
        index.assign(each)
    return devices_state(index, "/apis/resource.k8s.io/v1/resourceclaims")


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    """Devices of an obsolete generation of a pool are not counted."""
    old = slice_of([*TWO, device("gone")], name="old", generation=1)
    assert state_of(old, slice_of(TWO, name="new", generation=2)) == DevicesState(
        "resource.k8s.io/v1", devices=2, pools_complete=1
    )


def test_pools_are_complete_incomplete_or_invalid() -> None:
    """A pool with a missing slice is incomplete, and one with a repeated device name is invalid."""
    found = state_of(
        slice_of(TWO, node="n0"),
        slice_of(TWO, node="n1", count=2),
        slice_of([device("d0"), device("d0")], node="n2"),
    )
    assert (found.devices, found.pools_complete, found.pools_incomplete, found.pools_invalid) == (6, 1, 1, 1)


def test_claims_are_allocated_pending_or_in_flight() -> None:
    """A claim in flight is not pending; admin access uses no device, and shares of a device use one."""
    index = DeviceIndex()
    observed = allocated_claim({"device": "d1", "adminAccess": True}, name="observer")
    shared = allocated_claim({"device": "d0", "shareID": "a"}, {"device": "d0", "shareID": "b"})
    waiting, chosen = claim(exactly("r"), name="waiting"), claim(exactly("r"), name="chosen")
    for each in (slice_of(TWO), shared, observed, waiting, chosen):
        index.assign(each)
    allocation = present(allocated_claim({"device": "d1"}).status.allocation)
    index.begin_allocation(chosen, allocation, "uid-of-a-pod")
    found = devices_state(index, "/apis/resource.k8s.io/v1/resourceclaims")
    assert (found.claims_allocated, found.claims_pending, found.claims_in_flight, found.in_use) == (2, 1, 1, 2)


def status_with(*objects: ResourceSlice | ResourceClaim, withheld: str = "") -> Status:
    """Return the status of a scheduler with these objects."""
    made = rig()
    devices = made.context.cache.columns.devices
    for each in objects:
        devices.assign(each)
    devices.withheld = withheld
    return operator_status(StatusSources(made.scheduler, Readiness(())), 0.0)


def test_the_text_has_one_line() -> None:
    """The text has one line about devices, with the API version if claims are watched."""
    status = status_with(
        slice_of(TWO), slice_of(TWO, node="n1", count=2), allocated_claim({"device": "d0"}), claim(exactly("r"))
    )
    line = "Devices  4 in 2 pools (1 incomplete), 1 in use; claims: 1 allocated, 1 pending, 0 in flight"
    assert line in RENDERERS["table"](status).splitlines()
    read = replace(status, devices=replace(status.devices, api_version="resource.k8s.io/v1"))
    assert f"{line}; read in resource.k8s.io/v1" in RENDERERS["table"](read).splitlines()


def test_a_cluster_without_devices_has_no_line() -> None:
    """The text of a cluster without devices has no line about devices."""
    assert "Devices" not in RENDERERS["table"](status_with())


def test_the_text_has_the_reason_for_withheld_claims() -> None:
    """The text has the reason why claims are not allocated."""
    status = status_with(claim(exactly("r")), withheld="the devices are not listed yet")
    assert status.devices.api_version == ""
    assert (
        "Resource claims are not allocated: the devices are not listed yet" in RENDERERS["table"](status).splitlines()
    )
