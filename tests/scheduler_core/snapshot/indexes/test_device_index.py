"""Indexes of claims and pools: at any time what a look at all of them finds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.devices.pools import PoolKey
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, pools_of
from tests.support.devices import DRIVER, claim, device, exactly, group_consumer, slice_of, with_meta, with_reserved

POOLS = ("a", "b", "c")
PODS = ("p0", "p1", "p2", "p3")


def random_claim(draw: Random, version: int) -> ResourceClaim:
    """Return a claim with some devices and consumers, or without an allocation."""
    number = draw.randrange(8)
    results = [
        {
            "request": "r",
            "driver": DRIVER,
            "pool": draw.choice(POOLS),
            "device": "d",
            "adminAccess": draw.random() < 0.2,
        }
        for _ in range(draw.randint(0, 2))
    ]
    allocation = {"devices": {"results": results}} if draw.random() < 0.7 else None
    made = with_reserved(
        claim(exactly("r"), name=f"c{number}", allocation=allocation), *draw.sample(PODS, draw.randint(0, 3))
    )
    if draw.random() < 0.2:
        consumers = (*made.status.reserved_for, group_consumer("train"))
        made = replace(made, status=replace(made.status, reserved_for=consumers))
    return with_meta(made, resource_version=str(version), uid=f"{number}-{draw.randint(0, 1)}")


def random_slice(draw: Random) -> ResourceSlice:
    """Return one of several slices; pools may have slices of several nodes, or of all."""
    number = draw.randrange(6)
    node = draw.choice(("n0", "n0", "n1", ""))
    fields: dict[str, Any] = {} if node else {"allNodes": True}
    return slice_of([device("d")], name=f"s{number}", node=node, pool=draw.choice(POOLS), **fields)


def check(devices: DeviceIndex) -> None:
    allocated = [each for each in devices.claims if each.status.allocation is not None]
    for uid in (*PODS, group_consumer("train").uid):
        users = [each for each in allocated if uid in [consumer.uid for consumer in each.status.reserved_for]]
        assert devices.claims.of_consumer(uid) == users
    for pool in POOLS:
        using = {each.key for each in allocated if (DRIVER, pool) in pools_of(each)}
        assert devices.claims.in_pools([(DRIVER, pool)]) == using
    assert devices.claims.shared == {each.key for each in allocated if len(each.status.reserved_for) > 1}
    assert devices.claims.in_order({each.key for each in allocated}) == allocated
    nodes: dict[PoolKey, set[str | None]] = {}
    for each in devices.hardware.inventory.slices():
        nodes.setdefault(each.pool_key, set()).add(each.target.node_name)
    assert devices.hardware.inventory.spread == {
        key for key, of_pool in nodes.items() if len(of_pool) > 1 or of_pool == {None}
    }


@pytest.mark.parametrize("seed", range(10))
def test_indexes_follow_all_changes(seed: int) -> None:
    """Claims and slices are added, replaced, created again with another UID, and removed."""
    draw, devices = Random(seed), DeviceIndex()
    for version in range(150):
        shown = random_claim(draw, version) if draw.random() < 0.8 else random_slice(draw)
        if draw.random() < 0.25:
            devices.remove(shown)
        else:
            devices.assign(shown)
        check(devices)
