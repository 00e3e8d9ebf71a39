"""Nodes, slices and claims that change at random, for laws of what is refreshed row by row."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.devices import OPTIONAL_NODE_OPERATIONS, DeviceClass, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import NodeColumns

DRIVER = "gpu.example.com"
NODES = 6


def decode(kind: Any, fields: dict[str, Any]) -> Any:
    """Decode an object as the API server would send it."""
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


def device_claim(number: int, *devices: tuple[str, str]) -> ResourceClaim:
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


class DeviceWorld:
    """Nodes and devices that change at random.

    Args:
        seed: Any number.
        skips_operations: Whether slices skip operations, which some nodes can and others cannot.
    """

    def __init__(self, seed: int, *, skips_operations: bool = False) -> None:
        self.dice = random.Random(seed)
        self._skips_operations = skips_operations
        self.nodes = NodeColumns(devices=DeviceIndex(DeviceFeatures(optional_node_operations=skips_operations)))
        self.devices = self.nodes.devices
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.devices.assign(decode(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}))
        for number in range(NODES):
            self.put_node(number)

    def put_node(self, number: int) -> None:
        """Add a node, or change its labels or declared features."""
        labels = {"rack": self.dice.choice("ab")}
        features = [OPTIONAL_NODE_OPERATIONS] if self._skips_operations and self.dice.random() < 0.5 else []
        status = {"declaredFeatures": features}
        node = decode(Node, {"metadata": {"name": f"n{number}", "labels": labels}, "status": status})
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
        if self._skips_operations and self.dice.random() < 0.4:
            spec["skipNodeOperations"] = ["*"]
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
                self.devices.assign(device_claim(self.dice.randrange(8), (pool, f"d{self.dice.randrange(3)}")))
            case 4:
                self.devices.assign(device_claim(self.dice.randrange(8)))
            case _:
                row = self.nodes.row_of(f"n{number}")
                if row >= 0 and self.dice.random() < 0.3:
                    self.nodes.remove_node(f"n{number}")
