"""Rules of the allocator. kube-scheduler v1.37.1 makes the same decisions."""

from __future__ import annotations

from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("objects", "wanted", "expected"),
    [
        pytest.param([THREE], [claim(exactly("r"))], ["r=d0"], id="first device"),
        pytest.param([THREE], [claim(exactly("r", count=2))], ["r=d0", "r=d1"], id="count"),
        pytest.param([THREE], [claim(exactly("r", count=4))], None, id="too few"),
        pytest.param([THREE], [claim(exactly("r", MODEL_A, count=2))], ["r=d0", "r=d2"], id="selector"),
        pytest.param([THREE, allocated_claim({"device": "d0"})], [claim(exactly("r"))], ["r=d1"], id="in use"),
        pytest.param(
            [THREE, allocated_claim({"device": "d0", "adminAccess": True})],
            [claim(exactly("r"))],
            ["r=d0"],
            id="in use with admin access",
        ),
        pytest.param(
            [THREE, allocated_claim({"device": "d0"})],
            [claim(exactly("r", adminAccess=True))],
            ["r=d0"],
            id="admin access to a device in use",
        ),
        pytest.param(
            [THREE],
            [claim(exactly("r", adminAccess=True, count=4))],
            None,
            id="admin access to each device once per claim",
        ),
        pytest.param(
            [THREE],
            [claim(exactly("r", adminAccess=True, count=3)), claim(exactly("s"), name="c1")],
            None,
            id="devices with admin access are in use for other requests of the pod",
        ),
        pytest.param(
            [THREE],
            [claim(exactly("r")), claim(exactly("s", adminAccess=True), name="c1")],
            ["r=d0", "s=d0"],
            id="admin access to a device of another claim",
        ),
        pytest.param(
            [THREE],
            [claim(exactly("r"), exactly("s", MODEL_A, count=2))],
            ["r=d1", "s=d0", "s=d2"],
            id="backtracking over requests",
        ),
        pytest.param(
            [THREE],
            [claim(exactly("r")), claim(exactly("s", MODEL_A, count=2), name="c1")],
            ["r=d1", "s=d0", "s=d2"],
            id="backtracking over claims",
        ),
        pytest.param([THREE], [claim(exactly("r", **ALL))], ["r=d0", "r=d1", "r=d2"], id="all"),
        pytest.param(
            [THREE, allocated_claim({"device": "d1"})], [claim(exactly("r", **ALL))], None, id="all, one in use"
        ),
        pytest.param([THREE], [claim(exactly("r", MODEL_A, **ALL))], ["r=d0", "r=d2"], id="all that match"),
        pytest.param([THREE], [claim(exactly("r", "false", **ALL))], None, id="all without matching devices"),
        pytest.param([], [claim(exactly("r"))], None, id="no slices"),
        pytest.param([], [claim()], [], id="no requests"),
        pytest.param(
            [THREE],
            [claim(first_available("r", alternative("x", count=4), alternative("y", MODEL_A)))],
            ["r/y=d0"],
            id="second alternative",
        ),
        pytest.param(
            [THREE],
            [claim(first_available("r", alternative("x", count=2), alternative("y")), exactly("s", count=2))],
            ["r/y=d0", "s=d1", "s=d2"],
            id="an alternative must let the following requests succeed",
        ),
        pytest.param(
            [THREE], [claim(exactly("r", count=2), constraints=[MATCH_MODEL])], ["r=d0", "r=d2"], id="matchAttribute"
        ),
        pytest.param(
            [THREE], [claim(exactly("r", count=3), constraints=[MATCH_MODEL])], None, id="matchAttribute fails"
        ),
        pytest.param(
            [THREE],
            [claim(exactly("r", count=2), constraints=[DISTINCT_MODEL])],
            ["r=d0", "r=d1"],
            id="distinctAttribute",
        ),
        pytest.param(
            [THREE],
            [claim(exactly("r", count=3), constraints=[DISTINCT_MODEL])],
            None,
            id="distinctAttribute compares all devices of a request",
        ),
        pytest.param(
            [slice_of([device("d0"), device("d1", "a")])],
            [claim(exactly("r"), constraints=[MATCH_MODEL])],
            ["r=d1"],
            id="a device without the attribute is not usable",
        ),
        pytest.param(
            [slice_of([device("d0"), device("d1", "a")])],
            [claim(exactly("r"), constraints=[{**MATCH_MODEL, "requests": ["other"]}])],
            ["r=d0"],
            id="a constraint that does not cover the request",
        ),
        pytest.param(
            [slice_of([device("d0"), device("d1", "a")])],
            [claim(first_available("r", alternative("x")), constraints=[{**MATCH_MODEL, "requests": ["r/x"]}])],
            ["r/x=d1"],
            id="a constraint that names an alternative",
        ),
        pytest.param(
            [slice_of([device("d0", attributes={"other.example.com/model": {"string": "a"}}), device("d1", "a")])],
            [claim(exactly("r"), constraints=[{"matchAttribute": "other.example.com/model"}])],
            ["r=d0"],
            id="an attribute of another domain",
        ),
        pytest.param(
            [slice_of([device(f"d{i}", attributes={"model": {"strings": ["a"]}}) for i in range(2)])],
            [claim(exactly("r", count=2), constraints=[MATCH_MODEL])],
            None,
            id="lists do not match",
        ),
        pytest.param([slice_of([device("d0", taints=[TAINT])])], [claim(exactly("r"))], None, id="taint"),
        pytest.param(
            [slice_of([device("d0", taints=[{**TAINT, "effect": "None"}])])],
            [claim(exactly("r"))],
            ["r=d0"],
            id="effect None",
        ),
        pytest.param(
            [slice_of([device("d0", taints=[TAINT])])],
            [claim(exactly("r", tolerations=[{"key": "k", "operator": "Exists"}]))],
            ["r=d0"],
            id="tolerated",
        ),
        pytest.param(
            [slice_of([device("d0", taints=[TAINT]), device("d1")])],
            [claim(exactly("r", **ALL))],
            None,
            id="all, one tainted",
        ),
        pytest.param([PARTITIONS, COUNTERS], [claim(exactly("r"))], ["r=d0"], id="counters"),
        pytest.param([PARTITIONS, COUNTERS], [claim(exactly("r", count=2))], None, id="counters do not suffice"),
        pytest.param(
            [PARTITIONS, COUNTERS, allocated_claim({"device": "d0"})], [claim(exactly("r"))], None, id="counters in use"
        ),
        pytest.param(
            [PARTITIONS, COUNTERS],
            [claim(exactly("r", adminAccess=True, count=2))],
            None,
            id="admin access consumes counters",
        ),
        pytest.param(
            [SHARED_PARTITION, COUNTERS],
            [claim(exactly("r"), exactly("s"))],
            ["r=d0", "s=d0"],
            id="a second share consumes no counters",
        ),
        pytest.param(
            [SHARED_PARTITION, COUNTERS, allocated_claim({"device": "d0", "shareID": "s"})],
            [claim(exactly("r"))],
            ["r=d0"],
            id="a second share of a device without capacity consumes no counters",
        ),
        pytest.param([SHARED], [claim(exactly("r", count=2))], None, id="a request is allocated a shared device once"),
        pytest.param(
            [SHARED], [claim(exactly("r"), exactly("s"))], None, id="a share without capacity request uses all capacity"
        ),
        pytest.param(
            [SHARED],
            [claim(*(exactly(name, capacity={"requests": {"memory": "5Gi"}}) for name in "rs"))],
            ["r=d0", "s=d0"],
            id="two shares",
        ),
        pytest.param(
            [SHARED],
            [claim(*(exactly(name, capacity={"requests": {"memory": "6Gi"}}) for name in "rs"))],
            None,
            id="two shares beyond the capacity",
        ),
        pytest.param(
            [SHARED, allocated_claim({"device": "d0", "shareID": "x", "consumedCapacity": {"memory": "6Gi"}})],
            [claim(exactly("r", capacity={"requests": {"memory": "5Gi"}}))],
            None,
            id="capacity in use",
        ),
        pytest.param(
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
            id="capacity of a device that is not shared",
        ),
        pytest.param(
            [slice_of([device("d0"), device("d1", capacity={"memory": {"value": "4Gi"}})])],
            [claim(exactly("r", capacity={"requests": {"memory": "2Gi"}}))],
            ["r=d1"],
            id="capacity that a device lacks",
        ),
        pytest.param(
            [
                slice_of(
                    [
                        device("d0", capacity={"memory": {"value": "1"}}),
                        device("d1", capacity={"memory": {"value": "4"}}),
                    ]
                )
            ],
            [claim(exactly("r", capacity={"requests": {"memory": "2"}}, **ALL))],
            ["r=d1"],
            id="all excludes devices that are too small",
        ),
        pytest.param(
            [SHARED, allocated_claim({"device": "d0", "shareID": "x", "consumedCapacity": {"memory": "6Gi"}})],
            [claim(exactly("r", capacity={"requests": {"memory": "5Gi"}}, **ALL))],
            None,
            id="all fails for a device without remaining capacity",
        ),
    ],
)
def test_devices(
    objects: list[ResourceSlice | ResourceClaim], wanted: list[ResourceClaim], expected: list[str] | None
) -> None:
    assert names(allocate(cluster(*objects), wanted)) == expected
