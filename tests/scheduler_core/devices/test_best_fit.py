"""Best fit: each request is allocated the smallest suitable device."""

from __future__ import annotations

from typing import Any

from tests.support.devices import (
    DRIVER,
    Body,
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
