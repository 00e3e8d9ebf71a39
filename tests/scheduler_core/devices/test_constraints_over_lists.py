"""Constraints over list-typed (gate DRAListTypeAttributes) and derived attributes (gate DRADerivedAttributes)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import ResourceClaim
from tests.support.devices import (
    DRIVER,
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

Body = dict[str, Any]
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
