"""The search for devices: best fit, and states, nodes and results that need no search of their own.

Only states without a solution are skipped; equivalent nodes, and pods with equal claims, share a search.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.behaviours import DeviceKnowledge, KnowledgeBounds
from scheduler_core.devices.search import SearchLimits
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from tests.support.device_world import DeviceWorld
from tests.support.devices import (
    DRIVER,
    Body,
    allocate,
    allocated_claim,
    allocator,
    claim,
    claim_results,
    cluster,
    device,
    device_class,
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


AT_LEAST_40 = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def sized(name: str, memory: str = "", cores: str = "", **fields: Any) -> Body:
    """Return a device with capacities."""
    amounts = {"memory": memory, "cores": cores}
    return device(name, capacity={each: {"value": amount} for each, amount in amounts.items() if amount}, **fields)


GPUS = [sized("a80", "80Gi"), sized("b4", "4Gi"), sized("c40", "40Gi"), sized("d4", "4Gi")]


def allocated(
    devices: list[Body], *requests: Body, best_fit: bool = True, use: tuple[Body, ...] = ()
) -> list[str] | None:
    """Return ``request=device`` of all results."""
    world = cluster(slice_of(devices), allocated_claim(*use))
    return names(
        claim_results(allocator(world, [claim(*requests)], [device_class()], best_fit=best_fit).find("n0", {}))
    )


@table(
    "devices, requests, expected",
    ("the first of the smallest", GPUS, [exactly("r")], ["r=b4"]),
    ("the smallest that the selector admits", GPUS, [exactly("r", AT_LEAST_40)], ["r=c40"]),
    (
        "the smallest that has the requested capacity",
        GPUS,
        [exactly("r", capacity={"requests": {"memory": "5Gi"}})],
        ["r=c40"],
    ),
    ("several devices", GPUS, [exactly("r", count=3)], ["r=b4", "r=d4", "r=c40"]),
    ("two requests", GPUS, [exactly("r"), exactly("s", AT_LEAST_40)], ["r=b4", "s=c40"]),
    (
        "named capacities come first",
        [sized("a", "8Gi", "9"), sized("b", "9Gi", "1"), sized("c", "8Gi", "2")],
        [exactly("r", f'device.capacity["{DRIVER}"].memory.compareTo(quantity("1Gi")) >= 0')],
        ["r=c"],
    ),
    ("all capacities by name", [sized("a", "8Gi", "9"), sized("b", "9Gi", "1")], [exactly("r")], ["r=b"]),
    ("a missing capacity counts as 0", [sized("a", "8Gi"), sized("b")], [exactly("r")], ["r=b"]),
)
def test_smallest_device(devices: list[Body], requests: list[Body], expected: list[str]) -> None:
    assert allocated(devices, *requests) == expected


def test_first_fit_is_the_default() -> None:
    assert allocated(GPUS, exactly("r"), best_fit=False) == ["r=a80"]


def test_remaining_capacity_of_a_shared_device() -> None:
    """The size of a shared device is its remaining capacity."""
    devices = [
        sized("unused", "40Gi", allowMultipleAllocations=True),
        sized("shared", "80Gi", allowMultipleAllocations=True),
    ]
    request = exactly("r", capacity={"requests": {"memory": "8Gi"}})
    share: Body = {"device": "shared", "shareID": "s", "consumedCapacity": {"memory": "64Gi"}}
    assert allocated(devices, request, use=(share,)) == ["r=shared"]
    assert allocated(devices, request) == ["r=unused"]


def test_a_larger_device_is_used_if_a_constraint_excludes_the_smallest() -> None:
    """The search backtracks to a larger device if a constraint admits no second device with the smallest."""
    devices = [sized("small", "4Gi", attributes={"root": {"int": 1}})]
    devices += [sized(f"large-{number}", "80Gi", attributes={"root": {"int": 2}}) for number in range(2)]
    world = cluster(slice_of(devices))
    wanted = claim(exactly("r"), exactly("s"), constraints=[{"matchAttribute": f"{DRIVER}/root"}])
    found = claim_results(allocator(world, [wanted], [device_class()], best_fit=True).find("n0", {}))
    assert names(found) == ["r=large-0", "s=large-1"]


STEPS = 80
BOUNDS = {"ample": KnowledgeBounds(), "small": KnowledgeBounds(tables=2, records=3, shapes=3, verdict_bytes=6000)}


@table("skips_operations", ("plain", False), ("skipping", True))
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("seed", range(6))
def test_cached_outcomes_equal_new_ones(seed: int, bounds: str, skips_operations: bool) -> None:
    """After each random change of claims, slices and nodes, two claims have equal results on every node."""
    world = DeviceWorld(seed, skips_operations=skips_operations)
    hardware = world.devices.hardware
    cached = replace(hardware, knowledge=DeviceKnowledge(hardware.features, BOUNDS[bounds]))
    wanted = [claim(exactly("r", count=count), name=f"c{count}") for count in (1, 2)]
    outcomes = set()
    for step in range(STEPS):
        world.step()
        fresh = replace(hardware, knowledge=DeviceKnowledge(hardware.features))
        for each in wanted:
            found, expected = (
                Allocator([each], world.devices.classes, devices, SearchLimits(lambda: 0.0))
                for devices in (cached, fresh)
            )
            for node in filter(None, world.nodes.nodes):
                where = node.metadata.name, node.metadata.labels, node.status.declared_features
                result = claim_results(found.find(*where))
                assert result == claim_results(expected.find(*where)), f"step {step}"
                outcomes.add(result is None)
    assert outcomes == {True, False}


def test_pods_with_equal_claims_share_a_search() -> None:
    """Pods with equal claims share a search; the result has the request names of the pod's own claim."""
    devices = cluster(slice_of([device("d0"), device("d1")]))

    def search(wanted: ResourceClaim) -> tuple[list[str] | None, int]:
        found = allocator(devices, [wanted])
        return names(claim_results(found.find("n0", {}))), found.searches

    assert search(claim(exactly("r"), name="first")) == (["r=d0"], 1)
    assert search(claim(exactly("r"), name="second")) == (["r=d0"], 0)
    assert search(claim(exactly("r", count=2))) == (["r=d0", "r=d1"], 1)
    assert search(claim(exactly("s"))) == (["s=d0"], 1)


def test_the_order_of_devices_is_part_of_a_search() -> None:
    """A best-fit search does not reuse the result of a first-fit search, and vice versa."""
    sizes = [("d0", "2"), ("d1", "1")]
    devices = cluster(slice_of([device(name, capacity={"memory": {"value": size}}) for name, size in sizes]))
    classes = {"gpu": device_class()}
    found = [
        Allocator([claim(exactly("r"))], classes, devices, SearchLimits(lambda: 0.0), best_fit=best_fit)
        for best_fit in (False, True, False)
    ]
    assert [names(claim_results(each.find("n0", {}))) for each in found] == [["r=d0"], ["r=d1"], ["r=d0"]]
