"""Devices that each node can use, and updates for changed slices and taint rules."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.devices.inventory import DeviceInventory
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import DeviceTaintRule, ResourceSlice
from tests.support.devices import allocator, claim, claim_results, cluster, device, exactly, slice_of, taint_rule
from tests.support.presence import present
from tests.support.tables import table

ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
TAINT = {"key": "k", "effect": "NoSchedule"}


def pools_of(devices: ClusterDevices, node: str = "n0", zone: str = "a") -> list[str]:
    """Return the pools of a node as ``pool: devices``, or ``pool: problem``."""
    rows = []
    for view in devices.inventory.pools(node, {"zone": zone}):
        problem = "incomplete" if view.is_incomplete else "invalid" if view.is_invalid else ""
        targeted = view.targeted or (True,) * len(view.records)
        rows.append(
            f"{view.key[1]}: {problem or ' '.join(n for n, ok in zip(view.names.names, targeted, strict=True) if ok)}"
        )
    return rows


def network(*names: str, pool: str = "net", **spec: Any) -> ResourceSlice:
    return slice_of([device(name) for name in names], node="", pool=pool, name=spec.pop("name", pool), **spec)


def part(number: int, *, generation: int = 1, count: int = 2, node: str = "n0", **spec: Any) -> ResourceSlice:
    rows = spec.pop("devices", [device(f"d{number}")])
    return slice_of(rows, name=f"s{number}", pool="p", node=node, generation=generation, count=count, **spec)


COUNTERS = [{"name": "s", "counters": {"x": {"value": "1"}}}]


def consumer(name: str, counter_set: str = "s", counter: str = "x") -> dict[str, Any]:
    return device(name, consumesCounters=[{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}])


@table(
    "slices, expected",
    ("order of the slice", [slice_of([device("b"), device("a")])], ["n0: b a"]),
    ("another node", [slice_of([device("a")], node="n1")], []),
    ("pools", [slice_of([device("a")], pool="q"), slice_of([device("b")], pool="p", name="z")], ["p: b", "q: a"]),
    (
        "pools with binding conditions come last",
        [
            slice_of([device("a", bindingConditions=["c"])], pool="p", name="x"),
            slice_of([device("b")], pool="q", name="y"),
        ],
        ["q: b", "p: a"],
    ),
    ("slices by name", [part(2), part(1)], ["p: d1 d2"]),
    ("a slice is missing", [part(1)], ["p: incomplete"]),
    ("a slice of another node completes the pool", [part(1), part(2, node="n1")], ["p: d1"]),
    ("a newer generation on another node", [part(1), part(2, node="n1", generation=2)], []),
    (
        "a complete pool ignores a newer generation on another node",
        [part(1, count=1), part(2, node="n1", generation=2)],
        ["p: d1"],
    ),
    ("an older generation", [part(1), part(2, generation=2, count=1)], ["p: d2"]),
    ("duplicate device", [part(1, devices=[device("x")]), part(2, devices=[device("x")])], ["p: invalid"]),
    (
        "duplicate device on another node",
        [part(1, devices=[device("x")]), part(2, devices=[device("x")], node="n1")],
        ["p: x"],
    ),
    ("all nodes", [network("a", allNodes=True)], ["net: a"]),
    ("node selector", [network("a", nodeSelector=ZONE_A)], ["net: a"]),
    ("no nodes", [network("a")], []),
    (
        "nodes by device",
        [
            slice_of(
                [device("a", nodeName="n1"), device("b", nodeName="n0"), device("c", nodeSelector=ZONE_A)],
                node="",
                pool="net",
                perDeviceNodeSelection=True,
            )
        ],
        ["net: b c"],
    ),
    ("counters", [part(1, devices=[consumer("d1")]), part(2, devices=[], sharedCounters=COUNTERS)], ["p: d1"]),
    (
        "counters that target another node",
        [part(1, devices=[consumer("d1")]), part(2, devices=[], sharedCounters=COUNTERS, node="n1")],
        ["p: d1"],
    ),
    (
        "no such counter set",
        [part(1, devices=[consumer("d1", "t")]), part(2, devices=[], sharedCounters=COUNTERS)],
        ["p: invalid"],
    ),
    (
        "no such counter set, no counters",
        [part(1, devices=[device("d1", consumesCounters=[{"counterSet": "t"}])], count=1)],
        ["p: invalid"],
    ),
    (
        "no such counter",
        [part(1, devices=[consumer("d1", "s", "y")]), part(2, devices=[], sharedCounters=COUNTERS)],
        ["p: invalid"],
    ),
    (
        "duplicate counter set",
        [
            part(1, count=3),
            part(2, count=3, devices=[], sharedCounters=COUNTERS),
            part(3, count=3, devices=[], sharedCounters=COUNTERS),
        ],
        ["p: invalid"],
    ),
    (
        "a slice with compatibility groups counts as missing",
        [
            part(
                1,
                count=1,
                devices=[
                    device("d1", consumesCounters=[{"counterSet": "s", "counters": {}, "compatibilityGroups": ["g"]}])
                ],
            ),
            part(2, count=2),
        ],
        ["p: incomplete"],
    ),
    (
        "a slice that consumes resources of the node counts as missing",
        [part(1, count=1, devices=[device("d1", nodeAllocatableResources={"cpu": {"mapping": {}}})]), part(2, count=2)],
        ["p: incomplete"],
    ),
    (
        "a slice that needs skipped node operations counts as missing",
        [part(1, count=1, skipNodeOperations=["*"]), part(2, count=2)],
        ["p: incomplete"],
    ),
)
def test_pools_of_a_node(slices: list[ResourceSlice], expected: list[str]) -> None:
    assert pools_of(cluster(*slices)) == expected


def test_node_selectors_follow_changed_labels() -> None:
    devices = cluster(network("a", nodeSelector=ZONE_A))
    assert [pools_of(devices, zone=zone) for zone in "aba"] == [["net: a"], [], ["net: a"]]


def test_an_invalid_node_selector_raises() -> None:
    broken = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}
    with pytest.raises(
        AllocationError, match=r"^gather pool information: failed to perform node selection for slice net"
    ):
        pools_of(cluster(network("a", nodeSelector=broken)))


@table(
    "rules, free",
    ("none", [], ["a", "b"]),
    ("device", [taint_rule("r", TAINT, {"device": "a"})], ["b"]),
    ("all devices", [taint_rule("r", TAINT, {})], []),
    ("no selector", [taint_rule("r", TAINT, None)], ["a", "b"]),
    ("other pool", [taint_rule("r", TAINT, {"pool": "other"})], ["a", "b"]),
    ("effect None", [taint_rule("r", {**TAINT, "effect": "None"}, {})], ["a", "b"]),
    ("two rules", [taint_rule("r", TAINT, {"device": "a"}), taint_rule("s", TAINT, {"device": "b"})], []),
)
def test_taint_rules(rules: list[DeviceTaintRule], free: list[str]) -> None:
    rows = slice_of([device("a"), device("b")])
    before, after = cluster(*rules, rows), cluster(rows, *rules)
    for devices in (before, after):
        found = [view.names.names[i] for view in devices.inventory.pools("n0", {}) for i in untainted(view.records)]
        assert found == free
    for rule in rules:
        after.inventory.remove_taint_rule(rule.metadata.name)
    assert [len(untainted(view.records)) for view in after.inventory.pools("n0", {})] == [2]


def untainted(records: Any) -> list[int]:
    return [position for position, record in enumerate(records) if not record.taints]


def test_taint_rules_are_ignored_if_the_gate_is_off() -> None:
    features = DeviceFeatures(device_taint_rules=False)
    devices = cluster(slice_of([device("a")]), taint_rule("r", TAINT, {}), features=features)
    assert [untainted(view.records) for view in devices.inventory.pools("n0", {})] == [[0]]


SLICES = st.builds(
    lambda number, node, generation, count, names, spec: slice_of(
        [device(name) for name in names],
        name=f"s{number}",
        node=node,
        pool="p" if number else "q",
        generation=generation,
        count=count,
        **({} if node else spec),
    ),
    st.integers(0, 3),
    st.sampled_from(("n0", "n1", "")),
    st.integers(1, 2),
    st.integers(1, 2),
    st.lists(st.sampled_from("xyz"), max_size=2, unique=True),
    st.sampled_from(({"allNodes": True}, {"nodeSelector": ZONE_A})),
)
RULES = st.builds(
    lambda name, device_name: taint_rule(name, TAINT, {"device": device_name}),
    st.sampled_from("rs"),
    st.sampled_from("xy"),
)
EVENTS = st.lists(
    st.one_of(
        SLICES,
        RULES,
        st.tuples(st.just("remove slice"), st.sampled_from(("s0", "s1", "s2", "s3"))),
        st.tuples(st.just("remove rule"), st.sampled_from("rs")),
    ),
    max_size=12,
)


def pools_of_both_nodes(inventory: DeviceInventory) -> list[Any]:
    return [
        (
            view.key,
            view.is_incomplete,
            view.is_invalid,
            view.names.names,
            view.targeted,
            [tuple(taint.key for taint in record.taints) for record in view.records],
        )
        for node, zone in (("n0", "a"), ("n1", "b"))
        for view in inventory.pools(node, {"zone": zone})
    ]


@given(EVENTS)
def test_incremental_changes_equal_a_rebuild(events: list[Any]) -> None:
    changed = DeviceInventory(DeviceFeatures())
    slices: dict[str, ResourceSlice] = {}
    rules: dict[str, DeviceTaintRule] = {}
    for event in events:
        before = changed.revision
        if isinstance(event, ResourceSlice):
            changed.put_slice(event)
            slices[event.metadata.name] = event
        elif isinstance(event, DeviceTaintRule):
            changed.put_taint_rule(event)
            rules[event.metadata.name] = event
        elif event[0] == "remove slice":
            known = slices.pop(event[1], None)
            changed.remove_slice(event[1])
            assert (changed.revision > before) is (known is not None)
        else:
            rules.pop(event[1], None)
            changed.remove_taint_rule(event[1])
        fresh = DeviceInventory(DeviceFeatures())
        for one in slices.values():
            fresh.put_slice(one)
        for rule in rules.values():
            fresh.put_taint_rule(rule)
        assert pools_of_both_nodes(changed) == pools_of_both_nodes(fresh)


def test_equal_devices_share_records_that_are_released() -> None:
    devices = cluster(*(slice_of([device("a", "m"), device("b", "m")], node=f"n{number}") for number in range(5)))
    records = {
        id(record) for node in range(5) for view in devices.inventory.pools(f"n{node}", {}) for record in view.records
    }
    assert len(records) == 1
    for number in range(5):
        devices.inventory.remove_slice(f"n{number}-gpu.example.com")
        devices.inventory.remove_node(f"n{number}")
    gc.collect()
    interner = devices.inventory._interner
    assert (len(interner._records), len(interner._facts)) == (0, 0)


def test_nodes_with_equal_free_devices_share_a_search() -> None:
    devices = cluster(*(slice_of([device("a", "m"), device("b", "m")], node=f"n{number}") for number in range(5)))
    found = allocator(devices, [claim(exactly("r"))])
    for number in range(5):
        results = present(claim_results(found.find(f"n{number}", {})))
        assert [(one.pool, one.device) for one in results[0].devices.results] == [(f"n{number}", "a")]
    assert found.searches == 1
