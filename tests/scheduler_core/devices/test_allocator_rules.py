"""Rules of the allocator. kube-scheduler v1.37.1 makes the same decisions."""

from __future__ import annotations

from typing import Any

from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from tests.support.devices import (
    DRIVER,
    allocate,
    allocated_claim,
    alternative,
    claim,
    cluster,
    device,
    exactly,
    first_available,
    names,
    slice_of,
)
from tests.support.tables import table

MODEL_A = f'device.attributes["{DRIVER}"].model == "a"'
MATCH_MODEL = {"matchAttribute": f"{DRIVER}/model"}
DISTINCT_MODEL = {"distinctAttribute": f"{DRIVER}/model"}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
ALL = {"allocationMode": "All"}
SHAREABLE: dict[str, Any] = {"allowMultipleAllocations": True}
CONSUMES = [{"counterSet": "s", "counters": {"x": {"value": "2"}}}]
COUNTERS = slice_of(
    name="counters", pool="n0", count=2, sharedCounters=[{"name": "s", "counters": {"x": {"value": "3"}}}]
)

THREE = slice_of([device("d0", "a"), device("d1", "b"), device("d2", "a")])
SHARED = slice_of([device("d0", capacity={"memory": {"value": "10Gi"}}, **SHAREABLE)])
PARTITIONS = slice_of([device(f"d{index}", consumesCounters=CONSUMES) for index in range(2)], count=2)
SHARED_PARTITION = slice_of(
    [device("d0", consumesCounters=CONSUMES, **SHAREABLE), device("d1", consumesCounters=CONSUMES)], count=2
)


@table(
    "objects, wanted, expected",
    ("first device", [THREE], [claim(exactly("r"))], ["r=d0"]),
    ("count", [THREE], [claim(exactly("r", count=2))], ["r=d0", "r=d1"]),
    ("too few", [THREE], [claim(exactly("r", count=4))], None),
    ("selector", [THREE], [claim(exactly("r", MODEL_A, count=2))], ["r=d0", "r=d2"]),
    ("in use", [THREE, allocated_claim({"device": "d0"})], [claim(exactly("r"))], ["r=d1"]),
    (
        "in use with admin access",
        [THREE, allocated_claim({"device": "d0", "adminAccess": True})],
        [claim(exactly("r"))],
        ["r=d0"],
    ),
    (
        "admin access to a device in use",
        [THREE, allocated_claim({"device": "d0"})],
        [claim(exactly("r", adminAccess=True))],
        ["r=d0"],
    ),
    ("admin access to each device once per claim", [THREE], [claim(exactly("r", adminAccess=True, count=4))], None),
    (
        "devices with admin access are in use for other requests of the pod",
        [THREE],
        [claim(exactly("r", adminAccess=True, count=3)), claim(exactly("s"), name="c1")],
        None,
    ),
    (
        "admin access to a device of another claim",
        [THREE],
        [claim(exactly("r")), claim(exactly("s", adminAccess=True), name="c1")],
        ["r=d0", "s=d0"],
    ),
    (
        "backtracking over requests",
        [THREE],
        [claim(exactly("r"), exactly("s", MODEL_A, count=2))],
        ["r=d1", "s=d0", "s=d2"],
    ),
    (
        "backtracking over claims",
        [THREE],
        [claim(exactly("r")), claim(exactly("s", MODEL_A, count=2), name="c1")],
        ["r=d1", "s=d0", "s=d2"],
    ),
    ("all", [THREE], [claim(exactly("r", **ALL))], ["r=d0", "r=d1", "r=d2"]),
    ("all, one in use", [THREE, allocated_claim({"device": "d1"})], [claim(exactly("r", **ALL))], None),
    ("all that match", [THREE], [claim(exactly("r", MODEL_A, **ALL))], ["r=d0", "r=d2"]),
    ("all without matching devices", [THREE], [claim(exactly("r", "false", **ALL))], None),
    ("no slices", [], [claim(exactly("r"))], None),
    ("no requests", [], [claim()], []),
    (
        "second alternative",
        [THREE],
        [claim(first_available("r", alternative("x", count=4), alternative("y", MODEL_A)))],
        ["r/y=d0"],
    ),
    (
        "an alternative must let the following requests succeed",
        [THREE],
        [claim(first_available("r", alternative("x", count=2), alternative("y")), exactly("s", count=2))],
        ["r/y=d0", "s=d1", "s=d2"],
    ),
    ("matchAttribute", [THREE], [claim(exactly("r", count=2), constraints=[MATCH_MODEL])], ["r=d0", "r=d2"]),
    ("matchAttribute fails", [THREE], [claim(exactly("r", count=3), constraints=[MATCH_MODEL])], None),
    ("distinctAttribute", [THREE], [claim(exactly("r", count=2), constraints=[DISTINCT_MODEL])], ["r=d0", "r=d1"]),
    (
        "distinctAttribute compares all devices of a request",
        [THREE],
        [claim(exactly("r", count=3), constraints=[DISTINCT_MODEL])],
        None,
    ),
    (
        "a device without the attribute is not usable",
        [slice_of([device("d0"), device("d1", "a")])],
        [claim(exactly("r"), constraints=[MATCH_MODEL])],
        ["r=d1"],
    ),
    (
        "a constraint that does not cover the request",
        [slice_of([device("d0"), device("d1", "a")])],
        [claim(exactly("r"), constraints=[{**MATCH_MODEL, "requests": ["other"]}])],
        ["r=d0"],
    ),
    (
        "a constraint that names an alternative",
        [slice_of([device("d0"), device("d1", "a")])],
        [claim(first_available("r", alternative("x")), constraints=[{**MATCH_MODEL, "requests": ["r/x"]}])],
        ["r/x=d1"],
    ),
    (
        "an attribute of another domain",
        [slice_of([device("d0", attributes={"other.example.com/model": {"string": "a"}}), device("d1", "a")])],
        [claim(exactly("r"), constraints=[{"matchAttribute": "other.example.com/model"}])],
        ["r=d0"],
    ),
    (
        "lists do not match",
        [slice_of([device(f"d{i}", attributes={"model": {"strings": ["a"]}}) for i in range(2)])],
        [claim(exactly("r", count=2), constraints=[MATCH_MODEL])],
        None,
    ),
    ("taint", [slice_of([device("d0", taints=[TAINT])])], [claim(exactly("r"))], None),
    ("effect None", [slice_of([device("d0", taints=[{**TAINT, "effect": "None"}])])], [claim(exactly("r"))], ["r=d0"]),
    (
        "tolerated",
        [slice_of([device("d0", taints=[TAINT])])],
        [claim(exactly("r", tolerations=[{"key": "k", "operator": "Exists"}]))],
        ["r=d0"],
    ),
    ("all, one tainted", [slice_of([device("d0", taints=[TAINT]), device("d1")])], [claim(exactly("r", **ALL))], None),
    ("counters", [PARTITIONS, COUNTERS], [claim(exactly("r"))], ["r=d0"]),
    ("counters do not suffice", [PARTITIONS, COUNTERS], [claim(exactly("r", count=2))], None),
    ("counters in use", [PARTITIONS, COUNTERS, allocated_claim({"device": "d0"})], [claim(exactly("r"))], None),
    ("admin access consumes counters", [PARTITIONS, COUNTERS], [claim(exactly("r", adminAccess=True, count=2))], None),
    (
        "a second share consumes no counters",
        [SHARED_PARTITION, COUNTERS],
        [claim(exactly("r"), exactly("s"))],
        ["r=d0", "s=d0"],
    ),
    (
        "a second share of a device without capacity consumes no counters",
        [SHARED_PARTITION, COUNTERS, allocated_claim({"device": "d0", "shareID": "s"})],
        [claim(exactly("r"))],
        ["r=d0"],
    ),
    ("a request is allocated a shared device once", [SHARED], [claim(exactly("r", count=2))], None),
    ("a share without capacity request uses all capacity", [SHARED], [claim(exactly("r"), exactly("s"))], None),
    (
        "two shares",
        [SHARED],
        [claim(*(exactly(name, capacity={"requests": {"memory": "5Gi"}}) for name in "rs"))],
        ["r=d0", "s=d0"],
    ),
    (
        "two shares beyond the capacity",
        [SHARED],
        [claim(*(exactly(name, capacity={"requests": {"memory": "6Gi"}}) for name in "rs"))],
        None,
    ),
    (
        "capacity in use",
        [SHARED, allocated_claim({"device": "d0", "shareID": "x", "consumedCapacity": {"memory": "6Gi"}})],
        [claim(exactly("r", capacity={"requests": {"memory": "5Gi"}}))],
        None,
    ),
    (
        "capacity of a device that is not shared",
        [
            slice_of(
                [
                    device("d0", capacity={"memory": {"value": "1Gi"}}),
                    device("d1", capacity={"memory": {"value": "4Gi"}}),
                ]
            )
        ],
        [claim(exactly("r", capacity={"requests": {"memory": "2Gi"}}))],
        ["r=d1"],
    ),
    (
        "capacity that a device lacks",
        [slice_of([device("d0"), device("d1", capacity={"memory": {"value": "4Gi"}})])],
        [claim(exactly("r", capacity={"requests": {"memory": "2Gi"}}))],
        ["r=d1"],
    ),
    (
        "all excludes devices that are too small",
        [
            slice_of(
                [device("d0", capacity={"memory": {"value": "1"}}), device("d1", capacity={"memory": {"value": "4"}})]
            )
        ],
        [claim(exactly("r", capacity={"requests": {"memory": "2"}}, **ALL))],
        ["r=d1"],
    ),
    (
        "all fails for a device without remaining capacity",
        [SHARED, allocated_claim({"device": "d0", "shareID": "x", "consumedCapacity": {"memory": "6Gi"}})],
        [claim(exactly("r", capacity={"requests": {"memory": "5Gi"}}, **ALL))],
        None,
    ),
)
def test_devices(
    objects: list[ResourceSlice | ResourceClaim], wanted: list[ResourceClaim], expected: list[str] | None
) -> None:
    assert names(allocate(cluster(*objects), wanted)) == expected
