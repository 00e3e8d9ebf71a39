"""Classes of nodes that are refreshed row by row equal those that are computed at once."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.search import SearchLimits
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.devices import DeviceClass, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.plugins.dynamic_resources.node_classes import NO_NODE, NodeClasses
from scheduler_core.snapshot.node_columns import NodeColumns

DRIVER = "gpu.example.com"
NODES = 6
STEPS = 120


def decode(kind: Any, fields: dict[str, Any]) -> Any:
    """Decode an object as the API server would send it."""
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


def a_claim(number: int, *devices: tuple[str, str]) -> ResourceClaim:
    """A claim for one device, allocated if devices are given as (pool, device)."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device} for pool, device in devices]
    claim: ResourceClaim = decode(
        ResourceClaim,
        {
            "metadata": {"name": f"c{number}", "namespace": "d", "uid": f"u{number}"},
            "spec": {"devices": {"requests": [request]}},
            "status": {"allocation": {"devices": {"results": results}}} if results else {},
        },
    )
    return claim


class World:
    """Nodes and devices that change at random."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.nodes = NodeColumns()
        self.devices = self.nodes.devices
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.devices.assign(decode(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}))
        for number in range(NODES):
            self.put_node(number)

    def put_node(self, number: int) -> None:
        """Add a node, or change its labels."""
        labels = {"rack": self.dice.choice("ab")}
        node = decode(Node, {"metadata": {"name": f"n{number}", "labels": labels}})
        put = self.nodes.add_node if self.nodes.row_of(f"n{number}") < 0 else self.nodes.update_node
        put(node)

    def put_slice(self, number: int) -> None:
        """Add or change a slice of a node, or one that several nodes reach."""
        is_local = self.dice.random() < 0.8
        rack = {"key": "rack", "operator": "In", "values": [self.dice.choice("ab")]}
        reach = (
            {"nodeName": f"n{number}"}
            if is_local
            else {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}}
        )
        pool = f"n{number}" if is_local else "fabric"
        spec = {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": self.dice.randint(0, 2), "resourceSliceCount": 1},
            "devices": [{"name": f"d{index}"} for index in range(self.dice.randint(0, 3))],
            **reach,
        }
        name = f"s{number}" if is_local else "s-fabric"
        self.devices.assign(decode(ResourceSlice, {"metadata": {"name": name}, "spec": spec}))

    def step(self) -> None:
        """Change something."""
        number = self.dice.randrange(NODES)
        pool = self.dice.choice([f"n{number}", "fabric"])
        match self.dice.randrange(6):
            case 0:
                self.put_node(number)
            case 1 | 2:
                self.put_slice(number)
            case 3:
                self.devices.assign(a_claim(self.dice.randrange(8), (pool, f"d{self.dice.randrange(3)}")))
            case 4:
                self.devices.assign(a_claim(self.dice.randrange(8)))
            case _:
                row = self.nodes.row_of(f"n{number}")
                if row >= 0 and self.dice.random() < 0.3:
                    self.nodes.remove_node(f"n{number}")


@pytest.mark.parametrize("seed", range(20))
def test_refreshed_classes_equal_new_ones(seed: int) -> None:
    """Rows of one class have equal devices, and rows with equal devices are in one class."""
    world = World(seed)
    classes = NodeClasses(world.nodes)
    hardware = world.devices.hardware
    for step in range(STEPS):
        for _ in range(world.dice.choice([1, 1, 1, 2, 5])):
            world.step()
        allocator = Allocator([a_claim(99)], world.devices.classes, hardware, SearchLimits(lambda: 0.0))
        found = classes.refresh(allocator).tolist()
        keys: dict[int, set[object]] = defaultdict(set)
        for row, number in enumerate(found):
            node = world.nodes.nodes[row]
            assert (number == NO_NODE) == (node is None), f"step {step}"
            if node is not None:
                keys[number].add(allocator.key(node.metadata.name, node.metadata.labels))
        assert all(len(each) == 1 for each in keys.values()), f"step {step}"
        assert len({key for each in keys.values() for key in each}) == len(keys), f"step {step}"
