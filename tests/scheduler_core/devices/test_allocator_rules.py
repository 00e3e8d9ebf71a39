"""Rules of the allocator, with compatibility groups and constraints over list-typed and derived attributes.

kube-scheduler v1.37.1 makes the same decisions. The gates are DRADeviceCompatibilityGroups, DRAListTypeAttributes and
DRADerivedAttributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.devices.device_state import CompatibilityGroups
from scheduler_core.devices.records import DeviceFeatures, DeviceRecord, RecordInterner
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from tests.support.devices import (
    DRIVER,
    Body,
    allocate,
    allocated_claim,
    allocator,
    alternative,
    claim,
    claim_results,
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


ON = DeviceFeatures(compatibility_groups=True)
Groups = tuple[str, ...]
NONE: Groups = ()
A, B, AB, BC = ("a",), ("b",), ("a", "b"), ("b", "c")


def consumes(groups: Groups, counter_set: str = "s") -> Body:
    """Return a consumption of one unit."""
    return {"counterSet": counter_set, "counters": {"x": {"value": "1"}}, "compatibilityGroups": list(groups)}


def counters(*, pool: str = "n0", count: int = 2) -> ResourceSlice:
    """Return a slice with two counter sets that suffice for all devices."""
    sets = [{"name": each, "counters": {"x": {"value": "9"}}} for each in "st"]
    return slice_of(name=f"{pool}-counters", pool=pool, count=count, sharedCounters=sets)


def pool_of(*groups: Groups, used: Sequence[int] = ()) -> ClusterDevices:
    """Return a pool with a device for each list of groups, all of one counter set, some of them in use."""
    rows = [device(f"d{index}", consumesCounters=[consumes(each)]) for index, each in enumerate(groups)]
    in_use = allocated_claim(*({"device": f"d{index}"} for index in used))
    return cluster(slice_of(rows, count=2), counters(), in_use, features=ON)


@table(
    "groups, used, wanted, expected",
    ("one group", [A, A], [], [exactly("r", count=2)], ["r=d0", "r=d1"]),
    ("no common group", [A, B], [], [exactly("r", count=2)], None),
    ("the next compatible device", [A, B, AB], [], [exactly("r", count=2)], ["r=d0", "r=d2"]),
    ("compatible in pairs only", [AB, A, B], [], [exactly("r", count=3)], None),
    ("no groups", [NONE, NONE], [], [exactly("r", count=2)], ["r=d0", "r=d1"]),
    ("backtracks from a device without groups", [NONE, A, A], [], [exactly("r", count=2)], ["r=d1", "r=d2"]),
    ("in use, with a group", [A, NONE, AB], [0], [exactly("r")], ["r=d2"]),
    ("in use, without groups", [NONE, A, NONE], [0], [exactly("r")], ["r=d2"]),
    ("several in use", [AB, BC, A, B], [0, 1], [exactly("r")], ["r=d3"]),
    ("devices in use are incompatible", [A, B, AB], [0, 1], [exactly("r")], None),
    ("admin access counts in groups", [A, B], [0], [exactly("r", adminAccess=True)], ["r=d0"]),
    ("several requests", [B, A, A], [], [exactly("r"), exactly("q", count=2)], None),
    ("backtracking over requests", [A, B, B], [], [exactly("r"), exactly("q")], ["r=d1", "q=d2"]),
    (
        "prioritized list",
        [A, B],
        [0],
        [first_available("r", {"name": "two", "deviceClassName": "gpu", "count": 2})],
        None,
    ),
    ("all", [A, A], [], [exactly("r", allocationMode="All")], ["r=d0", "r=d1"]),
    ("all, not compatible", [A, B], [], [exactly("r", allocationMode="All")], None),
)
def test_devices_of_one_set(
    groups: list[Groups], used: list[int], wanted: list[Body], expected: list[str] | None
) -> None:
    """Either all devices of a counter set have a group in common, or none of them has groups."""
    assert names(allocate(pool_of(*groups, used=used), [claim(*wanted)])) == expected


def test_sets_are_independent() -> None:
    """Groups are compared per counter set; a device of two sets is compared in both."""
    rows = [
        device("d0", consumesCounters=[consumes(A, "s")]),
        device("d1", consumesCounters=[consumes(B, "t")]),
        device("both", consumesCounters=[consumes(A, "s"), consumes(A, "t")]),
    ]
    found = cluster(slice_of(rows, count=2), counters(), features=ON)
    assert names(allocate(found, [claim(exactly("r", count=2))])) == ["r=d0", "r=d1"]
    assert names(allocate(found, [claim(exactly("r", count=3))])) is None


def test_claims_of_a_pod_share_the_sets() -> None:
    """The second claim is allocated a device that is compatible with the device of the first one."""
    assert names(allocate(pool_of(A, B, AB), [claim(exactly("r"), name=name) for name in ("c0", "c1")])) == [
        "r=d0",
        "r=d2",
    ]


def test_shares_of_a_device_count_once() -> None:
    """A second share of a device is always compatible."""
    fields: Body = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
    small = exactly("r", capacity={"requests": {"memory": "1"}})
    share = {"device": "d0", "shareID": "s", "consumedCapacity": {"memory": "1"}}
    rows = [device("d0", consumesCounters=[consumes(A)], **fields), device("d1", consumesCounters=[consumes(B)])]
    found = cluster(slice_of(rows, count=2), counters(), allocated_claim(share), features=ON)
    assert names(allocate(found, [claim(small)])) == ["r=d0"]
    assert names(allocate(found, [claim(exactly("r", "device.allowMultipleAllocations == false"))])) is None


def test_devices_of_other_nodes_count() -> None:
    """A device in use on another node restricts the counter sets of the pool."""
    here = slice_of([device("d0", consumesCounters=[consumes(B)])], name="here", pool="p", count=3)
    there = slice_of([device("d1", consumesCounters=[consumes(A)])], name="there", node="n1", pool="p", count=3)
    shared = counters(pool="p", count=3)
    used = allocated_claim({"pool": "p", "device": "d1"})
    assert names(allocate(cluster(here, there, shared, features=ON), [claim(exactly("r"))])) == ["r=d0"]
    assert names(allocate(cluster(here, there, shared, used, features=ON), [claim(exactly("r"))])) is None


def test_freed_devices_do_not_count() -> None:
    """Only devices that are still in use restrict the groups."""
    devices = pool_of(A, B, used=[0])
    assert names(allocate(devices, [claim(exactly("r"))])) is None
    devices.allocated.remove_claim("held")
    devices.allocated.put_claim(allocated_claim({"device": "d1"}, name="other"))
    assert names(allocate(devices, [claim(exactly("r"))])) is None
    devices.allocated.remove_claim("other")
    assert names(allocate(devices, [claim(exactly("r"))])) == ["r=d0"]


@table("features, expected", ("on", ON, ["r=d0"]), ("off", DeviceFeatures(), None))
def test_gate(features: DeviceFeatures, expected: list[str] | None) -> None:
    """If the gate is off, a slice with groups counts as missing, including its devices without groups."""
    rows = [device("d0", consumesCounters=[consumes(NONE)]), device("d1", consumesCounters=[consumes(A)])]
    found = cluster(slice_of(rows, count=2), counters(), features=features)
    assert names(allocate(found, [claim(exactly("r"))])) == expected


def is_compatible(groups: Sequence[Groups]) -> bool:
    """Return whether devices can be allocated together, by the definition."""
    if not any(groups):
        return True
    return all(groups) and bool(set.intersection(*map(set, groups)))


CHOICES = (NONE, A, B, AB, BC)


@pytest.mark.parametrize("seed", range(len(CHOICES) ** 2))
def test_results_equal_a_search_of_all_combinations(seed: int) -> None:
    """A request for k devices is allocated the first compatible combination of k devices."""
    first, second = CHOICES[seed % len(CHOICES)], CHOICES[seed // len(CHOICES)]
    for rest in combinations((*CHOICES, NONE, B), 3):
        rows = (first, second, *rest)
        for count in range(1, 5):
            sets = (each for each in combinations(range(5), count) if is_compatible([rows[index] for index in each]))
            best = next(sets, None)
            expected = None if best is None else [f"r=d{index}" for index in best]
            assert names(allocate(pool_of(*rows), [claim(exactly("r", count=count))])) == expected, rows


def test_incompatible_devices_are_not_searched() -> None:
    """Devices that are incompatible with a device in use cost no search steps."""
    wanted: list[ResourceClaim] = [claim(exactly("r", count=2))]
    found = allocator(pool_of(A, *([B] * 20), used=[0]), wanted)
    assert found.find("n0", {}) is None
    assert found.steps == 0


# -- CompatibilityGroups --------------------------------------------------------------------------------------------


def record(groups: Groups) -> DeviceRecord:
    """Return the record of a device with these groups."""
    return RecordInterner(ON).intern("d", slice_of([device("d", consumesCounters=[consumes(groups)])]).spec.devices[0])


def test_give_back_restores_the_previous_state() -> None:
    """Changes are undone in reverse order, down to a set without devices."""
    groups = CompatibilityGroups([])
    assert groups.take(record(AB))
    assert groups.take(record(BC))
    assert groups.incompatible(record(A)) == [("s", frozenset({"b"}))]
    groups.give_back()
    assert groups.take(record(A))
    groups.give_back()
    groups.give_back()
    assert groups.take(record(NONE))
    assert groups.incompatible(record(A)) == [("s", None)]


def test_a_rejected_device_changes_no_set() -> None:
    """If one of two sets rejects a device, the other set is unchanged."""
    interner = RecordInterner(ON)
    rows = [
        device("x", consumesCounters=[consumes(A, "t")]),
        device("y", consumesCounters=[consumes(B, "s"), consumes(B, "t")]),
        device("z", consumesCounters=[consumes(A, "s")]),
    ]
    used, both, other = (interner.intern("d", each) for each in slice_of(rows).spec.devices)
    groups = CompatibilityGroups([used])
    assert not groups.take(both)
    assert groups.take(other)


BOTH = DeviceFeatures(list_type_attributes=True, derived_attributes=True)
LISTS = DeviceFeatures(list_type_attributes=True)
DERIVED = DeviceFeatures(derived_attributes=True)
OFF = DeviceFeatures()
LINK = f"{DRIVER}/link"
AT = f'device.attributes["{DRIVER}"]'
MATCH, DISTINCT = [{"matchAttribute": LINK}], [{"distinctAttribute": LINK}]


def rows(*links: Body | None) -> list[Body]:
    """Return devices ``d0``, ``d1``, ... with these values of the attribute ``link``."""
    return [device(f"d{index}", attributes={"link": link} if link else {}) for index, link in enumerate(links)]


def strings(*values: str) -> Body:
    return {"strings": list(values)}


def allocated(features: DeviceFeatures, devices: list[Body], *wanted: ResourceClaim) -> list[str] | None:
    return names(claim_results(allocator(cluster(slice_of(devices), features=features), list(wanted)).find("n0", {})))


def deriving(name: str, expression: str, *, attribute: str = LINK, **fields: Any) -> Body:
    return exactly(name, derivedAttributes=[{"name": attribute, "expression": expression}], **fields)


@table(
    "constraints, links, count, on, off",
    ("match-one-common-value", MATCH, [strings("a", "b"), strings("b", "c"), strings("b")], 3, "012", None),
    ("match-in-pairs-only", MATCH, [strings("a", "b"), strings("b", "c"), strings("c", "a")], 3, None, None),
    (
        "match-restores-values-on-backtracking",
        MATCH,
        [strings("a", "b"), strings("b", "c"), strings("c"), strings("c", "b"), strings("c")],
        4,
        "1234",
        None,
    ),
    (
        "match-narrows-to-common-values",
        MATCH,
        [strings("a", "b"), strings("b", "c"), strings("c", "a"), strings("a")],
        3,
        "023",
        None,
    ),
    ("match-list-and-scalar", MATCH, [strings("a"), {"string": "a"}], 2, "01", None),
    ("match-scalars", MATCH, [{"string": "a"}, {"string": "a"}], 2, "01", "01"),
    ("match-types-differ", MATCH, [{"ints": [1]}, strings("1")], 2, None, None),
    ("match-1-is-not-true", MATCH, [{"ints": [1]}, {"bools": [True]}, {"int": 1}], 2, "02", None),
    ("match-versions", MATCH, [{"versions": ["1.0.0"]}, {"version": "1.0.0"}], 2, "01", None),
    ("match-version-is-not-a-string", MATCH, [{"versions": ["1.0.0"]}, strings("1.0.0")], 2, None, None),
    ("match-absent", MATCH, [None, strings("a"), strings("a")], 2, "12", None),
    ("match-one-list", MATCH, [strings("a"), {"string": "a"}], 1, "0", "0"),
    ("distinct-disjoint", DISTINCT, [strings("a", "b"), strings("c"), {"string": "d"}], 3, "012", None),
    ("distinct-no-overlap", DISTINCT, [strings("a", "b"), strings("b", "c"), strings("c")], 2, "02", None),
    (
        "distinct-backtracks-from-the-first-device",
        DISTINCT,
        [strings("a", "b"), strings("a"), strings("c"), strings("b")],
        3,
        "123",
        None,
    ),
    ("distinct-list-and-scalar", DISTINCT, [strings("a"), {"string": "a"}], 2, None, "01"),
    ("distinct-types-differ", DISTINCT, [{"ints": [1]}, strings("1")], 2, "01", None),
    ("distinct-repeated-in-one-list", DISTINCT, [strings("a", "a"), strings("b")], 2, "01", None),
)
def test_lists(constraints: list[Body], links: list[Body | None], count: int, on: str | None, off: str | None) -> None:
    """If the gate is on, lists are compared as sets; if off, a list equals no value of another device."""
    wanted = claim(exactly("r", count=count), constraints=constraints)
    for features, expected in ((LISTS, on), (OFF, off)):
        assert allocated(features, rows(*links), wanted) == (expected and [f"r=d{each}" for each in expected])


@table(
    "requests, constraints, features, expected",
    ("text", [deriving("r", f"string({AT}.link.size())", count=2)], MATCH, BOTH, ["r=d0", "r=d2"]),
    ("scalar", [deriving("r", f"{AT}.link.size()", count=2)], MATCH, DERIVED, ["r=d0", "r=d2"]),
    ("list", [deriving("r", f"{AT}.link", count=2)], MATCH, BOTH, ["r=d0", "r=d1"]),
    ("list-with-list-gate-off", [deriving("r", f"{AT}.link", count=2)], MATCH, DERIVED, None),
    ("empty-list", [deriving("r", "[1].filter(each, each > 1)")], MATCH, BOTH, None),
    ("empty-list-with-list-gate-off", [deriving("r", "[1].filter(each, each > 1)")], MATCH, DERIVED, ["r=d0"]),
    ("derived-matches-the-device's", [exactly("r"), deriving("s", '"c"')], MATCH, BOTH, ["r=d1", "s=d0"]),
    ("not-evaluated-if-not-read", [deriving("r", f"{AT}.absent", attribute="a.example.com/b")], MATCH, BOTH, ["r=d0"]),
    (
        "request-without-constraint",
        [exactly("r"), deriving("s", f"{AT}.absent")],
        [{"matchAttribute": LINK, "requests": ["r"]}],
        BOTH,
        ["r=d0", "s=d1"],
    ),
    (
        "alternatives",
        [
            first_available(
                "r",
                alternative("a", count=2, derivedAttributes=[{"name": LINK, "expression": f"{AT}.link[0]"}]),
                alternative("b", count=2, derivedAttributes=[{"name": LINK, "expression": "device.driver"}]),
            )
        ],
        MATCH,
        BOTH,
        ["r/b=d0", "r/b=d1"],
    ),
)
def test_derived(
    requests: list[Body], constraints: list[Body], features: DeviceFeatures, expected: list[str] | None
) -> None:
    """Constraints read the derived value instead of the device's attribute."""
    links = (strings("a", "b"), strings("b", "c", "d"), strings("e", "f"))
    assert allocated(features, rows(*links), claim(*requests, constraints=constraints)) == expected


@table(
    "requests, features, message",
    (
        "gate-off",
        [deriving("r", "1", attribute="a.example.com/b")],
        LISTS,
        "claim ns/c0, request r: cannot handle request with derived attributes, the feature is disabled",
    ),
    (
        "evaluation",
        [deriving("r", f"{AT}.absent")],
        BOTH,
        f"evaluate derived attribute {LINK} on device {DRIVER}/n0/d0 failed: no such key: absent",
    ),
    (
        "type",
        [deriving("r", "dyn(1.5)")],
        BOTH,
        f"evaluate derived attribute {LINK} on device {DRIVER}/n0/d0 failed: unsupported CEL return type: float64",
    ),
    (
        "list-of-several-types",
        [deriving("r", '[dyn(1), dyn("a")]')],
        BOTH,
        (
            f"evaluate derived attribute {LINK} on device {DRIVER}/n0/d0 failed: "
            "expected list element at index 1 to be int, got string"
        ),
    ),
    (
        "compilation",
        [deriving("r", "1.5")],
        BOTH,
        (
            f"compile derived attribute {LINK} failed: must evaluate to a primitive scalar (string, integer, boolean, "
            "semver) or a list of these scalars, not double"
        ),
    ),
    (
        "even-if-too-few-devices-remain",
        # Three devices are needed and two exist; kube-scheduler evaluates both before it fails.
        [deriving("r", f'{AT}.link == "y" ? {AT}.absent : "z"', count=3)],
        BOTH,
        f"evaluate derived attribute {LINK} on device {DRIVER}/n0/d1 failed: no such key: absent",
    ),
)
def test_errors(requests: list[Body], features: DeviceFeatures, message: str) -> None:
    """An expression that fails raises AllocationError when a constraint reads it."""
    with pytest.raises(AllocationError) as caught:
        allocated(features, rows({"string": "z"}, {"string": "y"}), claim(*requests, constraints=MATCH))
    assert str(caught.value) == message


def test_a_device_that_an_earlier_constraint_rejects_is_not_evaluated() -> None:
    """Constraints are checked in order, so that a rejected device causes no error in a later constraint."""
    constraints = [{"matchAttribute": f"{DRIVER}/other"}, *MATCH]
    wanted = claim(deriving("r", f"{AT}.absent"), constraints=constraints)
    assert allocated(BOTH, rows(strings("a")), wanted) is None


def test_a_device_is_evaluated_even_if_too_few_remain() -> None:
    """The second device is evaluated, as in kube-scheduler, although no other device could match it."""
    devices = [device(f"d{index}", attributes={"a": {"int": index}}) for index in range(2)]
    wanted = claim(
        deriving("r", f"{AT}.a == 1 ? {AT}.absent : 0", count=2),
        constraints=[{"matchAttribute": f"{DRIVER}/a"}, *MATCH],
    )
    with pytest.raises(AllocationError, match=r"/n0/d1 failed: no such key: absent$"):
        allocated(BOTH, devices, wanted)


def test_equal_devices_are_evaluated_once() -> None:
    """Derived values are cached by the attributes that the expression reads, for all nodes and pods."""
    same = [device(f"d{index}", attributes={"link": strings("a"), "serial": {"int": index}}) for index in range(8)]
    devices = cluster(*(slice_of(same, node=node) for node in ("n0", "n1")), features=BOTH)
    for node in ("n0", "n1"):
        for count in (2, 3):
            wanted = claim(deriving("r", f"{AT}.link[0]", count=count), constraints=MATCH)
            assert names(claim_results(allocator(devices, [wanted]).find(node, {}))) == [
                f"r=d{each}" for each in range(count)
            ]
    assert devices.knowledge.attributes.derived.evaluations == 1


def test_nodes_share_a_search_if_the_same_values_are_equal() -> None:
    """Nodes with other list values share a search if the same devices overlap; otherwise each has its own."""
    per_node = {
        "n0": [strings("a", "b"), strings("b", "c"), strings("c", "d")],
        "n1": [strings("p", "q"), strings("q", "r"), strings("r", "s")],
        "n2": [strings("p", "q"), strings("q", "r"), strings("r", "p")],
    }
    devices = cluster(*(slice_of(rows(*links), node=node) for node, links in per_node.items()), features=LISTS)
    found = allocator(devices, [claim(exactly("r", count=2), constraints=DISTINCT)])
    assert [names(claim_results(found.find(node, {}))) for node in per_node] == [
        ["r=d0", "r=d2"],
        ["r=d0", "r=d2"],
        None,
    ]
    assert found.searches == 2
