"""Nodes, resource slices and claims that change at random, for tests of row-by-row updates."""

from __future__ import annotations

import random

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.model.devices import OPTIONAL_NODE_OPERATIONS, ResourceClaim, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.devices import DRIVER, Body, decoded, device_class

NODES = 6


def device_claim(number: int, *devices: tuple[str, str]) -> ResourceClaim:
    """Return a claim for one device, allocated if devices are given as (pool, device)."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device} for pool, device in devices]
    return decoded(
        {
            "metadata": {"name": f"c{number}", "namespace": "d", "uid": f"u{number}"},
            "spec": {"devices": {"requests": [request]}},
            "status": {"allocation": {"devices": {"results": results}}} if results else {},
        },
        ResourceClaim,
    )


class DeviceWorld:
    """Nodes and devices that change at random.

    Args:
        skips_operations: Whether some slices skip node operations, which only some nodes support.
    """

    def __init__(self, seed: int, *, skips_operations: bool = False) -> None:
        self.random = random.Random(seed)
        self._skips_operations = skips_operations
        self.nodes = NodeColumns(devices=DeviceIndex(DeviceFeatures(optional_node_operations=skips_operations)))
        self.devices = self.nodes.devices
        self.devices.assign(device_class("gpu", f'device.driver == "{DRIVER}"'))
        for number in range(NODES):
            self.put_node(number)

    def put_node(self, number: int) -> None:
        """Add a node, or change its labels or declared features."""
        labels = {"rack": self.random.choice("ab")}
        features = [OPTIONAL_NODE_OPERATIONS] if self._skips_operations and self.random.random() < 0.5 else []
        status = {"declaredFeatures": features}
        node = decoded({"metadata": {"name": f"n{number}", "labels": labels}, "status": status}, Node)
        put = self.nodes.add_node if self.nodes.row_of(f"n{number}") < 0 else self.nodes.update_node
        put(node)

    def put_slice(self, number: int) -> None:
        """Add or change a slice of one node, or the slice of a pool that several nodes can access."""
        is_local = self.random.random() < 0.8
        rack = {"key": "rack", "operator": "In", "values": [self.random.choice("ab")]}
        access = (
            {"nodeName": f"n{number}"}
            if is_local
            else {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}}
        )
        pool = f"n{number}" if is_local else "fabric"
        spec: Body = {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": self.random.randint(0, 2), "resourceSliceCount": 1},
            "devices": [{"name": f"d{index}"} for index in range(self.random.randint(0, 3))],
            **access,
        }
        if self._skips_operations and self.random.random() < 0.4:
            spec["skipNodeOperations"] = ["*"]
        name = f"s{number}" if is_local else "s-fabric"
        self.devices.assign(decoded({"metadata": {"name": name}, "spec": spec}, ResourceSlice))

    def step(self) -> None:
        """Make a random change."""
        number = self.random.randrange(NODES)
        pool = self.random.choice([f"n{number}", "fabric"])
        match self.random.randrange(6):
            case 0:
                self.put_node(number)
            case 1 | 2:
                self.put_slice(number)
            case 3:
                self.devices.assign(device_claim(self.random.randrange(8), (pool, f"d{self.random.randrange(3)}")))
            case 4:
                self.devices.assign(device_claim(self.random.randrange(8)))
            case _:
                row = self.nodes.row_of(f"n{number}")
                if row >= 0 and self.random.random() < 0.3:
                    self.nodes.remove_node(f"n{number}")
