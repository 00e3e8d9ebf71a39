"""Results and errors of the allocator, which are written to the status of claims and to messages of pods.

The messages equal those of kube-scheduler v1.37.1.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import AllocationError, AllocationTimeoutError, InvalidPoolsError
from scheduler_core.model.devices import DeviceClass, ResourceClaim, ResourceSlice
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
from tests.support.presence import present
from tests.support.tables import table

Body = dict[str, Any]


def opaque(value: str) -> Body:
    return {"opaque": {"driver": DRIVER, "parameters": {"v": value}}}


def requirement(key: str, *values: str) -> Body:
    return {"key": key, "operator": "In", "values": list(values)}


def selector(*requirements: Body) -> Body:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}


def allocation_on_n0(
    slices: list[ResourceSlice], wanted: ResourceClaim, classes: list[DeviceClass] | None = None
) -> Body:
    """Return the JSON of the allocation on node ``n0`` with label ``zone: a``."""
    results = present(allocate(cluster(*slices), [wanted], classes or (), labels={"zone": "a", "rack": "1"}))
    allocation: Body = json.loads(msgspec.json.encode(results[0]))
    return allocation


LOCAL = slice_of([device("d0"), device("d1")])
ON_NODE = {"nodeSelectorTerms": [{"matchFields": [requirement("metadata.name", "n0")]}]}


def network(name: str, devices: list[Body], **spec: Any) -> ResourceSlice:
    return slice_of(devices, node="", pool=name, name=name, **spec)


def test_result_with_all_fields() -> None:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7}
    rows = [device("d0", bindingConditions=["ready"], bindingFailureConditions=["failed"])]
    wanted = claim(exactly("r", adminAccess=True, tolerations=[toleration]))
    assert allocation_on_n0([slice_of(rows)], wanted) == {
        "devices": {
            "results": [
                {
                    "request": "r",
                    "driver": DRIVER,
                    "pool": "n0",
                    "device": "d0",
                    "adminAccess": True,
                    "tolerations": [toleration],
                    "bindingConditions": ["ready"],
                    "bindingFailureConditions": ["failed"],
                }
            ]
        },
        "nodeSelector": ON_NODE,
    }


@table(
    "slices, count, expected",
    ("local", [LOCAL], 1, ON_NODE),
    ("all nodes", [network("p", [device("d0")], allNodes=True)], 1, None),
    ("binds to node", [network("p", [device("d0", bindsToNode=True)], allNodes=True)], 1, ON_NODE),
    (
        "node selector",
        [network("p", [device("d0")], nodeSelector=selector(requirement("zone", "a")))],
        1,
        selector(requirement("zone", "a")),
    ),
    (
        "requirements of all selectors, without duplicates",
        [
            network("p", [device("d0")], nodeSelector=selector(requirement("zone", "a", "b"))),
            network("q", [device("d0")], nodeSelector=selector(requirement("zone", "b", "a"))),
            network("s", [device("d0")], nodeSelector=selector(requirement("rack", "1"))),
        ],
        3,
        selector(requirement("zone", "a", "b"), requirement("rack", "1")),
    ),
    ("one local device", [network("a", [device("d0")], allNodes=True), LOCAL], 2, ON_NODE),
    (
        "node selector of the device",
        [
            network(
                "p",
                [device("x", nodeName="n1"), device("d0", nodeSelector=selector(requirement("zone", "a")))],
                perDeviceNodeSelection=True,
            )
        ],
        1,
        selector(requirement("zone", "a")),
    ),
    (
        "node of the device",
        [network("p", [device("x", nodeName="n1"), device("d0", nodeName="n0")], perDeviceNodeSelection=True)],
        1,
        ON_NODE,
    ),
)
def test_node_selector(slices: list[ResourceSlice], count: int, expected: Body | None) -> None:
    assert allocation_on_n0(slices, claim(exactly("r", count=count))).get("nodeSelector") == expected


def test_a_node_selector_with_several_terms_is_an_error() -> None:
    terms = selector(requirement("zone", "a"))["nodeSelectorTerms"] * 2
    with pytest.raises(AllocationError) as raised:
        allocation_on_n0([network("p", [device("d0")], nodeSelector={"nodeSelectorTerms": terms})], claim(exactly("r")))
    assert str(raised.value) == "create NodeSelector for claim c0: unsupported ResourceSlice.NodeSelector with 2 terms"


TWO_CLASSES = [device_class("gpu", config=[opaque("gpu"), opaque("gpu2")]), device_class("plain")]


@table(
    "wanted, expected",
    (
        "configuration of a class of all requests has no request names",
        claim(exactly("r")),
        [{"source": "FromClass", **opaque("gpu")}, {"source": "FromClass", **opaque("gpu2")}],
    ),
    (
        "configuration of a class of one request names the request",
        claim(exactly("r"), exactly("s", device_class_name="plain")),
        [
            {"source": "FromClass", "requests": ["r"], **opaque("gpu")},
            {"source": "FromClass", "requests": ["r"], **opaque("gpu2")},
        ],
    ),
    (
        "configuration of the claim",
        claim(
            exactly("r", device_class_name="plain"),
            exactly("s", device_class_name="plain"),
            config=[
                {"requests": ["s", "r"], **opaque("both")},
                opaque("none"),
                {"requests": ["s"], **opaque("s")},
                {"requests": ["other"], **opaque("other")},
            ],
        ),
        [
            {"source": "FromClaim", **opaque("both")},
            {"source": "FromClaim", **opaque("none")},
            {"source": "FromClaim", "requests": ["s"], **opaque("s")},
        ],
    ),
    (
        "configuration of the chosen alternative",
        claim(
            first_available(
                "r", alternative("x", device_class_name="plain", count=9), alternative("y", device_class_name="plain")
            ),
            exactly("s", device_class_name="plain"),
            config=[
                {"requests": ["r/x"], **opaque("x")},
                {"requests": ["r/y"], **opaque("y")},
                {"requests": ["r"], **opaque("r")},
                {"requests": ["r/y", "s"], **opaque("all")},
            ],
        ),
        [
            {"source": "FromClaim", "requests": ["r/y"], **opaque("y")},
            {"source": "FromClaim", "requests": ["r"], **opaque("r")},
            {"source": "FromClaim", **opaque("all")},
        ],
    ),
)
def test_configuration(wanted: ResourceClaim, expected: list[Body]) -> None:
    assert allocation_on_n0([LOCAL], wanted, TWO_CLASSES)["devices"]["config"] == expected


def policy(**fields: Any) -> Body:
    return {"memory": {"value": "10Gi", "requestPolicy": fields}}


RANGE = {"validRange": {"min": "1Gi", "max": "8Gi", "step": "2Gi"}, "default": "3Gi"}


@table(
    "capacity, requested, consumed",
    ("full capacity by default", {"memory": {"value": "10240Mi"}}, None, "10Gi"),
    ("as requested", {"memory": {"value": "10Gi"}}, "1536Mi", "1536Mi"),
    ("decimal", {"memory": {"value": "10Gi"}}, "2048M", "2048M"),
    ("default", policy(**RANGE), None, "3Gi"),
    ("minimum", policy(**RANGE), "1", "1Gi"),
    ("next step", policy(**RANGE), "1025Mi", "3Gi"),
    ("in the notation of the step", policy(**RANGE), "5000000k", "5Gi"),
    ("next valid value", policy(validValues=["2Gi", "4Gi"], default="2Gi"), "3Gi", "4Gi"),
)
def test_consumed_capacity(capacity: Body, requested: str | None, consumed: str) -> None:
    fields: dict[str, Any] = {} if requested is None else {"capacity": {"requests": {"memory": requested}}}
    rows = [device("d0", capacity=capacity, allowMultipleAllocations=True)]
    result = allocation_on_n0([slice_of(rows)], claim(exactly("r", **fields)))["devices"]["results"][0]
    assert result["consumedCapacity"] == {"memory": consumed}
    assert result["shareID"] == "share"


@table(
    "capacity, requested",
    ("the next step is beyond the maximum", policy(**RANGE), "8Gi"),
    ("beyond the valid values", policy(validValues=["2Gi", "4Gi"], default="2Gi"), "5Gi"),
    ("beyond the capacity", {"memory": {"value": "1Gi"}}, "2Gi"),
)
def test_requests_above_a_devices_capacity(capacity: Body, requested: str) -> None:
    rows = [device("d0", capacity=capacity, allowMultipleAllocations=True)]
    wanted = claim(exactly("r", capacity={"requests": {"memory": requested}}))
    assert allocate(cluster(slice_of(rows)), [wanted]) is None


@table(
    "capacity, requested, problem",
    ("negative", {"memory": {"value": "1Gi"}}, "-1", "capacity value is negative"),
    (
        "overflow",
        policy(validRange={"min": "1", "step": "4"}, default="1"),
        "9223372036854775807",
        (
            "capacity request cannot be represented in the device's range arithmetic: "
            "rounding request 9223372036854775807 up to the next step passes MaxInt64"
        ),
    ),
)
def test_requests_that_raise_allocation_errors(capacity: Body, requested: str, problem: str) -> None:
    rows = [device("d0", capacity=capacity, allowMultipleAllocations=True)]
    wanted = claim(exactly("r", capacity={"requests": {"memory": requested}}))
    with pytest.raises(AllocationError) as raised:
        allocate(cluster(slice_of(rows)), [wanted])
    assert str(raised.value) == (
        f'claim ns/c0, request r: checking capacity for device {DRIVER}/n0/d0: capacity "memory": {problem}'
    )


@pytest.mark.parametrize(
    ("requested", "consumed"), [("100m", "200m"), ("250m", "300m"), ("300m", "300m"), ("1", "1"), ("1100m", None)]
)
def test_fractional_capacity_ranges(requested: str, consumed: str | None) -> None:
    valid_range = {"min": "200m", "step": "100m", "max": "1"}
    capacity = {"cores": {"value": "4", "requestPolicy": {"validRange": valid_range, "default": "200m"}}}
    rows = slice_of([device("d0", capacity=capacity, allowMultipleAllocations=True)])
    wanted = claim(exactly("r", capacity={"requests": {"cores": requested}}))
    results = allocate(cluster(rows, features=DeviceFeatures(fractional_capacity_range=True)), [wanted])
    found = None if results is None else results[0].devices.results[0].consumed_capacity
    assert found == (None if consumed is None else {"cores": consumed})


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
