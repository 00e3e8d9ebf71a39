"""Compatibility groups of devices that share counters (gate DRADeviceCompatibilityGroups)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest

from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.devices.device_state import CompatibilityGroups
from scheduler_core.devices.records import DeviceFeatures, DeviceRecord, RecordInterner
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from tests.support.devices import (
    Body,
    allocate,
    allocated_claim,
    allocator,
    claim,
    cluster,
    device,
    exactly,
    first_available,
    names,
    slice_of,
)
from tests.support.tables import table

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
