"""Tests of allocations that are given up before they are written: pods that wait for the devices are tried again."""

from __future__ import annotations

import pytest

from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.support.devices import claim, held

ALLOCATION = held({"device": "d"}).status.allocation


@pytest.mark.parametrize(
    ("ended", "written", "reported"),
    [
        pytest.param(("a", "b"), False, True, id="given up"),
        pytest.param(("a",), False, False, id="another pod still has it"),
        pytest.param(("a", "b"), True, False, id="written"),
    ],
)
def test_an_allocation_that_is_given_up(ended: tuple[str, ...], written: bool, reported: bool) -> None:
    """It is reported as a claim that lost its allocation, unless the devices are still in use."""
    devices = DeviceIndex()
    seen: list[tuple[ResourceClaim, ResourceClaim]] = []
    devices.on_freed.append(lambda allocated, now: seen.append((allocated, now)))
    assert ALLOCATION is not None
    stored = claim()
    devices.assign(stored)
    for user in ("a", "b"):
        devices.begin_allocation(stored, ALLOCATION, user)
    in_flight = devices.in_flight_of("a")
    if written:
        devices.assign(held({"device": "d"}, name="c0"))
    for user in ended:
        devices.end_allocation(stored.metadata.uid, user)
    devices.report_freed(in_flight)
    assert [(before.status.allocation, now) for before, now in seen] == ([(ALLOCATION, stored)] if reported else [])
