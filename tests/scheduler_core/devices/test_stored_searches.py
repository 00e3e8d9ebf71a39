"""Cached search results, which pods with equal claims share, equal those of new searches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.behaviours import DeviceKnowledge, KnowledgeBounds
from scheduler_core.devices.search import SearchLimits
from scheduler_core.model.devices import ResourceClaim
from tests.support.device_world import DeviceWorld
from tests.support.devices import (
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
