"""Law of device allocation: the allocator, with caches and pruning, finds the same devices as a plain recursion."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from scheduler_core.devices.behaviours import KnowledgeBounds
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import OPTIONAL_NODE_OPERATIONS, DeviceClass, ResourceClaim, ResourceSlice
from tests.support.devices import (
    DRIVER,
    allocated_claim,
    allocator,
    alternative,
    claim,
    cluster,
    device,
    device_class,
    exactly,
    first_available,
    slice_of,
)
from tests.support.plain_devices import PlainAllocation, PlainUse, outcome

Body = dict[str, Any]

EXPRESSIONS = (
    f'device.attributes["{DRIVER}"].model == "a"',
    f'device.attributes["{DRIVER}"].model != "b"',
    "device.allowMultipleAllocations",
    f'device.attributes["{DRIVER}"].root == 1',
)
ATTRIBUTES = (f"{DRIVER}/model", f"{DRIVER}/root")
NODES = ("n0", "n1", "n2")
DECLARED = {"n1": (OPTIONAL_NODE_OPERATIONS,)}
"""Features that nodes declare, by node."""
ALPHA = DeviceFeatures(compatibility_groups=True, optional_node_operations=True)


@st.composite
def devices(draw: st.DrawFn, name: str, *, with_counters: bool) -> Body:
    fields: Body = {"attributes": {}}
    root = draw(st.sampled_from((None, 1, 1, 2)))
    if root is not None:
        fields["attributes"]["root"] = {"int": root}
    if draw(st.integers(0, 3)) == 0:
        fields["taints"] = [{"key": "k", "effect": draw(st.sampled_from(("NoSchedule", "NoExecute", "None")))}]
    if draw(st.integers(0, 2)) == 0:
        fields["allowMultipleAllocations"] = True
    if draw(st.booleans()):
        fields["capacity"] = {"memory": {"value": draw(st.sampled_from(("2", "3")))}}
    if with_counters and draw(st.booleans()):
        amount = draw(st.sampled_from(("1", "2")))
        fields["consumesCounters"] = [{"counterSet": "s", "counters": {"x": {"value": amount}}}]
    if draw(st.integers(0, 5)) == 0:
        fields["bindingConditions"] = ["ready"]
    return device(name, draw(st.sampled_from("aab")), **fields)


@st.composite
def pools(draw: st.DrawFn, node: str, number: int) -> list[ResourceSlice]:
    with_counters = draw(st.booleans())
    pool = f"{node}-{number}"
    rows = [draw(devices(f"d{index}", with_counters=with_counters)) for index in range(draw(st.integers(1, 4)))]
    count = 2 if with_counters else 1
    found = [slice_of(rows, name=f"{pool}-devices", node=node, pool=pool, count=count)]
    if with_counters:
        counters = [{"name": "s", "counters": {"x": {"value": draw(st.sampled_from(("2", "3")))}}}]
        found.append(slice_of(name=f"{pool}-counters", node=node, pool=pool, count=count, sharedCounters=counters))
    return found


@st.composite
def terms(draw: st.DrawFn) -> Body:
    fields: Body = {"count": draw(st.integers(1, 3))}
    if draw(st.integers(0, 4)) == 0:
        fields = {"allocationMode": "All"}
    if draw(st.integers(0, 2)) == 0:
        fields["tolerations"] = [{"operator": "Exists"}]
    if draw(st.integers(0, 2)) == 0:
        fields["capacity"] = {"requests": {"memory": draw(st.sampled_from(("1", "2")))}}
    return fields


@st.composite
def requests(draw: st.DrawFn, name: str) -> Body:
    expressions = st.lists(st.sampled_from(EXPRESSIONS), max_size=1)
    if draw(st.integers(0, 2)) == 0:
        return first_available(
            name,
            *(
                alternative(f"a{index}", *draw(expressions), **draw(terms()))
                for index in range(draw(st.integers(1, 2)))
            ),
        )
    fields = draw(terms())
    if draw(st.integers(0, 4)) == 0:
        fields["adminAccess"] = True
    return exactly(name, *draw(expressions), **fields)


@st.composite
def claims(draw: st.DrawFn, name: str) -> ResourceClaim:
    rows = [draw(requests(f"r{index}")) for index in range(draw(st.integers(1, 3)))]
    constraints = [
        {
            draw(st.sampled_from(("matchAttribute", "distinctAttribute"))): draw(st.sampled_from(ATTRIBUTES)),
            "requests": draw(st.sampled_from(([], [], ["r0"], ["r0/a0", "r1"]))),
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    return claim(*rows, name=name, constraints=constraints)


@st.composite
def allocations(draw: st.DrawFn, slices: list[ResourceSlice]) -> list[Body]:
    """Generate devices in use: shares of devices that allow them, whole devices otherwise."""
    results: list[Body] = []
    for one in slices:
        for each in one.spec.devices:
            if draw(st.integers(0, 3)) == 0:
                result: Body = {"pool": one.spec.pool.name, "device": each.name}
                if each.allow_multiple_allocations:
                    result["shareID"] = "s"
                    result["consumedCapacity"] = dict.fromkeys(each.capacity, "1")
                elif draw(st.integers(0, 3)) == 0:
                    result["adminAccess"] = True
                results.append(result)
    return results


def plain_use(results: list[Body]) -> PlainUse:
    use = PlainUse()
    for result in results:
        key = f"{DRIVER}/{result['pool']}/{result['device']}"
        if "shareID" in result:
            use.shares[key] = dict.fromkeys(result["consumedCapacity"], 10**9)
        elif "adminAccess" not in result:
            use.dedicated.add(key)
    return use


def plain(
    requested: list[ResourceClaim], classes: list[DeviceClass], slices: list[ResourceSlice], use: PlainUse, node: str
) -> object:
    local = [one for one in slices if one.spec.node_name == node]
    by_name, declares = {one.metadata.name: one for one in classes}, bool(DECLARED.get(node))
    return PlainAllocation(requested, by_name, local, use, declares=declares).outcome()


def check(
    data: st.DataObject,
    slices: list[ResourceSlice],
    results: list[Body],
    requested: list[ResourceClaim],
    classes: list[DeviceClass],
) -> None:
    """Compare the result on each node with that of the plain recursion."""
    bounds = data.draw(
        st.sampled_from((KnowledgeBounds(), KnowledgeBounds(tables=1, records=1, shapes=1, verdict_bytes=6000)))
    )
    found = allocator(cluster(*slices, allocated_claim(*results), features=ALPHA, bounds=bounds), requested, classes)
    for node in NODES:
        actual = outcome(partial(found.find, node, {}, DECLARED.get(node, ())))
        expected = plain(requested, classes, slices, plain_use(results), node)
        event(f"outcome {'found' if isinstance(expected, list) else expected}")
        assert actual == expected
        if expected != "error":
            check_best_fit(slices, results, requested, classes, node, is_feasible=expected is not None)


def check_best_fit(
    slices: list[ResourceSlice],
    results: list[Body],
    requested: list[ResourceClaim],
    classes: list[DeviceClass],
    node: str,
    *,
    is_feasible: bool,
) -> None:
    """Check that best fit finds devices on a node where first fit does.

    A selector may fail on devices that only best fit tries.
    """
    found = allocator(cluster(*slices, allocated_claim(*results), features=ALPHA), requested, classes, best_fit=True)
    with suppress(AllocationError):
        assert (found.find(node, {}, DECLARED.get(node, ())) is not None) == is_feasible


@given(data=st.data())
def test_finds_what_the_plain_recursion_finds(data: st.DataObject) -> None:
    slices = [
        one
        for node in NODES
        for number in range(data.draw(st.integers(0, 2)))
        for one in data.draw(pools(node, number))
    ]
    if data.draw(st.booleans()):
        # Nodes with equal devices share one search.
        slices = [one for one in slices if one.spec.node_name == "n0"]
        slices += [
            slice_of(
                [device(each.name, attributes=dict(each.attributes)) for each in one.spec.devices],
                name=f"{node}-{one.metadata.name}",
                node=node,
                pool=f"{node}-{one.spec.pool.name}",
            )
            for node in NODES[1:]
            for one in slices
            if not one.spec.shared_counters
        ]
    results = data.draw(allocations(slices))
    expression = data.draw(st.sampled_from(("", f'device.driver == "{DRIVER}"', EXPRESSIONS[3])))
    classes = [device_class("gpu", *([expression] if expression else ()))]
    requested = [data.draw(claims(f"c{number}")) for number in range(data.draw(st.integers(1, 2)))]
    check(data, slices, results, requested, classes)


@st.composite
def contended_devices(draw: st.DrawFn, name: str, *, with_counters: bool) -> Body:
    fields: Body = {"attributes": {"root": {"int": draw(st.sampled_from((1, 1, 2)))}}}
    if draw(st.integers(0, 2)) == 0:
        fields |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "2"}}}
    if with_counters and draw(st.integers(0, 3)):
        amount = draw(st.sampled_from(("1", "1", "2")))
        fields["consumesCounters"] = [{"counterSet": "s", "counters": {"x": {"value": amount}}}]
    return device(name, draw(st.sampled_from("aab")), **fields)


@st.composite
def contended_requests(draw: st.DrawFn, name: str) -> Body:
    expressions = draw(st.lists(st.sampled_from(EXPRESSIONS), max_size=1))
    fields: Body = {"count": draw(st.sampled_from((1, 1, 2)))}
    if draw(st.integers(0, 3)) == 0:
        fields["adminAccess"] = True
    elif draw(st.integers(0, 2)) == 0:
        fields["capacity"] = {"requests": {"memory": "1"}}
    if draw(st.integers(0, 5)) == 0:
        return first_available(name, alternative("a0", *expressions, count=3), alternative("a1", count=1))
    return exactly(name, *expressions, **fields)


@given(data=st.data())
def test_finds_scarce_devices(data: st.DataObject) -> None:
    """Requests need about as many devices as exist, so that the search backtracks often."""
    slices: list[ResourceSlice] = []
    for number in range(data.draw(st.integers(1, 2))):
        with_counters = data.draw(st.booleans())
        count = data.draw(st.integers(2, 4))
        rows = [data.draw(contended_devices(f"d{index}", with_counters=with_counters)) for index in range(count)]
        slices.append(slice_of(rows, name=f"p{number}", pool=f"p{number}", count=1 + with_counters))
        if with_counters:
            value = data.draw(st.sampled_from(("2", "3", "4")))
            counters = [{"name": "s", "counters": {"x": {"value": value}}}]
            slices.append(slice_of(name=f"c{number}", pool=f"p{number}", count=2, sharedCounters=counters))
    requested = []
    for number in range(data.draw(st.integers(1, 3))):
        rows = [data.draw(contended_requests(f"r{index}")) for index in range(data.draw(st.integers(1, 3)))]
        kind = data.draw(st.sampled_from((None, "matchAttribute", "distinctAttribute")))
        constraints = [] if kind is None else [{kind: data.draw(st.sampled_from(ATTRIBUTES))}]
        requested.append(claim(*rows, name=f"c{number}", constraints=constraints))
    check(data, slices, data.draw(allocations(slices)), requested, [device_class()])


@st.composite
def grouped_devices(draw: st.DrawFn, name: str) -> Body:
    fields: Body = {"attributes": {"root": {"int": draw(st.sampled_from((1, 1, 2)))}}}
    if draw(st.integers(0, 4)) == 0:
        fields |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "2"}}}
    sets = draw(st.sampled_from((["s"], ["s"], ["t"], ["s", "t"], [])))
    fields["consumesCounters"] = [
        {
            "counterSet": each,
            "counters": {"x": {"value": "1"}},
            "compatibilityGroups": draw(st.sampled_from(([], ["a"], ["a", "b"], ["b", "c"], ["c"]))),
        }
        for each in sets
    ]
    return device(name, draw(st.sampled_from("ab")), **fields)


@given(data=st.data())
def test_finds_compatible_devices(data: st.DataObject) -> None:
    """Devices of a counter set need a common group; slices that skip node operations need a node that supports this."""
    slices: list[ResourceSlice] = []
    counters = [{"name": each, "counters": {"x": {"value": "4"}}} for each in "st"]
    rows = [data.draw(grouped_devices(f"d{index}")) for index in range(data.draw(st.integers(2, 5)))]
    skipped = data.draw(st.sampled_from(([], ["*"])))
    for node in NODES[: data.draw(st.integers(1, 2))]:
        # Nodes with equal devices share one search, unless a node cannot use the devices.
        where: dict[str, Any] = {"node": node, "pool": node, "count": 3}
        slices += [
            slice_of(rows[:2], name=f"{node}-a", skipNodeOperations=skipped, **where),
            slice_of(rows[2:], name=f"{node}-b", **where),
            slice_of(name=f"{node}-c", sharedCounters=counters, **where),
        ]
    requested = [
        claim(*(data.draw(contended_requests(f"r{index}")) for index in range(data.draw(st.integers(1, 3)))), name=name)
        for name in ("c0", "c1")[: data.draw(st.integers(1, 2))]
    ]
    check(data, slices, data.draw(allocations(slices)), requested, [device_class()])
