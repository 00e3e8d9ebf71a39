"""Pruning of the search: only states without a solution are skipped, and equivalent nodes share a search."""

from __future__ import annotations

from typing import Any

from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from tests.support.devices import (
    DRIVER,
    allocate,
    allocated_claim,
    allocator,
    claim,
    claim_results,
    cluster,
    device,
    exactly,
    names,
    slice_of,
)
from tests.support.tables import table

MODEL = f"{DRIVER}/model"
MODEL_A = f'device.attributes["{DRIVER}"].model == "a"'
MODEL_B = f'device.attributes["{DRIVER}"].model == "b"'
SHARED: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "2"}}}
ONE: dict[str, Any] = {"capacity": {"requests": {"memory": "1"}}}


def consumer(name: str, model: str, amount: str) -> dict[str, Any]:
    return device(name, model, consumesCounters=[{"counterSet": "s", "counters": {"x": {"value": amount}}}])


def pool(name: str, value: str, *devices: dict[str, Any], node: str = "n0") -> list[ResourceSlice]:
    counters = [{"name": "s", "counters": {"x": {"value": value}}}]
    return [
        slice_of(devices, name=f"{name}-devices", pool=name, node=node, count=2),
        slice_of(name=f"{name}-counters", pool=name, node=node, count=2, sharedCounters=counters),
    ]


@table(
    "objects, wanted, expected",
    (
        "admin access to a device in use, then an equal free one",
        [slice_of([device("d0"), device("d1")]), allocated_claim({"device": "d1"})],
        [claim(exactly("r", adminAccess=True)), claim(exactly("s"), name="c1")],
        ["r=d1", "s=d0"],
    ),
    (
        "equal devices of pools with different counters",
        [
            *pool("a", "2", consumer("d0", "a", "1"), consumer("d1", "b", "2")),
            *pool("b", "2", consumer("d2", "a", "1")),
        ],
        [claim(exactly("r", MODEL_A), exactly("s", MODEL_B))],
        ["r=d2", "s=d1"],
    ),
    (
        "a device with a new share",
        [slice_of([device("d0", **SHARED), device("d1", **SHARED)])],
        [claim(exactly("r", **ONE), exactly("s", **ONE), exactly("t", count=2, **ONE))],
        ["r=d0", "s=d1", "t=d0", "t=d1"],
    ),
    (
        "a device with a share in use",
        [
            slice_of([device("d0", **SHARED), device("d1", **SHARED)]),
            allocated_claim({"device": "d0", "shareID": "x", "consumedCapacity": {"memory": "1"}}),
        ],
        [claim(exactly("r", **ONE), exactly("s", count=2, **ONE))],
        ["r=d1", "s=d0", "s=d1"],
    ),
    (
        "equal devices allocated, another value to match",
        [slice_of([device("d0", "a"), device("d1", "b"), device("d2", "b")])],
        [
            claim(
                exactly("r"),
                exactly("s"),
                exactly("t"),
                constraints=[{"matchAttribute": MODEL, "requests": ["r", "t"]}],
            )
        ],
        ["r=d1", "s=d0", "t=d2"],
    ),
    (
        "equal devices allocated, other distinct values",
        [slice_of([device("d0", "a"), device("d1", "b"), device("d2", "a")])],
        [
            claim(
                exactly("r"),
                exactly("s"),
                exactly("t", MODEL_A),
                constraints=[{"distinctAttribute": MODEL, "requests": ["r", "t"]}],
            )
        ],
        ["r=d1", "s=d0", "t=d2"],
    ),
)
def test_solutions_are_not_pruned(
    objects: list[ResourceSlice | ResourceClaim], wanted: list[ResourceClaim], expected: list[str]
) -> None:
    assert names(allocate(cluster(*objects), wanted)) == expected


@table(
    "objects, wanted, expected",
    (
        "one device can be shared",
        [slice_of([device("d", allowMultipleAllocations=True)]), slice_of([device("d")], node="n1")],
        claim(exactly("r"), exactly("s")),
        [["r=d", "s=d"], None],
    ),
    (
        "other devices of a slice are targeted",
        [
            slice_of(
                [device("d0", nodeName="n0"), device("d1", nodeName="n1")],
                node="",
                pool="net",
                perDeviceNodeSelection=True,
            )
        ],
        claim(exactly("r")),
        [["r=d0"], ["r=d1"]],
    ),
    (
        "a device in use that no request selects consumes more counters",
        [
            *pool("n0", "3", consumer("d0", "a", "1"), consumer("d1", "b", "1")),
            *pool("n1", "3", consumer("d0", "a", "1"), consumer("d1", "b", "3"), node="n1"),
            allocated_claim({"device": "d1"}, {"device": "d1", "pool": "n1"}),
        ],
        claim(exactly("r", MODEL_A)),
        [["r=d0"], None],
    ),
    (
        "the device of one node is in use",
        [slice_of([device("d0")]), slice_of([device("d0")], node="n1"), allocated_claim({"device": "d0"})],
        claim(exactly("r")),
        [None, ["r=d0"]],
    ),
    (
        "other attributes",
        [slice_of([device("d0", "a")]), slice_of([device("d0", "b")], node="n1")],
        claim(exactly("r", MODEL_B)),
        [None, ["r=d0"]],
    ),
)
def test_nodes_that_do_not_share_a_search(
    objects: list[ResourceSlice | ResourceClaim], wanted: ResourceClaim, expected: list[list[str] | None]
) -> None:
    found = allocator(cluster(*objects), [wanted])
    assert [names(claim_results(found.find(node, {}))) for node in ("n0", "n1")] == expected


LINK = f"{DRIVER}/link"


def linked(*links: str | int, node: str = "n0", pool: str = "") -> ResourceSlice:
    """Return a slice of devices with these values of the attribute ``link``; 1 and "1" are different values."""
    kinds = {str: "string", int: "int"}
    rows = [device(f"d{index}", attributes={"link": {kinds[type(link)]: link}}) for index, link in enumerate(links)]
    return slice_of(rows, name=f"slice-{pool or node}", node=node, pool=pool or node)


def match(*requests: str, kind: str = "matchAttribute") -> list[dict[str, Any]]:
    return [{kind: LINK, "requests": list(requests)}]


@table(
    "objects, wanted",
    (
        "only pairs match",
        [linked(*(f"l{index // 2}" for index in range(32)))],
        claim(exactly("any", count=12), exactly("linked", count=3), constraints=match("linked")),
    ),
    (
        "too few distinct values",
        [linked("a", 1, "b", "a")],
        claim(exactly("r", count=4), constraints=match(kind="distinctAttribute")),
    ),
    (
        "each attribute matches, but not both",
        [
            slice_of(
                [
                    device(f"d{index}", attributes={"link": {"int": index % 2}, "root": {"int": index // 2}})
                    for index in range(4)
                ]
            )
        ],
        claim(exactly("r", count=2), constraints=[{"matchAttribute": LINK}, {"matchAttribute": f"{DRIVER}/root"}]),
    ),
    (
        "counters",
        pool("a", "5", *(consumer(f"d{index}", "a", "1") for index in range(12))),
        claim(exactly("r", count=6)),
    ),
)
def test_impossible_without_a_search(objects: list[ResourceSlice], wanted: ResourceClaim) -> None:
    """A claim that no combination can satisfy, by count, costs no search steps."""
    found = allocator(cluster(*objects), [wanted])
    assert found.find("n0", {}) is None
    assert found.steps == 0


@table(
    "slices, searches",
    ("other values, the same devices are equal", [linked("a", "b", "a"), linked(7, "c", 7, node="n1")], 1),
    ("other devices are equal", [linked("a", "b", "a"), linked("a", "a", "b", node="n1")], 2),
    (
        "equal to other devices of another pool",
        [
            linked("a", "b", pool="p"),
            linked("b", "c", pool="q"),
            linked("d", "e", node="n1", pool="r"),
            linked("e", "d", node="n1", pool="s"),
        ],
        2,
    ),
    (
        "equal to the same devices of another pool",
        [
            linked("a", "b", pool="p"),
            linked("b", "c", pool="q"),
            linked("d", "e", node="n1", pool="r"),
            linked("e", "f", node="n1", pool="s"),
        ],
        1,
    ),
)
def test_nodes_with_other_values(slices: list[ResourceSlice], searches: int) -> None:
    """Nodes with other values share a search if the same devices have equal values."""
    found = allocator(cluster(*slices), [claim(exactly("r", count=2), constraints=match())])
    for node in ("n0", "n1"):
        assert found.find(node, {}) is not None
    assert found.searches == searches
