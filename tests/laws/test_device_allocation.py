"""Laws of device allocation: the allocator, with caches and pruning, finds the same devices as a plain recursion.

It does so with list-typed and derived attributes, too.
"""

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
from tests.support.plain_attributes import PlainAttributes
from tests.support.plain_devices import PlainAllocation, PlainUse, outcome
from tests.support.tables import table

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


# -- list-typed and derived attributes ---------------------------------------------------------------------------------


AT = f'device.attributes["{DRIVER}"]'
LINK, ROOT = f"{DRIVER}/link", f"{DRIVER}/root"
SELECTORS = (f'{AT}.link.includes("x")', f"{AT}.link.includes(1)", f'has({AT}.root) && {AT}.model == "a"')
DERIVED = (
    f"{AT}.link",
    f"{AT}.root",
    f"{AT}.model",
    f'{AT}.model == "a" ? {AT}.root : 9',
    f'[{AT}.model, "x"]',
    f"[{AT}.link.includes(1), {AT}.root > 1]",
    "[1, 2].filter(each, each > 2)",
    "device.driver",
    '"x"',
    "1.5 > 1.0 ? dyn(1.5) : dyn(1)",
    "1.5",
)
"""Expressions of derived attributes; some fail for devices without an attribute, and two fail for all devices."""
RENAMED = ({"x": "x", "y": "y", "z": "z"}, {"x": "y", "y": "z", "z": "x"}, {"x": "u", "y": "v", "z": "w"})


@st.composite
def attribute_values(draw: st.DrawFn) -> Body:
    """Generate an attribute: a scalar or a list."""
    match draw(st.integers(0, 5)):
        case 0:
            return {"int": draw(st.integers(1, 2))}
        case 1:
            return {"string": draw(st.sampled_from("xyz"))}
        case 2:
            return {"ints": draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))}
        case _:
            return {"strings": draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=3))}


@st.composite
def attribute_rows(draw: st.DrawFn) -> list[Body]:
    found = []
    for index in range(draw(st.integers(2, 5))):
        fields: Body = {"attributes": {}}
        if draw(st.integers(0, 5)):
            fields["attributes"]["link"] = draw(attribute_values())
        if draw(st.integers(0, 4)):
            fields["attributes"]["root"] = draw(st.sampled_from(({"int": 1}, {"int": 2}, {"ints": [1, 2]})))
        if draw(st.integers(0, 5)) == 0:
            fields |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "2"}}}
        found.append(device(f"d{index}", draw(st.sampled_from("aab")), **fields))
    return found


def renamed(row: Body, names: dict[str, str]) -> Body:
    """Return an equal device with other values of links."""
    link = row["attributes"].get("link", {})
    changed = {
        kind: names[value] if isinstance(value, str) else [names.get(each, each) for each in value]
        for kind, value in link.items()
        if kind.startswith("string")
    }
    return row | {"attributes": row["attributes"] | ({"link": changed} if changed else {})}


@st.composite
def attribute_terms(draw: st.DrawFn) -> Body:
    fields: Body = {"count": draw(st.sampled_from((1, 1, 2, 2, 3)))}
    if draw(st.integers(0, 6)) == 0:
        fields = {"allocationMode": "All"}
    derived = {name: draw(st.sampled_from(DERIVED)) for name in draw(st.sets(st.sampled_from((LINK, ROOT, "a/b"))))}
    if derived and draw(st.integers(0, 1)) == 1:
        fields["derivedAttributes"] = [{"name": name, "expression": each} for name, each in sorted(derived.items())]
    return fields


@st.composite
def attribute_requests(draw: st.DrawFn, name: str) -> Body:
    expressions = draw(st.lists(st.sampled_from(SELECTORS), max_size=1)) if draw(st.integers(0, 3)) == 0 else []
    if draw(st.integers(0, 3)) == 0:
        return first_available(
            name, *(alternative(f"a{index}", *expressions, **draw(attribute_terms())) for index in range(2))
        )
    return exactly(name, *expressions, **draw(attribute_terms()))


@st.composite
def attribute_claims(draw: st.DrawFn, name: str) -> ResourceClaim:
    constraints = [
        {
            draw(st.sampled_from(("matchAttribute", "distinctAttribute"))): draw(st.sampled_from((LINK, ROOT, "a/b"))),
            "requests": draw(st.sampled_from(([], [], ["r0"], ["r0/a0", "r1"]))),
        }
        for _ in range(draw(st.integers(1, 2)))
    ]
    claim_requests = [draw(attribute_requests(f"r{index}")) for index in range(draw(st.integers(1, 3)))]
    return claim(*claim_requests, name=name, constraints=constraints)


def plain_attributes(
    requested: list[ResourceClaim], slices: list[ResourceSlice], use: PlainUse, node: str, *, lists: bool
) -> object:
    local = [one for one in slices if one.spec.node_name == node]
    return PlainAttributes(requested, {"gpu": device_class()}, local, use, lists=lists).outcome()


@table("lists", ("lists", True), ("without-lists", False))
@given(data=st.data())
def test_finds_what_the_plain_recursion_finds_for_attributes(data: st.DataObject, lists: bool) -> None:
    """The allocator finds the same devices on every node, also on nodes that share one search."""
    pools = [data.draw(attribute_rows()) for _ in range(data.draw(st.integers(1, 2)))]
    slices = [
        slice_of([renamed(row, names) for row in pool], name=f"{node}-{number}", node=node, pool=f"{node}-{number}")
        for node, names in zip(NODES, RENAMED, strict=True)
        for number, pool in enumerate(pools)
    ]
    if data.draw(st.booleans()):
        # One node differs in attributes that expressions may read.
        rows_of_last = [renamed(row, RENAMED[2]) for row in pools[-1]]
        rows_of_last[0] = rows_of_last[0] | {
            "attributes": rows_of_last[0]["attributes"]
            | {"model": {"string": data.draw(st.sampled_from("abx"))}, "root": {"int": 2}}
        }
        slices[-1] = slice_of(rows_of_last, name=slices[-1].metadata.name, node="n2", pool=slices[-1].spec.pool.name)
    used = [{"pool": one.spec.pool.name, "device": "d0"} for one in slices if data.draw(st.integers(0, 3)) == 0]
    use = PlainUse(dedicated={f"{DRIVER}/{each['pool']}/d0" for each in used})
    requested = [data.draw(attribute_claims(f"c{number}")) for number in range(data.draw(st.sampled_from((1, 1, 2))))]
    bounds = data.draw(
        st.sampled_from((KnowledgeBounds(), KnowledgeBounds(tables=1, records=1, shapes=1, verdict_bytes=6000)))
    )
    features = DeviceFeatures(list_type_attributes=lists, derived_attributes=True)
    found = allocator(cluster(*slices, allocated_claim(*used), features=features, bounds=bounds), requested)
    for node in NODES:
        expected = plain_attributes(requested, slices, use, node, lists=lists)
        event(f"outcome {'found' if isinstance(expected, list) else expected}")
        assert outcome(partial(found.find, node, {})) == expected


def test_a_list_that_must_differ_is_taken_first() -> None:
    """Without list-typed attributes, only the first device may have a list: equal devices are not interchangeable."""
    links: tuple[Body, ...] = ({"link": {"ints": [1]}}, {"link": {"int": 1}}, {"link": {"ints": [1]}}, {}, {})
    shared: Body = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "2"}}}
    rows = [device(f"d{index}", "a", attributes=link, **shared) for index, link in enumerate(links)]
    slices = [slice_of(rows, name="n0", node="n0", pool="n0")]
    constraints = [{"distinctAttribute": LINK, "requests": ["r0/a0", "r1"]}]
    requested = [claim(exactly("r0"), exactly("r1", count=2), name="c0", constraints=constraints)]
    features = DeviceFeatures(list_type_attributes=False, derived_attributes=True)
    found = allocator(cluster(*slices, features=features), requested)
    expected = plain_attributes(requested, slices, PlainUse(), "n0", lists=False)
    assert isinstance(expected, list)
    assert outcome(partial(found.find, "n0", {})) == expected
