"""Unblocking events of claims, device classes and slices for a rejected pod."""

from __future__ import annotations

import pytest

from scheduler_core.model.devices import ResourceClaim
from tests.support.devices import DRIVER, allocated_claim, claim, device, exactly, slice_of, using, with_reserved
from tests.support.rejected_claims import A100, H100, L4, RejectedPod, gpus


def test_deallocation_and_a_published_device_are_proposed() -> None:
    """A deallocated claim and a published device are proposed; the first names the pod that must end."""
    found = RejectedPod([claim(exactly("r"))], gpus("a100"), with_reserved(allocated_claim({"device": "d0"}), "train"))
    assert [(each.event, each.what, each.fits_on) for each in found.events()] == [
        ("resource.k8s.io/ResourceClaimUpdate", "claim ns/held deallocated after pod train ends", "n0"),
        ("resource.k8s.io/ResourceSliceAdd", "a device like n0/d0 published on node n0", "n0"),
    ]


def test_one_more_device_is_proposed_if_all_match_but_are_too_few() -> None:
    """If all devices of the node match but are too few, one more device like them is proposed."""
    found = RejectedPod([claim(exactly("r", count=2))], gpus("a100"))
    assert [(each.what, each.fits_on) for each in found.events()] == [
        ("a device like n0/d0 published on node n0", "n0")
    ]
    assert found.details() == [("n0", ("request r: needs 2 devices, 1 can be used",))]


def test_a_published_device_has_the_values_that_selectors_require() -> None:
    """The proposed devices have the values that selectors require, and are as many as are missing."""
    memory = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    owned = [device(f"d{number}", "l4", capacity={"memory": {"value": "24Gi"}}) for number in range(2)]
    found = RejectedPod([claim(exactly("r", A100, memory, count=2))], slice_of(owned))
    assert [(each.what, each.fits_on) for each in found.events()] == [
        ("2 devices like n0/d0 with model a100 and memory 40Gi published on node n0", "n0")
    ]


def test_a_device_with_unknown_values_has_no_node() -> None:
    """A device whose required values are ambiguous is proposed without a node, because it cannot be dry-run."""
    found = RejectedPod([claim(exactly("r", f"{L4} || {H100}"))], gpus("a100"))
    assert ("a device for request r published on node n0", None) in [
        (each.what, each.fits_on) for each in found.events()
    ]


@pytest.mark.parametrize(
    ("made", "what"),
    [
        pytest.param(claim(exactly("r", device_class_name="nic")), "device class nic created", id="class"),
        pytest.param(None, "claim ns/missing created", id="claim"),
    ],
)
def test_missing_objects_are_proposed(made: ResourceClaim | None, what: str) -> None:
    """A missing device class and a missing claim are proposed, although no node was evaluated."""
    found = RejectedPod([] if made is None else [made], gpus("a100"))
    if made is None:
        waiting = using(found.pod, "missing")
        info = found.columns.compile_pod(waiting)
        found.found = found.made.scheduler.cycles.examiner.examine(found.instance, info)
    assert what in [each.what for each in found.events()]


def test_dry_runs_leave_the_devices_as_they_are() -> None:
    """The dry runs leave slices, allocations and claims unchanged."""
    found = RejectedPod([claim(exactly("r"))], gpus("a100"), with_reserved(allocated_claim({"device": "d0"}), "train"))
    devices = found.columns.devices

    def state() -> object:
        usage = devices.hardware.allocated.usage((DRIVER, "n0"))
        slices = sorted(each.name for each in devices.hardware.inventory.slices())
        return slices, list(devices.claims), None if usage is None else dict(usage.dedicated)

    before = state()
    assert found.events()
    assert state() == before
