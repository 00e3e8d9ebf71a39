"""Law of device attributes: with list-typed and derived attributes, the allocator equals a plain recursion."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from scheduler_core.devices.behaviours import KnowledgeBounds
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
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
from tests.support.plain_devices import PlainUse, outcome
from tests.support.tables import table

Body = dict[str, Any]
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
NODES = ("n0", "n1", "n2")
RENAMED = ({"x": "x", "y": "y", "z": "z"}, {"x": "y", "y": "z", "z": "x"}, {"x": "u", "y": "v", "z": "w"})


@st.composite
def values(draw: st.DrawFn) -> Body:
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
def rows(draw: st.DrawFn) -> list[Body]:
    found = []
    for index in range(draw(st.integers(2, 5))):
        fields: Body = {"attributes": {}}
        if draw(st.integers(0, 5)):
            fields["attributes"]["link"] = draw(values())
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
def terms(draw: st.DrawFn) -> Body:
    fields: Body = {"count": draw(st.sampled_from((1, 1, 2, 2, 3)))}
    if draw(st.integers(0, 6)) == 0:
        fields = {"allocationMode": "All"}
    derived = {name: draw(st.sampled_from(DERIVED)) for name in draw(st.sets(st.sampled_from((LINK, ROOT, "a/b"))))}
    if derived and draw(st.integers(0, 1)) == 1:
        fields["derivedAttributes"] = [{"name": name, "expression": each} for name, each in sorted(derived.items())]
    return fields


@st.composite
def requests(draw: st.DrawFn, name: str) -> Body:
    expressions = draw(st.lists(st.sampled_from(SELECTORS), max_size=1)) if draw(st.integers(0, 3)) == 0 else []
    if draw(st.integers(0, 3)) == 0:
        return first_available(name, *(alternative(f"a{index}", *expressions, **draw(terms())) for index in range(2)))
    return exactly(name, *expressions, **draw(terms()))


@st.composite
def claims(draw: st.DrawFn, name: str) -> ResourceClaim:
    constraints = [
        {
            draw(st.sampled_from(("matchAttribute", "distinctAttribute"))): draw(st.sampled_from((LINK, ROOT, "a/b"))),
            "requests": draw(st.sampled_from(([], [], ["r0"], ["r0/a0", "r1"]))),
        }
        for _ in range(draw(st.integers(1, 2)))
    ]
    claim_requests = [draw(requests(f"r{index}")) for index in range(draw(st.integers(1, 3)))]
    return claim(*claim_requests, name=name, constraints=constraints)


def plain(
    requested: list[ResourceClaim], slices: list[ResourceSlice], use: PlainUse, node: str, *, lists: bool
) -> object:
    local = [one for one in slices if one.spec.node_name == node]
    return PlainAttributes(requested, {"gpu": device_class()}, local, use, lists=lists).outcome()


@table("lists", ("lists", True), ("without-lists", False))
@given(data=st.data())
def test_finds_what_the_plain_recursion_finds(data: st.DataObject, lists: bool) -> None:
    """The allocator finds the same devices on every node, also on nodes that share one search."""
    pools = [data.draw(rows()) for _ in range(data.draw(st.integers(1, 2)))]
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
    requested = [data.draw(claims(f"c{number}")) for number in range(data.draw(st.sampled_from((1, 1, 2))))]
    bounds = data.draw(
        st.sampled_from((KnowledgeBounds(), KnowledgeBounds(tables=1, records=1, shapes=1, verdict_bytes=6000)))
    )
    features = DeviceFeatures(list_type_attributes=lists, derived_attributes=True)
    found = allocator(cluster(*slices, allocated_claim(*used), features=features, bounds=bounds), requested)
    for node in NODES:
        expected = plain(requested, slices, use, node, lists=lists)
        event(f"outcome {'found' if isinstance(expected, list) else expected}")
        assert outcome(partial(found.find, node, {})) == expected
