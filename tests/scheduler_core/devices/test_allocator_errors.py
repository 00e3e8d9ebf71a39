"""Errors and limits of the allocator. The messages equal those of kube-scheduler v1.37.1."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import AllocationError, AllocationTimeoutError, InvalidPoolsError
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from tests.support.devices import (
    DRIVER,
    allocate,
    allocated_claim,
    allocator,
    alternative,
    claim,
    cluster,
    device,
    device_class,
    exactly,
    first_available,
    names,
    slice_of,
)
from tests.support.tables import table

BROKEN = f'device.attributes["{DRIVER}"].absent == 1'
NO_KEY = (
    "no such key: absent. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)
MATCH_MODEL = {"matchAttribute": f"{DRIVER}/model"}
ALL = {"allocationMode": "All"}
THREE = slice_of([device("d0", "a"), device("d1", "b"), device("d2", "a")])


@table(
    "wanted, message",
    (
        "selector of a claim",
        [claim(exactly("r", "true", BROKEN))],
        f"claim ns/c0: selector #1 on device {DRIVER}/n0/d0: CEL runtime error: {NO_KEY}",
    ),
    (
        "selector of a class",
        [claim(exactly("r", device_class_name="broken"))],
        f"class broken: selector #0 on device {DRIVER}/n0/d0: CEL runtime error: {NO_KEY}",
    ),
    (
        "limit of a claim",
        [claim(exactly("r", count=30), exactly("s", count=3))],
        "claim ns/c0, request s: adding 3 devices exceeds the claim limit of 32, with 30 already accounted for",
    ),
    (
        "the smallest alternative counts",
        [claim(first_available("r", alternative("x", count=40), alternative("y", count=33)))],
        "claim ns/c0, request r: adding 33 devices exceeds the claim limit of 32, with 0 already accounted for",
    ),
    (
        "constraint against all",
        [claim(exactly("r", **ALL), constraints=[MATCH_MODEL])],
        f"claim ns/c0, request r: cannot add device {DRIVER}/n0/d1 because a claim constraint would not be satisfied",
    ),
    ("mode", [claim(exactly("r", allocationMode="Some"))], "claim ns/c0, request r: unsupported count mode Some"),
    (
        "no class",
        [claim(exactly("r", device_class_name=""))],
        "claim ns/c0, request r: missing device class name (unsupported request type?)",
    ),
    (
        "unknown selector",
        [claim({"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{}]}})],
        "claim ns/c0, request r, selector #0: CEL expression empty (unsupported selector type?)",
    ),
    (
        "derived attributes",
        [claim(exactly("r", derivedAttributes=[{"name": "a/b", "expression": "1"}]))],
        "claim ns/c0, request r: cannot handle request with derived attributes, the feature is disabled",
    ),
    (
        "unknown constraint",
        [claim(exactly("r"), constraints=[{}])],
        "claim ns/c0, constraint #0: empty constraint (unsupported constraint type?)",
    ),
)
def test_allocation_errors(wanted: list[ResourceClaim], message: str) -> None:
    classes = [device_class(), device_class("broken", BROKEN)]
    with pytest.raises(AllocationError) as raised:
        allocate(cluster(THREE), wanted, classes)
    assert str(raised.value) == message


def test_a_compile_error_names_the_selector() -> None:
    with pytest.raises(AllocationError, match=r"^claim ns/c0: selector #0: CEL compile error: "):
        allocate(cluster(THREE), [claim(exactly("r", "device.("))])


@table(
    "wanted, expected",
    ("a device in use is not evaluated", [claim(exactly("r"))], ["r=d1"]),
    ("the search reaches the selector that fails", [claim(exactly("r"), exactly("s"))], None),
)
def test_selectors_are_evaluated_in_the_order_of_the_search(
    wanted: list[ResourceClaim], expected: list[str] | None
) -> None:
    broken = slice_of([device("d0", "a"), device("d1", attributes={"absent": {"int": 1}}), device("d2", "b")])
    devices = cluster(broken, allocated_claim({"device": "d0"}))
    classes = [device_class("gpu", BROKEN)]
    if expected is not None:
        assert names(allocate(devices, wanted, classes)) == expected
        return
    with pytest.raises(AllocationError, match="d2: CEL runtime error"):
        allocate(devices, wanted, classes)


@table(
    "slices, wanted, device_name",
    (
        "even if another claim needs more devices than exist",
        [THREE],
        [
            claim(exactly("r", adminAccess=True, **ALL), constraints=[MATCH_MODEL]),
            claim(exactly("s", count=4), name="c1"),
        ],
        "d1",
    ),
    (
        "even if equal devices failed without an error",
        [
            slice_of(
                [
                    device(f"d{index}", "a", capacity={"memory": {"value": "2"}}, allowMultipleAllocations=True)
                    for index in range(2)
                ]
            )
        ],
        [
            claim(exactly("r")),
            claim(
                exactly("s", capacity={"requests": {"memory": "1"}}, **ALL),
                name="c1",
                constraints=[{"distinctAttribute": f"{DRIVER}/model"}],
            ),
        ],
        "d1",
    ),
)
def test_constraints_over_all_devices_raise(
    slices: list[ResourceSlice], wanted: list[ResourceClaim], device_name: str
) -> None:
    with pytest.raises(AllocationError, match=f"/{device_name} because a claim constraint would not be satisfied$"):
        allocate(cluster(*slices), wanted)


@pytest.mark.parametrize(
    ("features", "wanted", "message"),
    [
        (
            DeviceFeatures(prioritized_list=False),
            claim(first_available("r", alternative("x"))),
            "claim ns/c0, request r: has subrequests, but the DRAPrioritizedList feature is disabled",
        ),
        (
            DeviceFeatures(consumable_capacity=False),
            claim(exactly("r", capacity={"requests": {"memory": "1"}})),
            "claim ns/c0, request r: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
        (
            DeviceFeatures(admin_access=False),
            claim(exactly("r", adminAccess=False)),
            "claim ns/c0, request r: admin access is requested, but the feature is disabled",
        ),
    ],
)
def test_disabled_features(features: DeviceFeatures, wanted: ResourceClaim, message: str) -> None:
    with pytest.raises(AllocationError) as raised:
        allocate(cluster(THREE, features=features), [wanted])
    assert str(raised.value) == message


@table(
    "spec, all_message",
    ("incomplete", {"count": 2}, "currently being updated"),
    ("invalid", {"devices": [device("d0"), device("d0")]}, "currently invalid"),
)
def test_pools_without_devices(spec: dict[str, Any], all_message: str) -> None:
    rows = spec.pop("devices", [device("d0")])
    devices = cluster(slice_of(rows, **spec))
    with pytest.raises(AllocationError) as raised:
        allocate(devices, [claim(exactly("r", **ALL))])
    assert str(raised.value) == (
        f"claim ns/c0, request r: asks for all devices, but resource pool {DRIVER}/n0 is {all_message}"
    )
    if "invalid" not in all_message:
        assert allocate(devices, [claim(exactly("r"))]) is None
        return
    with pytest.raises(InvalidPoolsError, match=r"^invalid resource pools were encountered$"):
        allocate(devices, [claim(exactly("r"))])


def test_an_invalid_pool_is_ignored_if_another_pool_suffices() -> None:
    devices = cluster(slice_of([device("x"), device("x")], pool="a", name="a"), slice_of([device("d0")]))
    assert names(allocate(devices, [claim(exactly("r"))])) == ["r=d0"]


@pytest.mark.parametrize(
    "limits",
    [SearchLimits(clock=iter(range(1000)).__next__, timeout_seconds=3.0), SearchLimits(clock=lambda: 0.0, max_steps=3)],
)
def test_limits_stop_the_search(limits: SearchLimits) -> None:
    limited = allocator(cluster(THREE), [claim(*(exactly(f"r{index}") for index in range(3)))], limits=limits)
    with pytest.raises(AllocationTimeoutError):
        limited.find("n0", {})


def test_many_claims_need_no_deep_recursion() -> None:
    rows = [device(f"d{index}") for index in range(1200)]
    claims = [claim(*(exactly(f"r{i}") for i in range(30)), name=f"c{number}") for number in range(40)]
    assert len(names(allocate(cluster(slice_of(rows)), claims)) or ()) == 1200
