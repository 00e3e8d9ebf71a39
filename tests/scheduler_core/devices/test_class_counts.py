"""Number of devices of a node that match a device class, and number of those in use."""

from __future__ import annotations

from scheduler_core.devices.allocator import ClassCounts
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from tests.support.devices import DRIVER, allocated_claim, claim, cluster, device, device_class, slice_of, taint_rule
from tests.support.tables import table

MODEL = f'device.attributes["{DRIVER}"].model'
BIG = device_class("big", f'{MODEL} == "big"')
ANY = device_class("any")
TWO = slice_of([device("d0", "big"), device("d1", "small")])
ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
INVALID = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]}
SHARED = device("d0", "big", allowMultipleAllocations=True)
SHARE = {"device": "d0", "shareID": "s", "consumedCapacity": {}}


@table(
    "objects, selected, counts",
    ("a class without selectors", [TWO], ANY, (2, 0)),
    ("a selector", [TWO], BIG, (1, 0)),
    ("in use", [TWO, allocated_claim({"device": "d1"})], ANY, (2, 1)),
    ("in use, of another class", [TWO, allocated_claim({"device": "d1"})], BIG, (1, 0)),
    ("admin access", [TWO, allocated_claim({"device": "d1", "adminAccess": True})], ANY, (2, 0)),
    ("a share", [slice_of([SHARED]), allocated_claim(SHARE)], ANY, (1, 1)),
    (
        "selectors see no device as shared",
        [slice_of([SHARED])],
        device_class("shared", "device.allowMultipleAllocations"),
        (0, 0),
    ),
    ("another node", [slice_of([device("d0")], node="n1")], ANY, (0, 0)),
    ("a node selector", [slice_of([device("d0")], node="", nodeSelector=ZONE)], ANY, (1, 0)),
    ("an invalid selector", [slice_of([device("d0")], node="", nodeSelector=INVALID)], ANY, (0, 0)),
    (
        "by device",
        [slice_of([device("d0", nodeName="n1"), device("d1", allNodes=True)], node="", perDeviceNodeSelection=True)],
        ANY,
        (1, 0),
    ),
    ("a selector that fails", [TWO, slice_of([device("d2")], name="bare")], BIG, (0, 0)),
    ("a selector that does not compile", [TWO], device_class("bad", "no"), (0, 0)),
    ("an older generation", [TWO, slice_of([device("d2", "big")], name="newer", generation=2)], BIG, (2, 0)),
    ("an incomplete pool", [slice_of([device("d0", "big")], count=3)], BIG, (1, 0)),
    ("taint", [TWO, taint_rule("t", {"key": "broken", "effect": "NoExecute"}, {"driver": DRIVER})], ANY, (2, 0)),
)
def test_counts(
    objects: list[ResourceSlice | ResourceClaim | DeviceTaintRule], selected: DeviceClass, counts: tuple[int, int]
) -> None:
    """count() returns the matching devices of node n0 in zone a, and how many of them are in use."""
    assert ClassCounts(cluster(*objects)).count(selected, "n0", {"zone": "a"}) == counts


def test_changes_are_counted_immediately() -> None:
    """Changed slices and allocated claims change the next count."""
    devices = cluster(TWO)
    counts = ClassCounts(devices)
    assert counts.count(BIG, "n0", {}) == (1, 0)
    devices.inventory.put_slice(slice_of([device("d0", "big"), device("d1", "big")]))
    devices.allocated.put_claim(allocated_claim({"device": "d1"}))
    assert counts.count(BIG, "n0", {}) == (2, 1)
    devices.allocated.put_claim(claim(name="held"))
    assert counts.count(BIG, "n0", {}) == (2, 0)
    devices.inventory.remove_slice(TWO.metadata.name)
    assert counts.count(BIG, "n0", {}) == (0, 0)


def test_selector_results_are_cached_per_slice() -> None:
    """A second count evaluates no selector; a class beyond the bound evicts the oldest one."""
    devices = cluster(TWO)
    counts = ClassCounts(devices, max_classes=1)
    results = [counts.count(each, "n0", {}) for each in (BIG, BIG, ANY, BIG)]
    assert results == [(1, 0), (1, 0), (2, 0), (1, 0)]
    assert devices.knowledge.selectors.evaluations == 2
